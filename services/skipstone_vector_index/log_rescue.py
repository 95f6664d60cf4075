"""Makes a new log of what can be read in one whose pages are damaged.

A record is kept when it and the names of its partition match their checksums; where nothing can be
read the log is empty. The new log has an id of its own, so that graphs saved for the damaged one
are not used.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import lmdb

from skipstone_shared.errors import DataCorrupt
from skipstone_shared.lmdb_file import DamagedFile, check_pages, rescue
from skipstone_vector_index.partition_codec import decode_partition
from skipstone_vector_index.record_codec import decode_record
from skipstone_vector_index.vector_form import Metric

_PARTITION_BYTES = 4
_KEY_BYTES = _PARTITION_BYTES + 8
_NUMBER_BYTES = {"format": 4, "sequence": 8}
_SPARE_BYTES = 16 << 20


def keep_readable(file: Path, metric: Metric) -> None:
    """Puts a sound log in the place of one that is damaged, which is kept beside it.

    Args:
        file: Of a directory that no other process uses.
        metric: How its vectors are compared where the log cannot tell any more.

    Raises:
        FailedPrecondition: The disk has no room for the new file, or another version of LMDB has
            written the damaged one.
    """
    try:
        check_pages(file)
        return
    except DataCorrupt as error:
        damage = error.message
    fresh, size_bytes = file.with_suffix(".rescued"), file.stat().st_size
    try:
        rescue(file, damage, fresh, lambda damaged: _copy(damaged, fresh, size_bytes, metric))
    finally:
        fresh.unlink(missing_ok=True)
        fresh.with_name(f"{fresh.name}-lock").unlink(missing_ok=True)


def _copy(damaged: DamagedFile, fresh: Path, size_bytes: int, metric: Metric) -> tuple[int, int]:
    """Copies what is sound into a new file; returns how many records were and were not."""
    fresh.unlink(missing_ok=True)  # Left by a process that was killed in here.
    environment = lmdb.open(
        str(fresh), subdir=False, map_size=2 * size_bytes + _SPARE_BYTES, max_dbs=3, sync=False
    )
    try:
        entries = environment.open_db(b"entries")
        partitions = environment.open_db(b"partitions")
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as txn:
            for key, value in damaged.rows("partitions"):
                if _is_partition(key, bytes(value)):
                    txn.put(key, value, db=partitions)
            for key, value in damaged.rows("meta"):
                if _is_meta(key, bytes(value)):
                    txn.put(key, value, db=meta)
            if txn.get(b"format", db=meta) is None:
                # Its page is lost, and with it what told the metric; without one it is cosine.
                txn.put(b"metric", metric.value.encode(), db=meta)
            kept = lost = 0
            for key, value in damaged.rows("entries"):
                revision = _revision(key, value)
                if revision is None or txn.get(key[:_PARTITION_BYTES], db=partitions) is None:
                    lost += 1
                    continue
                # A damaged page may lead to one of before, with records that were replaced since.
                other = txn.get(key, db=entries)
                if other is None or decode_record(other, key).revision < revision:
                    txn.delete(key, db=entries)  # Else pages that it took would be named by none.
                    txn.put(key, value, db=entries)
                kept += other is None
        environment.sync(True)
    finally:
        environment.close()
    return kept, lost


def _revision(key: bytes, value: memoryview) -> int | None:
    with suppress(DataCorrupt):
        revision = decode_record(value, key).revision
        return revision if len(key) == _KEY_BYTES else None
    return None


def _is_partition(key: bytes, value: bytes) -> bool:
    with suppress(DataCorrupt):
        decode_partition(int.from_bytes(key, "big"), value)
        return len(key) == _PARTITION_BYTES
    return False


def _is_meta(key: bytes, value: bytes) -> bool:
    name = key.decode("ascii", "replace")
    if name == "metric":
        return value in {metric.value.encode() for metric in Metric}
    return len(value) == _NUMBER_BYTES.get(name)
