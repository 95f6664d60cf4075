"""What the catalog in Redis tells of an entry, and how it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from skipstone_latent_kv.entry_table import EntryKey, EntryState
from skipstone_latent_kv.record_format import nonsense_is_corrupt, some_time, whole_number
from skipstone_latent_kv.redis_values import ValueName


@dataclasses.dataclass(frozen=True, slots=True)
class StoredValue:
    """A value that a row refers to: its bytes in Redis, and the checksum of what is read."""

    name: ValueName
    size_bytes: int
    xxh3_64: int


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogRow:
    """An entry as the catalog has it, with its values by step."""

    state: EntryState
    values: Mapping[int, StoredValue]


def parse_row(namespace: str, told: Sequence[bytes]) -> CatalogRow | None:
    """The row that the scripts told as a list; None for an empty one.

    Raises:
        DataCorrupt: it makes no sense.
    """
    if not told:
        return None
    with nonsense_is_corrupt():
        entry_id, created, accessed, reads, lease, pinned, skip_steps, first, last, size = told[:10]
        key = namespace, entry_id.decode()
        steps = told[10:]
        values = {
            whole_number(int(steps[i])): parse_value(key, *steps[i + 1 : i + 4])
            for i in range(0, len(steps), 4)
        }
        state = EntryState(
            *key,
            create_time=some_time(float(created)),
            access_time=some_time(float(accessed)),
            size_bytes=whole_number(int(size)),
            snapshot_count=len(values),
            read_count=whole_number(int(reads)),
            committed=not lease,
            lease_expire_time=some_time(float(lease)) if lease else None,
            pinned=bool(pinned),
            skip_steps=whole_number(int(skip_steps)),
            first_use=int(first),
            last_use=int(last),
        )
    return CatalogRow(state, dict(sorted(values.items())))


def parse_value(key: EntryKey, value_id: bytes, size_bytes: bytes, xxh3_64: bytes) -> StoredValue:
    """The value that the scripts told.

    Raises:
        DataCorrupt: it makes no sense.
    """
    with nonsense_is_corrupt():
        return StoredValue(
            ValueName(*key, value_id.decode()),
            whole_number(int(size_bytes)),
            whole_number(int(xxh3_64, 16), 1 << 64),
        )
