"""Looks at every record and every byte of a data directory that no service uses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from skipstone_latent_kv.lmdb_environment import LmdbEnvironment, Transaction
from skipstone_latent_kv.lmdb_rows import LmdbRows
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_shared.errors import DataCorrupt, FailedPrecondition
from skipstone_shared.latents import checksum

_SMALLEST_MAP_BYTES = 1 << 20
"""LMDB takes the size of the file when that is larger."""


@dataclasses.dataclass(frozen=True)
class DataReport:
    """What is in a data directory.

    Attributes:
        entries: Sound entry records.
        snapshots: Sound snapshots.
        size_bytes: Bytes of sound snapshots, as they are on the disk.
        problems: What is wrong, a sentence each; the service serves nothing of it.
        unused_values: Values that no record names; a compaction removes them.
        file_bytes: Size of the data file.
    """

    entries: int
    snapshots: int
    size_bytes: int
    problems: tuple[str, ...]
    unused_values: int
    file_bytes: int


def verify(path: Path) -> DataReport:
    """Checks all records and the bytes of all snapshots; changes nothing.

    Raises:
        FailedPrecondition: there are no data, or a service is using them.
    """
    try:
        environment = open_existing(path)
    except DataCorrupt as error:
        advice = "a service that is started on it keeps what can be read"
        return DataReport(0, 0, 0, (f"{error.message}; {advice}",), 0, _file_bytes(path))
    try:
        rows = LmdbRows(environment, for_writing=False)
        with environment.read() as txn:
            return _Check(rows, txn).report(_file_bytes(path))
    finally:
        environment.close()


def compact(path: Path) -> tuple[int, int]:
    """Writes the data file anew without free pages and without values that no record names.

    Returns:
        Its size in bytes before and after.

    Raises:
        FailedPrecondition: there are no data, or a service is using them.
        DataCorrupt: pages are damaged.
        ResourceExhausted: the disk has no room for both files.
    """
    before = _file_bytes(path)
    environment = open_existing(path)
    try:
        rows = LmdbRows(environment)
        with environment.write() as txn:
            for value_id in _unused_values(rows, txn):
                rows.delete_value(txn, value_id)
    except BaseException:
        environment.close()
        raise
    environment.compact()
    return before, _file_bytes(path)


def open_existing(path: Path) -> LmdbEnvironment:
    """The environment in a directory that has one.

    Raises:
        FailedPrecondition: it has none, or a service is using it.
        DataCorrupt: its pages are damaged.
    """
    if not (path / "data.mdb").is_file():
        raise FailedPrecondition(f"{path} is no data_dir of latent_kv: it holds no data.mdb")
    return LmdbEnvironment(path, _SMALLEST_MAP_BYTES, sync=True)


class _Check:
    """One pass over all tables in one transaction."""

    def __init__(self, rows: LmdbRows, txn: Transaction) -> None:
        self._rows = rows
        self._txn = txn
        self._problems: list[str] = []

    def report(self, file_bytes: int) -> DataReport:
        states = dict(self._rows.entries(self._txn))
        found: dict[bytes, list[SnapshotRecord]] = {row: [] for row in states}
        for row, record in self._rows.all_snapshots(self._txn):
            if record is None:
                self._problems.append(f"{_name(row)}: a snapshot record is damaged")
            elif row not in found:
                self._problems.append(f"{_name(row)}: a snapshot without an entry")
            elif self._is_sound(row, record):
                found[row].append(record)
        for row, state in states.items():
            sizes = [record.value_bytes for record in found[row]]
            if state is None:
                self._problems.append(f"{_name(row)}: its record is damaged")
            elif (state.snapshot_count, state.size_bytes) != (len(sizes), sum(sizes)):
                self._problems.append(
                    f"{_name(row)}: {state.snapshot_count} snapshots of {state.size_bytes} bytes "
                    f"are noted, {len(sizes)} of {sum(sizes)} are sound"
                )
        snapshots = [record for records in found.values() for record in records]
        return DataReport(
            entries=sum(state is not None for state in states.values()),
            snapshots=len(snapshots),
            size_bytes=sum(record.value_bytes for record in snapshots),
            problems=tuple(self._problems),
            unused_values=len(_unused_values(self._rows, self._txn)),
            file_bytes=file_bytes,
        )

    def _is_sound(self, row: bytes, record: SnapshotRecord) -> bool:
        data = self._rows.value(self._txn, record.value_id)
        if checksum(data) == record.value_xxh3_64 and len(data) == record.value_bytes:
            return True
        self._problems.append(
            f"{_name(row)}: the bytes of step {record.metadata.step_index} do not match their "
            "checksum"
        )
        return False


def _unused_values(rows: LmdbRows, txn: Transaction) -> list[int]:
    records = rows.all_snapshots(txn)
    used = {record.value_id for _, record in records if record is not None}
    return [value_id for value_id in rows.value_ids(txn) if value_id not in used]


def _file_bytes(path: Path) -> int:
    file = path / "data.mdb"
    return file.stat().st_size if file.is_file() else 0


def _name(row: bytes) -> str:
    return "entry " + row.decode("ascii", "replace").replace("\0", "/")
