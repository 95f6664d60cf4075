"""``skipstone kv migrate`` and ``index migrate`` on services that move, and starts that fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import structlog
from click.testing import Result
from tests.contract.latent_store_cases import LATENT_BYTES, latents, list_ids, save
from typer.testing import CliRunner

from skipstone_client.cli_commands import build_app
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.vector_index import VectorIndexClient
from skipstone_latent_kv.__main__ import build
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.config_sources import ConfigError
from skipstone_shared.errors import FailedPrecondition, SkipstoneError
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_vector_index.__main__ import build as build_index
from skipstone_vector_index.config import VectorIndexSettings


@pytest.fixture(autouse=True)
def _silent_server() -> Iterator[None]:
    """The server runs in this process and would log into what the command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


def target_file(folder: Path, service: str, *lines: str) -> Path:
    path = folder / f"{service}.toml"
    path.write_text("\n".join([f"[{service}]", f'data_dir = "{folder}/new"', *lines]))
    return path


@contextmanager
def moving_kv(folder: Path, *lines: str) -> Iterator[tuple[LatentKVClient, Callable[..., Result]]]:
    """A latent_kv that had entries before it was told to move, and the command."""
    old = LmdbStore(folder / "old")
    save(old, "early", latents(1))
    save(old, "large", latents(2, 8 * LATENT_BYTES))
    old.close()
    settings = LatentKVSettings(
        data_dir=folder / "old", migrate_to=target_file(folder, "latent_kv", *lines)
    )
    with ExitStack() as stack:
        target = stack.enter_context(in_process_server(build(settings)))
        client = stack.enter_context(LatentKVClient(target))
        yield client, lambda *words: _run("kv", "migrate", "--target", target, *words)


def _run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))  # type: ignore[return-value]


def test_it_ends_with_0_once_the_target_has_everything(tmp_path: Path) -> None:
    with moving_kv(tmp_path) as (client, migrate):
        save(client, "late", latents(3))
        result = migrate("--verify")
        assert result.exit_code == 0
        assert "lmdb -> lmdb: compared 3 entries, copied 2 (9.0 KiB), removed 0, in 2 passes" in (
            result.output
        )
        assert "in step: latent_kv may be restarted with the settings of the target" in (
            result.output
        )
        assert json.loads(migrate("--json").stdout)["copied"] == 0
    switched = LmdbStore(tmp_path / "new")
    assert list_ids(switched) == ["early", "large", "late"]
    switched.close()


def test_entries_that_the_target_cannot_take_are_named_and_it_ends_with_1(tmp_path: Path) -> None:
    with moving_kv(tmp_path, "max_snapshot_bytes = 2048") as (_, migrate):
        result = migrate()
    assert result.exit_code == 1
    assert "refused default/large: " in result.output
    assert "not in step: the target cannot take 1 entries" in result.output


def test_a_quota_that_is_too_small_is_guessed(tmp_path: Path) -> None:
    with moving_kv(tmp_path, f"quota_bytes = {8 * LATENT_BYTES}") as (_, migrate):
        result = migrate("--passes", "3")
    assert result.exit_code == 1
    assert "is the quota of the target smaller than what is stored?" in result.output


def test_a_service_that_was_not_told_to_move_says_what_to_do(tmp_path: Path) -> None:
    settings = LatentKVSettings(data_dir=tmp_path / "old")
    with in_process_server(build(settings)) as target:
        result = _run("kv", "migrate", "--target", target)
    assert result.exit_code == 1
    assert "was not told to move: set migrate_to and restart it" in result.stderr


def test_an_index_moves_by_command_too(tmp_path: Path) -> None:
    settings = VectorIndexSettings(
        data_dir=tmp_path / "old", migrate_to=target_file(tmp_path, "vector_index"), fsync=False
    )
    mounted = build_index(settings)
    entry = VectorEntry(IndexEntry("e"), np.array([1, 2], np.float32))
    with in_process_server(mounted) as target, VectorIndexClient(target) as client:
        client.upsert_entries("", "a1" * 16, [entry])
        result = _run("index", "migrate", "--vector-index-target", target)
    assert result.exit_code == 0
    assert "hnsw -> hnsw: compared 1 entries, copied 0" in result.output
    assert "in step: vector_index may be restarted" in result.output


@pytest.mark.parametrize(
    ("lines", "error", "said"),
    [
        (["migrate_to = 'x.toml'"], FailedPrecondition, "itself has migrate_to"),
        (["stor = 'lmdb'"], ConfigError, "store"),
        (["store = 'redis'", "redis_urls = ['redis://127.0.0.1:1']"], SkipstoneError, "127.0.0.1"),
    ],
)
def test_a_store_that_cannot_be_moved_to_ends_the_start(
    tmp_path: Path, lines: list[str], error: type[Exception], said: str
) -> None:
    settings = LatentKVSettings(
        data_dir=tmp_path / "old", migrate_to=target_file(tmp_path, "latent_kv", *lines)
    )
    with pytest.raises(error, match=said):
        build(settings)


def test_the_store_that_serves_is_no_target(tmp_path: Path) -> None:
    path = target_file(tmp_path, "latent_kv")
    with pytest.raises(FailedPrecondition, match="that serves already"):
        build(LatentKVSettings(data_dir=tmp_path / "new", migrate_to=path))


def test_the_index_that_serves_is_no_target(tmp_path: Path) -> None:
    path = target_file(tmp_path, "vector_index")
    with pytest.raises(FailedPrecondition, match="that serves already"):
        build_index(VectorIndexSettings(data_dir=tmp_path / "new", migrate_to=path))


def test_an_index_of_another_metric_is_no_target(tmp_path: Path) -> None:
    path = target_file(tmp_path, "vector_index", 'metric = "inner_product"')
    settings = VectorIndexSettings(data_dir=tmp_path / "old", migrate_to=path)
    with pytest.raises(FailedPrecondition, match="metric"):
        build_index(settings)
