"""Makes a new log of what can be read in one whose pages are damaged.

A record is kept when it and the names of its partition match their checksums. The new log has an id
of its own, so that graphs saved for the damaged one are not used.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import lmdb

from skipstone_shared.data_directory import sync_directory
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.lmdb_file import DamagedFile, check_pages
from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index.partition_codec import decode_partition
from skipstone_vector_index.record_codec import decode_record
from skipstone_vector_index.vector_form import Metric

_KEY = struct.Struct(">IQ")
_NUMBER_BYTES = {"format": 4, "sequence": 8}
_SPARE_BYTES = 16 << 20


def keep_readable(file: Path) -> None:
    """Puts a sound log in the place of one that is damaged, which is kept beside it.

    Args:
        file: Of a directory that no other process uses.

    Raises:
        DataCorrupt: Nothing can be read.
        lmdb.Error: The disk has no room for the new file.
        OSError: The same.
    """
    try:
        check_pages(file)
        return
    except DataCorrupt as error:
        damage = error.message
    fresh, aside = file.with_suffix(".rescued"), file.with_name(f"{file.name}.damaged")
    try:
        kept, lost = _copy(DamagedFile(file), fresh, file.stat().st_size)
        file.replace(aside)
        fresh.replace(file)
        sync_directory(file.parent)
    except DataCorrupt as error:
        raise DataCorrupt(
            f"{damage}; {error.message}; restore it or start with an empty data_dir"
        ) from error
    finally:
        fresh.unlink(missing_ok=True)
        fresh.with_name(f"{fresh.name}-lock").unlink(missing_ok=True)
    get_logger().error(
        "data file was damaged; what could be read is kept",
        damage=damage,
        entries_kept=kept,
        entries_lost=lost,
        damaged_file=str(aside),
    )


def _copy(damaged: DamagedFile, fresh: Path, size_bytes: int) -> tuple[int, int]:
    """Copies what is sound into a new file; returns how many records were and were not."""
    fresh.unlink(missing_ok=True)  # Left by a process that was killed in here.
    partitions = {
        int.from_bytes(key, "big"): bytes(value)
        for key, value in damaged.rows("partitions")
        if _is_partition(key, bytes(value))
    }
    kept = lost = sequence = 0
    environment = lmdb.open(
        str(fresh), subdir=False, map_size=2 * size_bytes + _SPARE_BYTES, max_dbs=3, sync=False
    )
    try:
        entries = environment.open_db(b"entries")
        names = environment.open_db(b"partitions")
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as txn:
            for number, row in partitions.items():
                txn.put(number.to_bytes(4, "big"), row, db=names)
            for key, value in damaged.rows("entries"):
                if len(key) != _KEY.size or _KEY.unpack(key)[0] not in partitions:
                    lost += 1
                    continue
                try:
                    revision = decode_record(value).revision
                except DataCorrupt:
                    lost += 1
                    continue
                txn.put(key, value, db=entries)
                kept += 1
                sequence = max(sequence, revision, _KEY.unpack(key)[1])
            for key, value in damaged.rows("meta"):
                if _is_meta(key, bytes(value)):
                    txn.put(key, bytes(value), db=meta)
            noted = int.from_bytes(txn.get(b"sequence", b"", db=meta), "big")
            txn.put(b"sequence", max(sequence, noted).to_bytes(8, "big"), db=meta)
        environment.sync(True)
    finally:
        environment.close()
    return kept, lost


def _is_partition(key: bytes, value: bytes) -> bool:
    with suppress(DataCorrupt):
        decode_partition(int.from_bytes(key, "big"), value)
        return len(key) == struct.calcsize(">I")
    return False


def _is_meta(key: bytes, value: bytes) -> bool:
    name = key.decode("ascii", "replace")
    if name == "metric":
        return value in {metric.value.encode() for metric in Metric}
    return len(value) == _NUMBER_BYTES.get(name)
