"""``skipstone kv``: a warm cache leaves one service as files and enters another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import Result
from safetensors import deserialize
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Write, latents, list_all, list_ids, save
from typer.testing import CliRunner

from skipstone_client import kv_transfer
from skipstone_client.cli_commands import build_app
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount
from skipstone_shared.grpc_server import in_process_server

Serve = Callable[[], tuple[MemoryStore, str]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with capture_logs(), ExitStack() as stack:

        def start() -> tuple[MemoryStore, str]:
            store = MemoryStore()
            return store, stack.enter_context(in_process_server(mount(store)))

        yield start


def kv(*words: str | Path) -> Result:
    return CliRunner().invoke(build_app(), ["kv", *map(str, words)])


def ship(*words: str | Path) -> Result:
    """Latents alone; `test_warm_cache_wire` ships vectors too."""
    return kv(*words, "--without-vectors")


def fill(store: MemoryStore) -> None:
    """Two namespaces, several steps and parts, every dtype, a pin, an uncommitted entry."""
    mixed = {
        "latents": latents(1).astype(ml_dtypes.bfloat16),
        "scheduler.float64": np.array(1 / 3),
        "scheduler.steps": np.array([[9, -7]], np.int64),
        "scheduler.float32": latents(2).astype(np.float32),
    }
    Write.of("mixed", mixed).to(store)
    Write.of("mixed", latents(3), step_index=20).to(store)
    store.commit_entry("", "mixed")
    store.pin_entries("", ["mixed"], True)
    save(store, "plain")
    save(store, "plain", latents(4), namespace="other")
    Write.of("unfinished").to(store)


def contents(store: MemoryStore, namespace: str = "") -> dict[str, object]:
    return {
        entry.entry_id: (
            entry.pinned,
            [
                (s.ref, s.metadata, bytes(store.read_latent(namespace, s.ref).data))
                for s in entry.snapshots
            ],
        )
        for entry in list_all(store, namespace)
    }


@pytest.fixture
def exported(serve: Serve, tmp_path: Path) -> tuple[MemoryStore, Path]:
    store, target = serve()
    fill(store)
    done = ship(
        "export", tmp_path / "out", "--target", target, "--namespace", "", "--namespace", "other"
    )
    assert done.exit_code == 0, done.output
    return store, tmp_path / "out"


def test_a_cache_that_was_shipped_is_the_same_bit_for_bit(
    serve: Serve, exported: tuple[MemoryStore, Path]
) -> None:
    before, directory = exported
    after, target = serve()
    done = ship("import", directory, "--target", target, "--json")
    assert json.loads(done.output)["entries"] == 3
    for namespace in ("", "other"):
        assert contents(after, namespace) == contents(before, namespace)
    assert list_ids(after) == ["mixed", "plain"]


def test_files_are_safetensors(exported: tuple[MemoryStore, Path]) -> None:
    _, directory = exported
    tensors = dict(deserialize((directory / "default" / "mixed.safetensors").read_bytes()))
    assert set(tensors) == {
        "5/latents",
        "5/scheduler.float64",
        "5/scheduler.steps",
        "5/scheduler.float32",
        "20/latents",
    }
    assert tensors["5/latents"]["dtype"] == "BF16"
    assert tensors["5/scheduler.steps"]["shape"] == [1, 2]
    assert bytes(tensors["20/latents"]["data"]) == latents(3).tobytes()


def test_importing_again_writes_nothing_and_missing_entries_are_added(
    serve: Serve, exported: tuple[MemoryStore, Path]
) -> None:
    _, directory = exported
    store, target = serve()
    ship("import", directory, "--target", target)
    store.delete_entries("", ["plain"])
    done = json.loads(ship("import", directory, "--target", target, "--json").output)
    assert (done["entries"], done["skipped"]) == (1, 2)
    assert list_ids(store) == ["mixed", "plain"]


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("default/plain.safetensors", "does not match its checksum"),
        ("manifest.json", "manifest.json does not match its checksum"),
    ],
)
def test_a_damaged_export_is_told_and_no_damage_imported(
    serve: Serve, exported: tuple[MemoryStore, Path], file: str, told: str
) -> None:
    _, directory = exported
    path = directory / file
    data = bytearray(path.read_bytes())
    if file == "manifest.json":
        data = data.replace(b'"sigma": 0.7310585786300049', b'"sigma": 0.7310585786300048', 1)
    else:
        data[-1] ^= 1
    path.write_bytes(data)
    store, target = serve()
    done = ship("import", directory, "--target", target)
    assert done.exit_code == 1
    assert told in done.stderr
    assert "plain" not in list_ids(store)


@pytest.mark.parametrize("length", [0, 4, 60, 400])
def test_a_truncated_file_is_told(
    serve: Serve, exported: tuple[MemoryStore, Path], length: int
) -> None:
    _, directory = exported
    path = directory / "default" / "plain.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    store, target = serve()
    done = ship("import", directory, "--target", target)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "plain" not in list_ids(store)


def test_an_export_that_was_broken_off_is_none(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = serve()
    fill(store)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(kv_transfer, "write_tensors", broken)
        assert ship("export", tmp_path / "out", "--target", target).exit_code == 130
    done = ship("import", tmp_path / "out", "--target", target)
    assert (done.exit_code, "no finished export" in done.stderr) == (1, True)


def test_an_export_of_nothing_says_of_what(serve: Serve, tmp_path: Path) -> None:
    store, target = serve()
    fill(store)
    names = ("--namespace", "other", "--namespace", "team-a")
    done = ship("export", tmp_path / "out", "--target", target, *names)
    assert done.exit_code == 0
    assert "exported 1 entries" in done.stdout
    assert done.stdout.rstrip().endswith("; nothing is stored in team-a")


def test_exporting_over_something_is_refused(serve: Serve, tmp_path: Path) -> None:
    _, target = serve()
    (tmp_path / "file").write_text("mine")
    done = ship("export", tmp_path, "--target", target)
    assert (done.exit_code, "is not empty" in done.stderr) == (1, True)
    done = ship("export", tmp_path / "file", "--target", target)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_a_manifest_cannot_name_files_elsewhere(
    serve: Serve, exported: tuple[MemoryStore, Path]
) -> None:
    _, directory = exported
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["entries"][0]["entry_id"] = "../../secret"
    manifest["checksum"] = kv_transfer.canonical_hash(manifest["entries"])
    (directory / "manifest.json").write_text(json.dumps(manifest))
    _, target = serve()
    done = ship("import", directory, "--target", target)
    assert (done.exit_code, "entry_id" in done.stderr) == (2, True)


def test_verify_and_compact_run_the_services_own_program(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    save(store, "entry")
    refused = kv("verify", tmp_path)
    assert (refused.exit_code, "is in use by process" in refused.stderr) == (2, True)
    store.close()
    found = kv("verify", tmp_path, "--json")
    assert (found.exit_code, json.loads(found.output)["size_bytes"]) == (0, LATENT_BYTES)
    assert "problems" in kv("verify", tmp_path).output
    assert "->" in kv("compact", tmp_path).output
