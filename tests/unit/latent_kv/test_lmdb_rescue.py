"""A data file that was damaged anywhere: never a wrong byte, never half an entry, never a crash."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb
import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import Write, latents, list_all, list_ids, save
from tests.unit.file_damage import (
    META_PAGES,
    PAGE,
    Damage,
    cut_off,
    flip,
    flip_in_a_page_header,
    garble_a_page,
)

from skipstone_latent_kv import lmdb_environment
from skipstone_latent_kv.data_check import verify
from skipstone_latent_kv.lmdb_environment import LmdbEnvironment
from skipstone_latent_kv.lmdb_rows import LmdbRows
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_shared import lmdb_file
from skipstone_shared.data_directory import DirectoryLock
from skipstone_shared.errors import DataCorrupt, FailedPrecondition, LatentNotFound
from skipstone_shared.latents import checksum
from skipstone_shared.lmdb_file import check_pages
from skipstone_shared.stored_entries import EvictionKind

LEAF = 2
MAP_BYTES = 1 << 20
STEPS = (0, 3, 7)


def zero_a_page(data: bytearray, rng: random.Random) -> None:
    start = PAGE * rng.randrange(META_PAGES, len(data) // PAGE)
    data[start : start + PAGE] = bytes(PAGE)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, set[int]]]:
    """The data file of a store that has seen removals; checksums of what is in it by entry."""
    path = tmp_path_factory.mktemp("sound")
    store = LmdbStore(path, initial_map_bytes=MAP_BYTES)
    written: dict[str, set[int]] = {}
    for number in range(30):
        entry_id = f"e{number}"
        for step in STEPS:
            write = Write.of(entry_id, latents(10 * number + step, 2000 * (1 + number % 9)), step)
            write.to(store)
            written.setdefault(entry_id, set()).add(write.xxh3_64)
        store.commit_entry("", entry_id)
    gone = [f"e{number}" for number in range(0, 30, 7)]
    store.delete_entries("", gone)
    store.close()
    left = {entry_id: sums for entry_id, sums in written.items() if entry_id not in gone}
    return (path / "data.mdb").read_bytes(), left


def check_store(store: LmdbStore, written: dict[str, set[int]]) -> None:
    """Everything that is listed is whole and as it was written, or is gone once it was read."""
    for entry in list_all(store):
        try:
            found = {checksum(store.read_latent("", s.ref).data) for s in entry.snapshots}
        except LatentNotFound:
            assert entry.entry_id not in list_ids(store)
        else:
            assert found == written[entry.entry_id]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "damage", [flip, flip_in_a_page_header, zero_a_page, garble_a_page, cut_off]
)
def test_a_damaged_file_is_never_served_from(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]], damage: Damage, seed: int
) -> None:
    sound, written = filled
    data = bytearray(sound)
    damage(data, random.Random(seed))
    (tmp_path / "data.mdb").write_bytes(data)
    with capture_logs():
        store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
        check_store(store, written)
        save(store, "new", latents(99, 20_000))
        store.delete_entries("", list(written))
        assert list_ids(store) == ["new"]
        store.close()
    assert verify(tmp_path).problems == ()


ROOT = 128
META_FIELDS = (16, 40, ROOT, 136, 144)
"""Magic, page size, root, last page and number of the commit."""

UNSEEN = (1, 144, 1)
"""The number of the last commit, less two: the one bit that makes it look like an older one."""


@pytest.mark.parametrize(
    ("page", "place", "bit"),
    [
        hit
        for hit in itertools.product((0, 1), META_FIELDS, (0, 1, 3, 7, 13, 31, 63))
        if hit != UNSEEN
    ],
)
def test_a_damaged_meta_page_brings_nothing_back_that_was_deleted(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]], page: int, place: int, bit: int
) -> None:
    """LMDB would take the commit before."""
    sound, written = filled
    data = bytearray(sound)
    data[page * PAGE + place + bit // 8] ^= 1 << bit % 8
    (tmp_path / "data.mdb").write_bytes(data)
    with capture_logs():
        store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
        kept = set(list_ids(store))
        # Its root is told nowhere else, and that of the other page is of an older commit.
        assert kept in ([set(written), set()] if place == ROOT else [set(written)])
        check_store(store, written)
        store.close()


def zero_a_leaf(sound: bytes, file: Path) -> None:
    """Damages a page with rows of entries that hangs on the tree; the tables are still found."""
    for start in range(META_PAGES * PAGE, len(sound), PAGE):
        if sound[start + 10] == LEAF and b"default\0e" in sound[start : start + PAGE]:
            file.write_bytes(sound[:start] + bytes(PAGE) + sound[start + PAGE :])
            with suppress(DataCorrupt):
                check_pages(file)
                continue
            return
    raise AssertionError("no such page")


def test_the_damaged_file_is_kept_and_told_of(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_file, "_TOLD_FROM_BYTES", 1)
    sound, written = filled
    zero_a_leaf(sound, tmp_path / "data.mdb")
    damaged = (tmp_path / "data.mdb").read_bytes()
    (problem,) = verify(tmp_path).problems
    assert "is damaged" in problem
    with capture_logs() as logs:
        store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
    kept = len(list_ids(store))
    store.close()
    assert (tmp_path / "data.mdb.damaged").read_bytes() == damaged
    assert any("damaged file is copied" in line["event"] for line in logs)
    (told,) = [line for line in logs if line["event"].startswith("data file was damaged")]
    assert told["entries_kept"] == kept < len(written)
    assert not (tmp_path / "rescued").exists()


def test_watchers_learn_that_entries_may_be_gone(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]]
) -> None:
    sound, _ = filled
    zero_a_leaf(sound, tmp_path / "data.mdb")
    with capture_logs():
        store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
    watch = store.watch_evictions("", after_sequence=3)
    assert next(watch).kind is EvictionKind.GAP
    store.close()


@pytest.mark.parametrize("size", [1, 100, PAGE - 1, META_PAGES * PAGE])
def test_a_store_of_which_nothing_can_be_read_is_empty_and_tells_it(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]], size: int
) -> None:
    (tmp_path / "data.mdb").write_bytes(filled[0][:size])
    with capture_logs() as logs:
        store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
    assert [line["log_level"] for line in logs] == ["error"]
    assert (tmp_path / "data.mdb.damaged").read_bytes() == filled[0][:size]
    assert list_ids(store) == []
    save(store, "new", latents(99, 20_000))
    # Whatever a watcher has seen before, its number lies before the gap.
    assert next(store.watch_evictions("", after_sequence=3)).kind is EvictionKind.GAP
    store.close()


def test_a_file_of_another_version_of_lmdb_is_left_alone(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]]
) -> None:
    data = bytearray(filled[0])
    for page in range(META_PAGES):
        data[page * PAGE + 20] = 2
    (tmp_path / "data.mdb").write_bytes(data)
    with pytest.raises(FailedPrecondition, match="format 2 of LMDB; this version reads 1"):
        LmdbStore(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == data
    DirectoryLock(tmp_path).release()


def test_after_an_orderly_close_the_pages_may_be_taken_as_they_are(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.mdb").write_bytes(filled[0])
    looked_at: list[Path] = []
    monkeypatch.setattr(lmdb_environment, "check_pages", looked_at.append)

    def open_store() -> LmdbStore:
        return LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES, page_check="after_crash")

    open_store().close()
    assert looked_at == [tmp_path / "data.mdb"], "nobody says that it was closed in order"
    open_store().close()
    assert len(looked_at) == 1


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    """A process that was killed before it wrote anything leaves one."""
    (tmp_path / "data.mdb").touch()
    store = LmdbStore(tmp_path)
    assert list_ids(store) == []
    store.close()


def test_what_a_killed_rescue_left_is_in_nobodys_way(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]]
) -> None:
    zero_a_leaf(filled[0], tmp_path / "data.mdb")
    (tmp_path / "rescued").mkdir()
    shutil.copy(tmp_path / "data.mdb", tmp_path / "rescued" / "data.mdb")
    with capture_logs():
        LmdbStore(tmp_path).close()
    assert verify(tmp_path).problems == ()


def alter(path: Path, table: bytes, change: Callable[[Any], None]) -> None:
    """Changes a table of a closed store behind everybody's back."""
    env = lmdb.open(str(path), max_dbs=16, map_size=1 << 26)
    with env.begin(write=True, db=env.open_db(table)) as txn:
        change(txn)
    env.close()


@pytest.mark.parametrize("hole", [(3).to_bytes(8, "big"), b"too long for a number"])
def test_a_hole_in_the_list_of_removals_is_a_gap_to_those_behind_it(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]], hole: bytes
) -> None:
    (tmp_path / "data.mdb").write_bytes(filled[0])

    def make_hole(txn: Any) -> None:
        txn.delete((3).to_bytes(8, "big"))
        if len(hole) > 8:
            txn.put((2).to_bytes(8, "big") + hole, b"deleted\0default\0e7")

    alter(tmp_path, b"events", make_hole)
    store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
    watch = store.watch_evictions("", after_sequence=1)
    assert (next(watch).kind, watch.position) == (EvictionKind.GAP, 3)
    assert [next(watch).sequence for _ in range(2)] == [4, 5]
    store.delete_entries("", ["e1"])
    assert next(watch).entry_id == "e1"
    store.close()


def test_a_chunk_with_a_key_that_is_none_is_in_nobodys_way(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]]
) -> None:
    sound, written = filled
    (tmp_path / "data.mdb").write_bytes(sound)
    alter(tmp_path, b"chunks", lambda txn: txn.put(b"\xff" * 7, b"?"))
    store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
    check_store(store, written)
    assert len(list_ids(store)) == len(written)
    ref = save(store, "new", latents(99, 20_000))
    assert checksum(store.read_latent("", ref).data) == ref.xxh3_64
    store.close()
    assert verify(tmp_path).problems == ()


def test_a_removal_behind_a_key_that_is_none_is_told_after_a_restart(
    tmp_path: Path, filled: tuple[bytes, dict[str, set[int]]]
) -> None:
    (tmp_path / "data.mdb").write_bytes(filled[0])
    alter(tmp_path, b"events", lambda txn: txn.put(b"\xff" * 9, b"deleted\0default\0e7"))
    store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
    watch = store.watch_evictions("")
    store.delete_entries("", ["e1"])
    event = next(watch)
    store.close()
    store = LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES)
    assert event.sequence > 1
    assert next(store.watch_evictions("", event.sequence - 1)) == event
    store.close()


def test_a_long_record_that_is_replaced_in_the_commit_that_wrote_it_is_no_damage(
    tmp_path: Path,
) -> None:
    """Writers of one step may share a commit; LMDB then keeps the pages of the first record."""
    short = Write.of("e").metadata
    long = dataclasses.replace(short, scheduler_state_json=json.dumps({"betas": "0" * 12_000}))
    environment = LmdbEnvironment(tmp_path, MAP_BYTES, sync=True)
    rows = LmdbRows(environment)
    with environment.write() as txn:
        for value_id, metadata in enumerate((long, short), 1):
            rows.put_snapshot(txn, ("default", "e"), SnapshotRecord(metadata, 0, value_id))
    environment.close()
    check_pages(tmp_path / "data.mdb")


def test_a_disk_that_cannot_be_read_stops_the_start_and_frees_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad_sector(*_: object, **__: object) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    LmdbStore(tmp_path, initial_map_bytes=MAP_BYTES).close()
    monkeypatch.setattr(lmdb_file.verify, "verify", bad_sector)
    with pytest.raises(FailedPrecondition, match=r"Input/output error.*restore it or start with"):
        LmdbStore(tmp_path)
    DirectoryLock(tmp_path).release()
