"""Makes a new data file of what can be read in one whose pages are damaged.

An entry is kept when its record, all its snapshots and all their bytes match their checksums; it is
a miss otherwise, and where nothing can be read the store is empty. Watchers of evictions get a GAP,
so that they find out by comparing.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from skipstone_latent_kv.entry_table import EntryState
from skipstone_latent_kv.lmdb_environment import LmdbEnvironment
from skipstone_latent_kv.lmdb_rows import LmdbRows, chunk_place, event_sequence, owner_of_snapshot
from skipstone_latent_kv.record_format import SnapshotRecord, decode_entry, decode_snapshot
from skipstone_shared import lmdb_file
from skipstone_shared.data_directory import DirectoryLock
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import checksum
from skipstone_shared.lmdb_file import DamagedFile
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind

_SPARE_BYTES = 16 << 20


def rescue(path: Path, damage: DataCorrupt) -> None:
    """Puts a sound data file in the place of a damaged one, which is kept beside it.

    Args:
        path: Directory that no process uses.
        damage: What is wrong with its file.

    Raises:
        FailedPrecondition: the disk has no room for the new file, or another version of LMDB has
            written the damaged one.
    """
    file, fresh = path / "data.mdb", path / "rescued"
    lock = DirectoryLock(path)
    try:
        shutil.rmtree(fresh, ignore_errors=True)  # Left by a process that was killed in here.
        size_bytes = file.stat().st_size
        lmdb_file.rescue(
            file,
            damage.message,
            fresh / "data.mdb",
            lambda damaged: _copy(damaged, fresh, size_bytes),
        )
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        lock.release()


def _copy(damaged: DamagedFile, directory: Path, size_bytes: int) -> tuple[int, int]:
    """Copies what is sound into a new environment; returns how many entries were and were not."""
    snapshots: dict[bytes, list[SnapshotRecord | None]] = {}
    for row, data in damaged.rows("snapshots"):
        snapshots.setdefault(owner_of_snapshot(row), []).append(_snapshot(row, data))
    chunks = {chunk_place(row): data for row, data in damaged.rows("chunks")}
    last_sequence = max((event_sequence(row) for row, _ in damaged.rows("events")), default=0)
    # Forced onto the disk as a whole when it is closed: nobody uses it before.
    environment = LmdbEnvironment(directory, 2 * size_bytes + _SPARE_BYTES, sync=False)
    try:
        writer = _Writer(environment)
        kept = lost = 0
        for row, data in damaged.rows("entries"):
            try:
                state = decode_entry(row, data)
                writer.write(state, _values(state, snapshots.get(row, []), chunks))
                kept += 1
            except DataCorrupt:
                lost += 1
        # The last events may be among what is lost. No store comes to as many as there are
        # milliseconds, so the gap lies behind every number that a watcher has seen.
        writer.write_gap(max(last_sequence + 1, int(time.time() * 1000)))
    finally:
        environment.close()
    return kept, lost


class _Writer:
    """Writes entries into an empty environment."""

    def __init__(self, environment: LmdbEnvironment) -> None:
        self._environment = environment
        self._rows = LmdbRows(environment)
        self._value_ids = itertools.count(1)

    def write(self, state: EntryState, values: Sequence[tuple[SnapshotRecord, bytes]]) -> None:
        with self._environment.write() as txn:
            for record, value in values:
                moved = dataclasses.replace(record, value_id=next(self._value_ids))
                self._rows.put_value(txn, moved.value_id, memoryview(value))
                self._rows.put_snapshot(txn, state.key, moved)
            self._rows.put_entry(txn, state)

    def write_gap(self, sequence: int) -> None:
        with self._environment.write() as txn:
            self._rows.put_events(txn, [EvictionEvent(sequence, EvictionKind.GAP)], keep=1)


def _snapshot(row: bytes, data: memoryview) -> SnapshotRecord | None:
    try:
        return decode_snapshot(row, data)
    except DataCorrupt:
        return None


def _values(
    state: EntryState,
    records: Sequence[SnapshotRecord | None],
    chunks: Mapping[tuple[int, int] | None, memoryview],
) -> list[tuple[SnapshotRecord, bytes]]:
    """The snapshots of an entry with their bytes.

    Raises:
        DataCorrupt: one is not there or not what was written.
    """
    values = []
    for record in records:
        if record is None:
            raise DataCorrupt("a snapshot record is damaged")
        found, number = [], 0
        while (chunk := chunks.get((record.value_id, number))) is not None:
            found.append(chunk)
            number += 1
        value = b"".join(found)
        if len(value) != record.value_bytes or checksum(value) != record.value_xxh3_64:
            raise DataCorrupt("the bytes of a snapshot do not match their checksum")
        values.append((record, value))
    if (state.snapshot_count, state.size_bytes) != (len(values), sum(len(v) for _, v in values)):
        raise DataCorrupt("a snapshot is missing")
    return values
