"""What is durable, and what start-up says about a directory that cannot be used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from tests.full_disk import largest_file

from skipstone_shared.errors import DataCorrupt, FailedPrecondition, ResourceExhausted
from skipstone_shared.index_entries import IndexEntry
from skipstone_shared.latents import DType, LatentRef, TensorSpec
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.record_codec import decode_record, encode_record, make_record
from skipstone_vector_index.record_log import Changes, RecordLog

DISK_BYTES = 1 << 26
WRITER = Path(__file__).with_name("endless_writer.py")

REF = LatentRef("ns", "e", 3, spec=TensorSpec(DType.FLOAT16, (1, 2)), xxh3_64=2**63 + 1, sigma=0.5)
ENTRY = IndexEntry("id.1", "käse", -5, (REF,), 2, 1.5, "model/ü", {"a": "b"})
UNIT = np.array([0.6, 0.8], np.float32)


ROW = (1).to_bytes(4, "big") + (7).to_bytes(8, "big")
"""Key of a record: partition and label."""


def open_log(path: Path) -> RecordLog:
    return RecordLog(path, DISK_BYTES, fsync=False)


def test_a_record_keeps_every_field() -> None:
    record = decode_record(encode_record(make_record(ENTRY, UNIT, revision=2**40), ROW), ROW)
    assert record.entry() == ENTRY
    assert record.revision == 2**40
    assert record.vector.tolist() == UNIT.tolist()


def test_a_record_with_any_damaged_byte_is_refused() -> None:
    good = encode_record(make_record(ENTRY, UNIT, revision=1), ROW)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x40
        with pytest.raises(DataCorrupt):
            decode_record(bytes(bad), ROW)
    for size in (0, 7, 31, len(good) - 1):
        with pytest.raises(DataCorrupt):
            decode_record(good[:size], ROW)


def test_a_record_under_another_key_than_its_own_is_refused() -> None:
    """A bit that flips in a key would else give an entry to another namespace."""
    good = encode_record(make_record(ENTRY, UNIT, revision=1), ROW)
    for bit in range(8 * len(ROW)):
        key = bytearray(ROW)
        key[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataCorrupt):
            decode_record(good, bytes(key))


def test_a_write_is_there_after_reopening_and_a_delete_gone(tmp_path: Path) -> None:
    records = {(1, n): make_record(IndexEntry(f"e{n}"), UNIT, n) for n in (1, 2, 3)}
    with open_log(tmp_path) as log:
        log.write(Changes(3, put=records, add_partitions={1: ("ns", "key")}))
        log.write(Changes(4, delete=[(1, 2)]))
    with open_log(tmp_path) as log:
        assert [record.entry_id for _, record in log.records()] == ["e1", "e3"]
        assert log.partitions() == {1: ("ns", "key")}
        assert log.sequence() == 4


def test_a_view_does_not_change_under_later_writes(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write(Changes(1, put={(1, 1): make_record(ENTRY, UNIT, 1)}))
        with log.reading() as view:
            log.write(Changes(2, delete=[(1, 1)]))
            assert view.get((1, 1)) is not None
        with log.reading() as view:
            assert view.get((1, 1)) is None


def test_keys_of_several_partitions_come_by_label(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        keys = [(1, 1), (1, 4), (2, 2), (2, 5), (3, 3)]
        log.write(Changes(5, put={key: make_record(ENTRY, UNIT, key[1]) for key in keys}))
        with log.reading() as view:
            assert list(view.keys([2, 1], 1, 4)) == [(2, 2), (1, 4)]


def test_a_damaged_record_is_never_served_and_goes_at_the_next_start(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        put = {(1, n): make_record(IndexEntry(f"e{n}", prompt="p" * 9), UNIT, n) for n in (1, 2)}
        log.write(Changes(2, put=put, add_partitions={1: ("default", "key")}))
    env = lmdb.open(str(tmp_path / "records.mdb"), subdir=False, max_dbs=3)
    entries = env.open_db(b"entries")
    with env.begin(write=True, db=entries) as txn:
        key, value = next(iter(txn.cursor()))
        txn.put(bytes(key), bytes(value).replace(b"ppp", b"qqq"))
    env.close()
    with open_log(tmp_path) as log, log.reading() as view:
        assert view.get((1, 1)) is None
    index = HnswIndex(open_log(tmp_path))
    assert index.get_stats("").entry_count == 1
    index.close()
    with open_log(tmp_path) as log:
        assert [key for key, _ in log.records()] == [(1, 2)]


def test_a_second_process_on_the_directory_is_refused(tmp_path: Path) -> None:
    with open_log(tmp_path), pytest.raises(FailedPrecondition, match="in use by process"):
        open_log(tmp_path)
    open_log(tmp_path).close()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a directory")
    with pytest.raises(FailedPrecondition, match=f"cannot write to data_dir {occupied}"):
        open_log(occupied)
    with pytest.raises(FailedPrecondition, match="cannot write to data_dir"):
        open_log(occupied / "below")


def test_a_file_that_is_no_database_is_refused_and_the_directory_left_free(tmp_path: Path) -> None:
    (tmp_path / "records.mdb").write_bytes(b"something else" * 1000)
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="cannot be opened"):
            open_log(tmp_path)


def test_a_disk_that_is_full_is_told_as_such_and_loses_nothing(tmp_path: Path) -> None:
    """LMDB calls a short write an input/output error, which must not look like a bug of ours."""
    big = make_record(IndexEntry("big", prompt="p" * 20_000), UNIT, 2)
    with open_log(tmp_path) as log:
        log.write(Changes(1, put={(1, 1): make_record(ENTRY, UNIT, 1)}))
        with largest_file(4096), pytest.raises(ResourceExhausted, match="disk is full"):
            log.write(Changes(2, put={(1, 2): big}))
        log.write(Changes(3, put={(1, 3): big}))
        assert [key for key, _ in log.records()] == [(1, 1), (1, 3)]


def test_another_format_is_refused(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    env = lmdb.open(str(tmp_path / "records.mdb"), subdir=False, max_dbs=3)
    with env.begin(write=True, db=env.open_db(b"meta")) as txn:
        txn.put(b"format", (7).to_bytes(4, "big"))
    env.close()
    with pytest.raises(FailedPrecondition, match="has format 7, this version reads up to 3"):
        open_log(tmp_path)


@pytest.mark.parametrize("acknowledged", [3, 40])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, acknowledged: int) -> None:
    """The writer prints a line after each acknowledged call and is killed in the middle of one."""
    root = Path(__file__).parents[3]
    paths = [str(root / name) for name in ("protos", "services", "shared")]
    process = subprocess.Popen(
        [sys.executable, str(WRITER), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(acknowledged)]
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    process.wait()
    process.stdout.close()

    index = HnswIndex(open_log(tmp_path))
    ids = {entry.entry_id for entry in index.list_entries("", page_size=1000).entries}
    last = int(lines[-1])
    # Call n writes n and n.b and deletes (n-1).b; the one after the last may have gone through.
    wanted = {str(n) for n in range(last + 1)} | {f"{last}.b"}
    one_more = {str(n) for n in range(last + 2)} | {f"{last + 1}.b"}
    written = wanted | {str(last + 1), f"{last + 1}.b"}
    assert ids in (wanted, written, one_more)
    found = index.search_entries("", "key", [np.array([1, last], np.float32)], 1)[0]
    assert found[0].similarity == pytest.approx(1.0)
    index.close()


@pytest.mark.parametrize("fsync", [True, False])
def test_fsync_means_that_no_acknowledged_write_waits_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    """LMDB without `metasync` may lose the last write with the machine."""
    opened: list[lmdb.Environment] = []
    real_open = lmdb.open

    def spy(*args: Any, **options: Any) -> lmdb.Environment:
        opened.append(real_open(*args, **options))
        return opened[-1]

    monkeypatch.setattr(lmdb, "open", spy)
    with RecordLog(tmp_path, DISK_BYTES, fsync=fsync):
        (environment,) = opened
        flags = environment.flags()
    assert (flags["sync"], flags["metasync"]) == (fsync, True)
