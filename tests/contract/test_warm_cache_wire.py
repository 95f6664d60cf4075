"""``skipstone kv`` ships what both stores have of an entry, over the wire."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import latents, list_ids, save
from typer.testing import CliRunner

from skipstone_client.cli_commands import build_app
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount as mount_store
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.index_entries import IndexEntry, Vector, VectorEntry
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.server import mount as mount_index

KEY = "c0ffee00" * 4
NOW = 1_700_000_000.5


@dataclasses.dataclass(frozen=True)
class Site:
    """Both stores and the options that name them."""

    store: MemoryStore
    index: FlatIndex
    targets: tuple[str, ...]

    def save(self, entry_id: str, vector: Vector | None, namespace: str = "") -> None:
        ref = save(self.store, entry_id, latents(len(entry_id)), namespace=namespace)
        if vector is None:
            return
        elsewhere = dataclasses.replace(ref, store="kv.old-site:50053")
        entry = IndexEntry(
            entry_id, f"a {entry_id}", -7, (elsewhere,), 1, NOW, "minilm", {"user": "ü"}
        )
        assert self.index.upsert_entries(namespace, KEY, [VectorEntry(entry, vector)]) == [None]


@pytest.fixture
def start() -> Iterator[Callable[[], Site]]:
    with capture_logs(), ExitStack() as stack:

        def start_() -> Site:
            store, index = MemoryStore(), FlatIndex()
            kv_target = stack.enter_context(in_process_server(mount_store(store)))
            index_target = stack.enter_context(in_process_server(mount_index(index)))
            targets = ("--target", kv_target, "--vector-index-target", index_target)
            return Site(store, index, targets)

        yield start_


@pytest.fixture
def shipped(start: Callable[[], Site], tmp_path: Path) -> Path:
    """An export of three entries, one of which has no vector."""
    site = start()
    site.save("fox", np.array([3, 4, 0], np.float32))
    site.save("wolf", np.array([0, 4, 3], np.float32), namespace="team")
    site.save("silent", None)
    done = kv("export", tmp_path / "out", *site.targets, "--namespace", "", "--namespace", "team")
    assert done.exit_code == 0, done.output
    assert "2 vectors" in done.output
    return tmp_path / "out"


def kv(*words: str | Path) -> Result:
    return CliRunner().invoke(build_app(), ["kv", *map(str, words)])


def test_what_was_shipped_is_found_by_similar_requests(
    start: Callable[[], Site], shipped: Path
) -> None:
    site = start()
    done = json.loads(kv("import", shipped, *site.targets, "--json").output)
    assert (done["entries"], done["vectors"]) == (3, 2)
    ((hit,),) = site.index.search_entries("", KEY, [np.array([3, 4, 1], np.float32)], 5)
    (ref,) = hit.entry.snapshots
    assert hit.entry == IndexEntry("fox", "a fox", -7, (ref,), 1, NOW, "minilm", {"user": "ü"})
    assert hit.similarity == pytest.approx(25 / (5 * np.sqrt(26)))
    assert ref.store == ""
    assert bytes(site.store.read_latent("", ref).data) == latents(len("fox")).tobytes()
    ((other,),) = site.index.search_entries("team", KEY, [np.array([0, 4, 3], np.float32)], 5)
    assert other.entry.entry_id == "wolf"
    assert list_ids(site.store) == ["fox", "silent"]


def test_an_import_that_was_broken_off_before_a_vector_is_made_whole_by_the_next(
    start: Callable[[], Site], shipped: Path
) -> None:
    site = start()
    assert kv("import", shipped, *site.targets, "--without-vectors").exit_code == 0
    assert site.index.get_stats("").entry_count == 0
    done = json.loads(kv("import", shipped, *site.targets, "--json").output)
    assert (done["entries"], done["skipped"], done["vectors"]) == (0, 3, 2)
    done = json.loads(kv("import", shipped, *site.targets, "--json").output)
    assert (done["skipped"], done["vectors"]) == (3, 0)


def test_vectors_name_the_latents_as_a_store_that_narrows_them_has_them(
    shipped: Path, tmp_path: Path
) -> None:
    """Its checksums are those of what it gives back, not those of what was shipped."""
    with capture_logs(), ExitStack() as stack:
        store, index = LmdbStore(tmp_path / "data", codec="int8"), FlatIndex()
        stack.callback(store.close)
        kv_target = stack.enter_context(in_process_server(mount_store(store)))
        index_target = stack.enter_context(in_process_server(mount_index(index)))
        targets = ("--target", kv_target, "--vector-index-target", index_target)
        assert kv("import", shipped, *targets).exit_code == 0
        ((hit,),) = index.search_entries("", KEY, [np.array([3, 4, 1], np.float32)], 5)
        (ref,) = hit.entry.snapshots
        assert store.read_latent("", ref).ref == ref


def test_a_damaged_vector_is_told_and_not_imported(
    start: Callable[[], Site], shipped: Path
) -> None:
    path = shipped / "default" / "fox.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    site = start()
    done = kv("import", shipped, *site.targets)
    assert (done.exit_code, "vector of entry 'fox'" in done.stderr) == (1, True)
    assert site.index.get_stats("").entry_count == 0


def test_an_index_that_cannot_be_reached_is_told(start: Callable[[], Site], tmp_path: Path) -> None:
    site = start()
    site.save("fox", np.ones(3, np.float32))
    nobody = ("--vector-index-target", "127.0.0.1:1", "--timeout", "5")
    done = kv("export", tmp_path / "out", *site.targets, *nobody)
    assert (done.exit_code, "vector_index" in done.stderr) == (1, True)
    assert not (tmp_path / "out" / "manifest.json").exists()
    done = kv("export", tmp_path / "other", *site.targets, *nobody, "--without-vectors")
    assert done.exit_code == 0
