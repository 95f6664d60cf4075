"""The durable truth of an index: its entries in LMDB. Everything in memory is built from it.

Databases of the environment, keys big-endian so that they sort:

    entries     (partition number u32, label u64) -> record (`record_codec.py`)
    partitions  partition number u32 -> its names (`partition_codec.py`)
    meta        "format" -> 3; 2 before there were records of versions 5 and 6, 1 before 3 and 4,
                "sequence" -> number of the last write, u64,
                "id" -> 16 hexadecimal digits drawn when the log was made,
                "metric" -> how its vectors are compared; cosine where it is missing

Every write of an entry gets the next number of one sequence. The number of its first write is the
entry's label and stays; the number of its last write is the record's revision. So a copy of the
vectors made at sequence S (a graph on disk) can be brought up to date: records with a revision
above S are new to it, and labels without a record were deleted.
"""

from __future__ import annotations

import dataclasses
import heapq
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

import lmdb

from skipstone_shared.data_directory import DirectoryLock, is_disk_trouble
from skipstone_shared.errors import (
    DataCorrupt,
    FailedPrecondition,
    QuotaExceeded,
    ResourceExhausted,
)
from skipstone_shared.page_check import PageCheck, note_orderly_close, page_check_due
from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index.log_rescue import keep_readable
from skipstone_vector_index.partition_codec import Names, decode_partition, encode_partition
from skipstone_vector_index.record_codec import Record, decode_record, encode_record
from skipstone_vector_index.vector_form import Metric

LOG_FORMAT = 3
"""What is opened becomes this format: an older program would take newer records for damaged
ones and remove them."""

_READ_FORMATS = (1, 2, LOG_FORMAT)
_KEY = struct.Struct(">IQ")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_MAX_READERS = 2048
_SPARE_BYTES = 1 << 20

Key = tuple[int, int]
"""Partition number and label of a record."""


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """What one write of the log does, all of it or nothing.

    Attributes:
        sequence: Number of the last write in it.
        put: Records to store.
        delete: Records to remove.
        add_partitions: Numbers of new partitions, each with namespace and compatibility key.
        drop_partitions: Numbers of partitions that have no records any more.
    """

    sequence: int
    put: Mapping[Key, Record] = dataclasses.field(default_factory=dict)
    delete: Sequence[Key] = ()
    add_partitions: Mapping[int, Names] = dataclasses.field(default_factory=dict)
    drop_partitions: Sequence[int] = ()


class RecordLog:
    """Records of one data directory. Reads may run at any time, beside one write at a time."""

    def __init__(
        self,
        directory: Path,
        max_disk_bytes: int,
        *,
        fsync: bool = True,
        metric: Metric = Metric.COSINE,
        page_check: PageCheck = "always",
    ) -> None:
        """Opens the log of a directory, which is created where it is missing.

        Args:
            directory: Where the files are.
            max_disk_bytes: Size the records may grow to. The file may be a quarter larger: pages
                that a write frees are free only two writes later, and a full index must still be
                able to delete.
            fsync: Whether a write reaches the disk before it is acknowledged; without, it survives
                the end of the process but not of the machine.
            metric: How its vectors are compared; a log with entries keeps the one it has.
            page_check: When its pages are looked at; see ``VectorIndexSettings.page_check``.

        Raises:
            FailedPrecondition: The directory cannot be written, is in use, or holds other data or
                vectors of another metric.
        """
        self.metric = metric
        self._max_disk_bytes = max_disk_bytes
        self._path = directory / "records.mdb"
        self._lock = DirectoryLock(directory)
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            try:
                if page_check_due(self._path, page_check):
                    keep_readable(self._path, metric)
                self._env = lmdb.open(
                    str(self._path),
                    subdir=False,
                    map_size=max_disk_bytes + max_disk_bytes // 4 + _SPARE_BYTES,
                    max_dbs=3,
                    max_readers=_MAX_READERS,
                    sync=fsync,
                )
                undo.callback(self._env.close)
                self._env.reader_check()
                self._open_databases()
            except (lmdb.Error, OSError, DataCorrupt) as error:
                raise FailedPrecondition(
                    f"data_dir {directory} cannot be opened: {error}"
                ) from error
            undo.pop_all()

    def _open_databases(self) -> None:
        self._entries = self._env.open_db(b"entries")
        self._partitions = self._env.open_db(b"partitions")
        self._meta = self._env.open_db(b"meta")
        with self._env.begin(write=True) as txn:
            found = txn.get(b"format", db=self._meta)
            if found is not None and len(found) != _U32.size:
                raise FailedPrecondition(
                    f"{self._path} does not tell its format any more; restore the file, or start "
                    "with an empty data_dir"
                )
            if found is not None and _U32.unpack(found)[0] not in _READ_FORMATS:
                raise FailedPrecondition(
                    f"{self._path} has format {_U32.unpack(found)[0]}, this version reads up to "
                    f"{LOG_FORMAT}; open it with the version that wrote it"
                )
            txn.put(b"format", _U32.pack(LOG_FORMAT), db=self._meta)
            self._settle_metric(txn)
            if txn.get(b"id", db=self._meta) is None:
                txn.put(b"id", secrets.token_hex(8).encode(), db=self._meta)

    def _settle_metric(self, txn: lmdb.Transaction) -> None:
        found = bytes(txn.get(b"metric", b"cosine", db=self._meta)).decode()
        if found != self.metric.value and txn.stat(self._entries)["entries"]:
            raise FailedPrecondition(
                f"{self._path} holds vectors for metric {found}, configured is "
                f"{self.metric.value}; set metric back or use another data_dir"
            )
        txn.put(b"metric", self.metric.value.encode(), db=self._meta)

    def log_id(self) -> str:
        """Returns what tells this log from every other one."""
        with self._env.begin() as txn:
            return bytes(txn.get(b"id", b"", db=self._meta)).decode("ascii")

    def sequence(self) -> int:
        """Returns the number of the last write, 0 when there was none."""
        with self._env.begin() as txn:
            found = txn.get(b"sequence", db=self._meta)
        return int(_U64.unpack(found)[0]) if found and len(found) == _U64.size else 0

    def partitions(self) -> dict[int, Names]:
        """Returns namespace and compatibility key of every partition number but damaged ones."""
        with self._env.begin() as txn:
            rows = list(txn.cursor(db=self._partitions))
        found = {}
        for key, value in rows:
            number = int.from_bytes(key, "big")
            try:
                found[number] = decode_partition(number, value)
            except DataCorrupt as error:
                get_logger().error("damaged partition", partition=number, error=error.message)
        return found

    def records(self) -> Iterator[tuple[Key, Record]]:
        """Yields every record, by key. Damaged ones are passed over and removed afterwards."""
        damaged: list[bytes] = []
        with self._env.begin(buffers=True) as txn:
            for row, value in txn.cursor(db=self._entries):
                try:
                    yield _key_of(row), decode_record(value, row)
                except DataCorrupt as error:
                    damaged.append(bytes(row))
                    get_logger().error(
                        "damaged record removed", key=damaged[-1].hex(), error=error.message
                    )
        if damaged:
            with self._translated(), self._env.begin(write=True) as txn:
                for key in damaged:
                    txn.delete(key, db=self._entries)

    def write(self, changes: Changes) -> None:
        """Makes changes durable: when this returns they survive a kill.

        Raises:
            QuotaExceeded: They would take more than ``max_disk_bytes``; nothing was written.
            ResourceExhausted: The disk is full; nothing was written.
        """
        with self._translated():
            try:
                self._write(changes)
            except lmdb.Error as error:
                if not is_disk_trouble(error):
                    raise
                # LMDB uses pages that a write freed from the next write but one on. On a full disk
                # there may never be one, so this makes it: it needs hardly any room.
                self._write(Changes(self.sequence()))
                self._write(changes)

    def _write(self, changes: Changes) -> None:
        with self._env.begin(write=True) as txn:
            for key in changes.delete:
                txn.delete(_KEY.pack(*key), db=self._entries)
            for number in changes.drop_partitions:
                txn.delete(_U32.pack(number), db=self._partitions)
            for number, names in changes.add_partitions.items():
                txn.put(_U32.pack(number), encode_partition(number, names), db=self._partitions)
            for key, record in changes.put.items():
                row = _KEY.pack(*key)
                txn.put(row, encode_record(record, row), db=self._entries)
            if changes.put and self._used_bytes(txn) > self._max_disk_bytes:
                raise self._full()
            txn.put(b"sequence", _U64.pack(changes.sequence), db=self._meta)

    @contextmanager
    def reading(self) -> Iterator[LogView]:
        """Opens a view of the log as it is at this moment; later writes do not change it."""
        with self._env.begin(buffers=True) as txn:
            yield LogView(txn, self._entries)

    def disk_bytes(self) -> int:
        """Returns the bytes the data file takes on disk."""
        return self._path.stat().st_blocks * 512

    def close(self) -> None:
        """Closes the files and gives the directory free."""
        self._env.sync(True)
        self._env.close()
        note_orderly_close(self._path)
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except lmdb.MapFullError as error:
            raise self._full() from error
        except lmdb.Error as error:
            if not is_disk_trouble(error):
                raise
            raise ResourceExhausted(
                f"the data directory cannot be written ({error}): its disk is full or failing; "
                "free space or lower max_disk_bytes"
            ) from error

    def _used_bytes(self, txn: lmdb.Transaction) -> int:
        stat = txn.stat(self._entries)
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return int(pages * stat["psize"])

    def _full(self) -> QuotaExceeded:
        return QuotaExceeded(f"the index is full: max_disk_bytes is {self._max_disk_bytes}")


class LogView:
    """The log as it was when a read began."""

    def __init__(self, txn: lmdb.Transaction, entries: Any) -> None:
        self._txn = txn
        self._entries = entries

    def get(self, key: Key) -> Record | None:
        """Returns a record; None when there is none, or when it is damaged."""
        row = _KEY.pack(*key)
        value = self._txn.get(row, db=self._entries)
        if value is None:
            return None
        try:
            return decode_record(value, row)
        except DataCorrupt as error:
            get_logger().error("damaged record passed over", label=key[1], error=error.message)
            return None

    def keys(self, partitions: Iterable[int], after: int, until: int) -> Iterator[Key]:
        """Yields the keys in partitions with ``after < label <= until``, by ascending label."""
        runs = [self._keys_of(number, after) for number in partitions]
        merged = heapq.merge(*runs, key=lambda key: key[1])
        return takewhile(lambda key: key[1] <= until, merged)

    def _keys_of(self, partition: int, after: int) -> Iterator[Key]:
        cursor = self._txn.cursor(db=self._entries)
        if not cursor.set_range(_KEY.pack(partition, after + 1)):
            return
        for raw in cursor.iternext(keys=True, values=False):
            number, label = _KEY.unpack(raw)
            if number != partition:
                return
            yield number, label


def _key_of(row: memoryview) -> Key:
    if len(row) != _KEY.size:
        raise DataCorrupt(f"the key of a record has {len(row)} bytes")
    partition, label = _KEY.unpack(row)
    return partition, label
