"""The rows of the LMDB store and the tables they are in.

| table     | key                                   | value                        |
|-----------|---------------------------------------|------------------------------|
| entries   | namespace, 0, entry id                | entry record                 |
| snapshots | namespace, 0, entry id, 0, step (4)   | snapshot record              |
| chunks    | value id (8), number (4)              | latent bytes, CHUNK_BYTES    |
| events    | sequence (8)                          | kind, 0, namespace, 0, id    |
| meta      | "format"                              | version of this layout       |

Numbers are big-endian, so that keys sort as numbers. Latent bytes are apart from the records, so
that listing and eviction touch no latents; they are cut into chunks since LMDB needs contiguous
pages for a value, and short runs are found among freed pages where long ones would make the file
grow. Value ids are never reused, so chunks are always appended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from skipstone_latent_kv.entry_table import EntryKey, EntryState
from skipstone_latent_kv.lmdb_environment import LmdbEnvironment, Transaction
from skipstone_latent_kv.record_format import (
    SnapshotRecord,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from skipstone_shared.errors import DataCorrupt, FailedPrecondition
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind

CHUNK_BYTES = (1 << 20) - 16
"""1 MiB less LMDB's 16-byte page header: exactly 256 pages. Measured against 256 KiB under constant
eviction of sizes from 50 kB to 10 MB: the same 5 % more on disk than in the snapshots, and a read
of 9.7 MB takes two thirds of the time (each row costs a hand-over of Python's lock)."""

_FORMAT = b"2"
_READABLE = (b"1", b"2")
"""Layout 2 has the tables of layout 1 and newer records in them, which a program that knows only
layout 1 would take for damaged and remove."""

_STEP = struct.Struct(">I")
_CHUNK = struct.Struct(">QI")
_SEQUENCE = struct.Struct(">Q")


class LmdbRows:
    """Reads and writes rows; every method takes the transaction it works in."""

    def __init__(self, environment: LmdbEnvironment, *, for_writing: bool = True) -> None:
        """Opens the tables.

        Args:
            environment: Where they are.
            for_writing: Whether rows will be written: they are of this program's layout then.

        Raises:
            FailedPrecondition: the data are in a layout of a newer program.
        """
        self._entries = environment.open_table("entries")
        self._snapshots = environment.open_table("snapshots")
        self._chunks = environment.open_table("chunks")
        self._events = environment.open_table("events")
        self._meta = environment.open_table("meta")
        with environment.write() as txn:
            found = bytes(txn.get(b"format", db=self._meta) or _FORMAT)
            if found not in _READABLE:
                raise FailedPrecondition(
                    f"the data in data_dir have layout {found.decode('ascii', 'replace')}, this "
                    f"program knows {_FORMAT.decode()}; use the program that wrote them or an "
                    "empty data_dir"
                )
            if for_writing:
                self.put_format(txn)

    def put_format(self, txn: Transaction) -> None:
        """Notes that rows are in the layout of this program."""
        txn.put(b"format", _FORMAT, db=self._meta)

    def put_entry(self, txn: Transaction, state: EntryState) -> None:
        """Writes an entry record."""
        row = _entry_row(state.key)
        txn.put(row, encode_entry(row, state), db=self._entries)

    def entries(self, txn: Transaction) -> Iterator[tuple[bytes, EntryState | None]]:
        """Row key and state of all entries; None in place of a record that is damaged."""
        for raw, record in txn.cursor(db=self._entries):
            row = bytes(raw)
            try:
                yield row, decode_entry(row, record)
            except DataCorrupt:
                yield row, None

    def entry_ids_after(self, txn: Transaction, namespace: str, after: str) -> Iterator[str]:
        """Ids of a namespace in ascending order, those after ``after``; empty for all."""
        prefix = namespace.encode() + b"\0"
        # No id holds a byte 0, so this key lies directly behind the one of ``after``.
        start = prefix + after.encode() + b"\0" if after else prefix
        for raw, _ in _from(txn.cursor(db=self._entries), start):
            key = bytes(raw)
            if not key.startswith(prefix):
                return
            yield key[len(prefix) :].decode()

    def snapshots(self, txn: Transaction, key: EntryKey) -> list[SnapshotRecord]:
        """The snapshots of an entry by ascending step.

        Raises:
            DataCorrupt: a record is damaged.
        """
        rows = self._snapshot_rows(txn, _entry_row(key))
        return [decode_snapshot(bytes(row), record) for row, record in rows]

    def snapshot(self, txn: Transaction, key: EntryKey, step_index: int) -> SnapshotRecord | None:
        """One snapshot, None when there is none.

        Raises:
            DataCorrupt: the record is damaged.
        """
        row = _snapshot_row(key, step_index)
        record = txn.get(row, db=self._snapshots)
        return None if record is None else decode_snapshot(row, record)

    def put_snapshot(self, txn: Transaction, key: EntryKey, record: SnapshotRecord) -> None:
        """Writes a snapshot record."""
        row = _snapshot_row(key, record.metadata.step_index)
        # A record of several pages that is replaced in the commit that wrote it would keep them
        # all, named by none, which a check of the pages takes for damage.
        txn.delete(row, db=self._snapshots)
        txn.put(row, encode_snapshot(row, record), db=self._snapshots)

    def put_value(self, txn: Transaction, value_id: int, data: memoryview) -> None:
        """Writes the bytes of a snapshot; ``value_id`` is above all before it."""
        for number, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            chunk = data[start : start + CHUNK_BYTES]
            _append(txn, _CHUNK.pack(value_id, number), chunk, self._chunks)

    def value(self, txn: Transaction, value_id: int) -> bytes:
        """A copy of the bytes of a snapshot, as far as they are there."""
        return b"".join(data for _, data in self._chunk_rows(txn, value_id))

    def delete_value(self, txn: Transaction, value_id: int) -> None:
        """Removes the bytes of a snapshot; their pages are reused."""
        prefix = _SEQUENCE.pack(value_id)
        cursor = txn.cursor(db=self._chunks)
        found = cursor.set_range(prefix)
        # Only keys are looked at: the values would be copied out of the write transaction.
        while found and bytes(cursor.key()).startswith(prefix):
            cursor.delete()
            found = bool(cursor.key())

    def delete_entry(self, txn: Transaction, key: EntryKey) -> None:
        """Removes all rows of an entry, as far as there are any."""
        self.delete_entry_row(txn, _entry_row(key))

    def delete_entry_row(self, txn: Transaction, entry_row: bytes) -> None:
        """Removes all rows of the entry with this row key, which may be damaged.

        A damaged snapshot record does not tell where its bytes are; they stay on the disk.
        """
        for raw, record in list(self._snapshot_rows(txn, entry_row)):
            row = bytes(raw)
            with suppress(DataCorrupt):
                self.delete_value(txn, decode_snapshot(row, record).value_id)
            txn.delete(row, db=self._snapshots)
        txn.delete(entry_row, db=self._entries)

    def all_snapshots(self, txn: Transaction) -> Iterator[tuple[bytes, SnapshotRecord | None]]:
        """Entry row key and record of all snapshots; None in place of one that is damaged."""
        for raw, record in txn.cursor(db=self._snapshots):
            row = bytes(raw)
            entry_row = owner_of_snapshot(row)
            try:
                yield entry_row, decode_snapshot(row, record)
            except DataCorrupt:
                yield entry_row, None

    def value_ids(self, txn: Transaction) -> Iterator[int]:
        """The ids of all values, ascending."""
        last = None
        for raw in txn.cursor(db=self._chunks).iternext(keys=True, values=False):
            place = chunk_place(bytes(raw))
            if place is not None and place[0] != last:
                yield place[0]
                last = place[0]

    def last_value_id(self, txn: Transaction) -> int:
        """The highest value id in use, 0 when there is none."""
        for raw in txn.cursor(db=self._chunks).iterprev(keys=True, values=False):
            place = chunk_place(bytes(raw))
            if place is not None:
                return place[0]
        return 0

    def events(self, txn: Transaction) -> list[EvictionEvent]:
        """The eviction events that are kept, in order; a GAP in place of one that is damaged.

        Where a number is missing, what comes before it is left out: watchers find a gap.
        """
        found: list[EvictionEvent] = []
        for row, value in txn.cursor(db=self._events):
            sequence = event_sequence(bytes(row))
            if not sequence:
                continue
            event = _event(sequence, bytes(value))
            if found and event.sequence != found[-1].sequence + 1:
                found.clear()
            found.append(event)
        return found

    def put_events(self, txn: Transaction, events: Iterable[EvictionEvent], keep: int) -> None:
        """Appends events and drops those that are older than the last ``keep``."""
        cursor = txn.cursor(db=self._events)
        for event in events:
            value = "\0".join((event.kind.value, event.namespace, event.entry_id)).encode()
            _append(txn, _SEQUENCE.pack(event.sequence), value, self._events)
            oldest_kept = _SEQUENCE.pack(max(0, event.sequence - keep + 1))
            while cursor.first() and bytes(cursor.key()) < oldest_kept:
                cursor.delete()

    def _snapshot_rows(self, txn: Transaction, entry_row: bytes) -> Iterator[tuple[Any, Any]]:
        return _with_prefix(txn.cursor(db=self._snapshots), entry_row + b"\0")

    def _chunk_rows(self, txn: Transaction, value_id: int) -> Iterator[tuple[Any, Any]]:
        return _with_prefix(txn.cursor(db=self._chunks), _SEQUENCE.pack(value_id))


def owner_of_snapshot(row: bytes) -> bytes:
    """Key of the entry row that a snapshot row belongs to."""
    return row[: -_STEP.size - 1]


def chunk_place(row: bytes) -> tuple[int, int] | None:
    """Value id and number of a chunk; None when that is no key of one."""
    return _CHUNK.unpack(row) if len(row) == _CHUNK.size else None


def event_sequence(row: bytes) -> int:
    """Number of an event; 0 when that is no key of one."""
    return int.from_bytes(row, "big") if len(row) == _SEQUENCE.size else 0


def _append(txn: Transaction, row: bytes, value: bytes | memoryview, table: Any) -> None:
    """Puts a row behind all others of a table, or in its place where a damaged key comes last."""
    if not txn.put(row, value, db=table, append=True):
        # LMDB says no more than this, and has written nothing.
        txn.put(row, value, db=table)


def _event(sequence: int, value: bytes) -> EvictionEvent:
    try:
        kind, namespace, entry_id = value.decode().split("\0")
        return EvictionEvent(sequence, EvictionKind(kind), namespace, entry_id)
    except ValueError:
        # Its watchers reconcile, as they do for any event that is lost.
        return EvictionEvent(sequence, EvictionKind.GAP)


def _entry_row(key: EntryKey) -> bytes:
    return "\0".join(key).encode()


def _snapshot_row(key: EntryKey, step_index: int) -> bytes:
    return _entry_row(key) + b"\0" + _STEP.pack(step_index)


def _from(cursor: Any, start: bytes) -> Iterator[tuple[Any, Any]]:
    if cursor.set_range(start):
        yield from cursor


def _with_prefix(cursor: Any, prefix: bytes) -> Iterator[tuple[Any, Any]]:
    for row, value in _from(cursor, prefix):
        if bytes(row[: len(prefix)]) != prefix:
            return
        yield row, value
