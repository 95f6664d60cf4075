"""A record log that was damaged anywhere: no false entry, no crash, and what is sound is kept."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.unit.file_damage import (
    META_PAGES,
    PAGE,
    Damage,
    cut_off,
    flip,
    flip_in_a_page_header,
    garble_a_page,
)

from skipstone_shared.errors import DataCorrupt, FailedPrecondition
from skipstone_shared.index_entries import IndexEntry, Vector, VectorEntry
from skipstone_shared.lmdb_file import DamagedFile, check_pages
from skipstone_vector_index import log_rescue
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.partition_codec import decode_partition, encode_partition
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.vector_form import Metric

KEYS = ("a1" * 16, "b2" * 16)
DISK_BYTES = 1 << 26
PER_KEY = 60
LEAF = 2

Found = dict[str, tuple[str, int]]
"""Compatibility key and seed of entries."""


def open_index(path: Path) -> HnswIndex:
    return HnswIndex(RecordLog(path, DISK_BYTES, fsync=False))


def vector(seed: int) -> Vector:
    return np.random.default_rng(seed).standard_normal(64).astype(np.float32)


def put(index: HnswIndex, key: str, *seeds: int) -> None:
    entries = [VectorEntry(IndexEntry(f"e{seed}", seed=seed), vector(seed)) for seed in seeds]
    assert index.upsert_entries("", key, entries) == [None] * len(entries)


def found_in(index: HnswIndex) -> Found:
    """All entries; that each is found by its own vector and under its own key is checked."""
    found: Found = {}
    for key in KEYS:
        entries = index.list_entries("", key, 1000).entries
        for entry in entries:
            assert entry.entry_id == f"e{entry.seed}"
            (hits,) = index.search_entries("", key, [vector(entry.seed)], 1)
            assert (hits[0].entry.seed, round(hits[0].similarity, 3)) == (entry.seed, 1.0)
            found[entry.entry_id] = key, entry.seed
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Found]:
    path = tmp_path_factory.mktemp("sound")
    index = open_index(path)
    for number, key in enumerate(KEYS):
        for start in range(number * PER_KEY, (number + 1) * PER_KEY, 10):
            put(index, key, *range(start, start + 10))
    index.delete_entries("", [f"e{seed}" for seed in range(0, 2 * PER_KEY, 7)])
    found = found_in(index)
    index.close()
    return (path / "records.mdb").read_bytes(), found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("damage", [flip, flip_in_a_page_header, garble_a_page, cut_off])
def test_a_damaged_log_serves_only_what_was_stored(
    tmp_path: Path, filled: tuple[bytes, Found], damage: Damage, seed: int
) -> None:
    sound, stored = filled
    data = bytearray(sound)
    damage(data, random.Random(seed))
    (tmp_path / "records.mdb").write_bytes(data)
    with capture_logs():
        index = open_index(tmp_path)
        left = found_in(index)
        assert left.items() <= stored.items()
        put(index, KEYS[0], 1000, 1001)
        index.close()
        index = open_index(tmp_path)
    new = {"e1000": (KEYS[0], 1000), "e1001": (KEYS[0], 1001)}
    assert found_in(index) == left | new
    index.close()


def test_what_can_be_read_is_kept_and_the_damaged_file_too(
    tmp_path: Path, filled: tuple[bytes, Found]
) -> None:
    sound, stored = filled
    file = tmp_path / "records.mdb"
    for start in range(META_PAGES * PAGE, len(sound), PAGE):
        file.write_bytes(sound[:start] + bytes(PAGE) + sound[start + PAGE :])
        if sound[start + 10] == LEAF:
            with suppress(DataCorrupt):
                check_pages(file)
                continue
            with capture_logs() as logs, suppress(FailedPrecondition):
                index = open_index(tmp_path)
                break
    kept = found_in(index)
    index.close()
    (told,) = [line for line in logs if line["event"].startswith("data file was damaged")]
    assert told["entries_kept"] == len(kept) < len(stored)
    assert (tmp_path / "records.mdb.damaged").stat().st_size == len(sound)
    assert sorted(path.name for path in tmp_path.glob("*rescued*")) == []


def test_the_configured_metric_is_taken_where_the_log_cannot_tell_it_any_more(
    tmp_path: Path,
) -> None:
    """Else what was saved would be refused at every start, as vectors for cosine."""

    def open_log() -> RecordLog:
        return RecordLog(tmp_path, DISK_BYTES, fsync=False, metric=Metric.INNER_PRODUCT)

    index = HnswIndex(open_log())
    put(index, KEYS[0], 1, 2)
    index.close()
    file = tmp_path / "records.mdb"
    sound = file.read_bytes()
    for start in range(META_PAGES * PAGE, len(sound), PAGE):
        if sound[start + 10] == LEAF and b"metric" in sound[start : start + PAGE]:
            file.write_bytes(sound[:start] + bytes(PAGE) + sound[start + PAGE :])
            with suppress(DataCorrupt):
                check_pages(file)
                continue
            break
    with capture_logs() as logs:
        index = HnswIndex(open_log())
    assert logs[0]["entries_kept"] == 2
    assert {entry.seed for entry in index.list_entries("", KEYS[0]).entries} == {1, 2}
    index.close()


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_record_that_was_replaced_does_not_take_the_place_of_the_new_one(
    tmp_path: Path,
    filled: tuple[bytes, Found],
    monkeypatch: pytest.MonkeyPatch,
    newest_first: bool,
) -> None:
    """A flipped bit in a branch page may lead to a leaf of before, whose checksums are right."""
    before, now = tmp_path / "before.mdb", tmp_path / "records.mdb"
    now.write_bytes(filled[0])
    for file, prompt in ((before, "long " * 3000), (now, "new")):
        index = open_index(tmp_path)
        changed = VectorEntry(IndexEntry("e1", prompt, seed=1), vector(1))
        assert index.upsert_entries("", KEYS[0], [changed]) == [None]
        index.close()
        file.write_bytes(now.read_bytes())
    files = (now, before) if newest_first else (before, now)

    class Both(DamagedFile):
        def rows(self, table: str) -> Iterator[tuple[bytes, memoryview]]:
            return itertools.chain.from_iterable(DamagedFile(file).rows(table) for file in files)

    def damaged(file: Path) -> None:
        raise DataCorrupt("damaged")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(log_rescue, "check_pages", damaged)
        patched.setattr(log_rescue, "DamagedFile", Both)
        index = open_index(tmp_path)
    assert index.get_entry("", "e1").entry.prompt == "new"
    assert logs[0]["entries_kept"] == len(found_in(index)) == len(filled[1])
    index.close()
    check_pages(now)


@pytest.mark.parametrize("size", [1, PAGE - 1, META_PAGES * PAGE])
def test_a_log_of_which_nothing_can_be_read_is_empty_and_tells_it(
    tmp_path: Path, filled: tuple[bytes, Found], size: int
) -> None:
    file = tmp_path / "records.mdb"
    file.write_bytes(filled[0][:size])
    with capture_logs() as logs:
        index = open_index(tmp_path)
    assert "error" in {line["log_level"] for line in logs}
    assert file.with_name("records.mdb.damaged").read_bytes() == filled[0][:size]
    put(index, KEYS[0], 1000)
    assert found_in(index) == {"e1000": (KEYS[0], 1000)}
    index.close()


@pytest.mark.parametrize("page", range(META_PAGES))
@pytest.mark.parametrize("bit", [0, 2, 9, 40])
def test_a_damaged_meta_page_costs_what_the_last_commit_added(
    tmp_path: Path, filled: tuple[bytes, Found], page: int, bit: int
) -> None:
    sound, stored = filled
    data = bytearray(sound)
    data[page * PAGE + 144 + bit // 8] ^= 1 << bit % 8
    (tmp_path / "records.mdb").write_bytes(data)
    with capture_logs():
        index = open_index(tmp_path)
    assert found_in(index) == stored, "the last commit has only removed entries"
    index.close()


def test_after_an_orderly_close_the_pages_may_be_taken_as_they_are(
    tmp_path: Path, filled: tuple[bytes, Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "records.mdb"
    file.write_bytes(filled[0])
    looked_at: list[Path] = []
    monkeypatch.setattr(log_rescue, "check_pages", looked_at.append)
    for _ in range(2):
        log = RecordLog(tmp_path, DISK_BYTES, page_check="after_crash")
        assert looked_at == [file], "only once, when nobody said that it was closed in order"
        log.close()


def alter(path: Path, table: bytes, change: Callable[[Any], None]) -> None:
    """Changes a table of a closed log behind everybody's back."""
    env = lmdb.open(str(path / "records.mdb"), subdir=False, max_dbs=3, map_size=DISK_BYTES)
    with env.begin(write=True, db=env.open_db(table)) as txn:
        change(txn)
    env.close()


@pytest.mark.parametrize("damage", [b"}", b'["default", "' + b"c3" * 16 + b'", "0"]', b"[1]", b"7"])
def test_entries_of_a_partition_with_damaged_names_are_offered_to_nobody(
    tmp_path: Path, filled: tuple[bytes, Found], damage: bytes
) -> None:
    sound, stored = filled
    (tmp_path / "records.mdb").write_bytes(sound)
    alter(tmp_path, b"partitions", lambda txn: txn.put((1).to_bytes(4, "big"), damage))
    with capture_logs():
        index = open_index(tmp_path)
    assert found_in(index) == {i: entry for i, entry in stored.items() if entry[0] == KEYS[1]}
    assert index.list_namespaces().namespaces == ("default",)
    assert index.get_stats("").entry_count == len(found_in(index))
    put(index, KEYS[0], 1000)
    index.close()
    index = open_index(tmp_path)
    assert found_in(index)["e1000"] == (KEYS[0], 1000)
    index.close()


def test_a_number_is_never_given_twice_though_the_last_one_is_damaged(
    tmp_path: Path, filled: tuple[bytes, Found]
) -> None:
    """A second entry of one number would take the place of the first."""
    sound, stored = filled
    (tmp_path / "records.mdb").write_bytes(sound)
    alter(tmp_path, b"meta", lambda txn: txn.put(b"sequence", (3).to_bytes(8, "big")))
    index = open_index(tmp_path)
    put(index, KEYS[0], *range(1000, 1010))
    index.close()
    index = open_index(tmp_path)
    assert stored.items() <= found_in(index).items()
    index.close()


def test_names_of_earlier_versions_have_no_checksum() -> None:
    assert decode_partition(3, b'["default", "k"]') == ("default", "k")
    with pytest.raises(DataCorrupt):
        decode_partition(4, encode_partition(3, ("default", "k")))


def test_a_record_with_a_key_that_is_none_is_removed(
    tmp_path: Path, filled: tuple[bytes, Found]
) -> None:
    sound, stored = filled
    (tmp_path / "records.mdb").write_bytes(sound)

    def lengthen(txn: Any) -> None:
        cursor = txn.cursor()
        cursor.last()
        value = bytes(cursor.value())
        cursor.delete()
        txn.put((2).to_bytes(4, "big") + b"\xff" * 9, value)

    alter(tmp_path, b"entries", lengthen)
    alter(tmp_path, b"partitions", lambda txn: txn.put(b"12345", b"[]"))
    with capture_logs():
        index = open_index(tmp_path)
    left = found_in(index)
    assert left.items() < stored.items()
    assert len(left) == len(stored) - 1
    index.close()


@pytest.mark.parametrize("name", [b"sequence", b"format"])
def test_a_number_of_the_log_that_is_none_loses_nothing(
    tmp_path: Path, filled: tuple[bytes, Found], name: bytes
) -> None:
    sound, stored = filled
    (tmp_path / "records.mdb").write_bytes(sound)
    alter(tmp_path, b"meta", lambda txn: txn.put(name, b"123"))
    if name == b"format":
        with pytest.raises(FailedPrecondition, match="restore the file, or start with"):
            open_index(tmp_path)
        return
    index = open_index(tmp_path)
    put(index, KEYS[0], 1000)
    assert stored.items() < found_in(index).items()
    index.close()
