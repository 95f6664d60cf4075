"""The bytes of snapshots in S3: one object per value, under a name that no other value ever has.

A value is the object ``PREFIX/values/ns-NAMESPACE/entry-ENTRY/VALUE``: the bytes and nothing else,
so that any tool can look at them. What they are stands in the log. Names begin with a word, since
``..`` is a namespace and an entry id too, and servers that keep objects as files mind it in a path.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable

from skipstone_latent_kv.entry_table import EntryKey
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import checksum

VALUES = "values/"
LEFTOVER_S = 3600.0
"""Age at which a value that no entry has is one whose writer died. Long, since a write that puts
its record later than this loses its bytes."""
_ID_BITS = 63


@dataclasses.dataclass(frozen=True, slots=True)
class ValueName:
    """Where a value is: its entry, and its id."""

    entry: EntryKey
    value_id: int

    @property
    def key(self) -> str:
        """The key of its object."""
        namespace, entry_id = self.entry
        return f"{VALUES}ns-{namespace}/entry-{entry_id}/{self.value_id:016x}"

    @classmethod
    def parse(cls, key: str) -> ValueName | None:
        """The value whose object has a key; None when that is none of ours."""
        namespace, _, rest = key.removeprefix(f"{VALUES}ns-").partition("/entry-")
        entry_id, _, number = rest.partition("/")
        try:
            name = cls((namespace, entry_id), int(number, 16))
        except ValueError:
            return None
        return name if name.key == key else None


class ValueLost(DataCorrupt):
    """A value is not there, in part or at all, or is damaged."""

    def __init__(self, name: ValueName) -> None:
        """Names the value."""
        super().__init__(f"value {name.key} is not in S3, not whole, or damaged")
        self.name = name


class S3Values:
    """Reads, writes and deletes values; what refers to them is the log's business."""

    def __init__(self, bucket: S3Bucket) -> None:
        """Values in a bucket."""
        self._bucket = bucket

    def write(self, entry: EntryKey, data: memoryview, xxh3_64: int) -> ValueName:
        """Writes a value under a new name.

        Args:
            entry: The entry that it will be of.
            data: Its bytes.
            xxh3_64: Their checksum, kept beside the object too.
        """
        name = ValueName(entry, uuid.uuid4().int >> (128 - _ID_BITS))
        self._bucket.put(name.key, data, {"skipstone-xxh3-64": f"{xxh3_64:016x}"})
        return name

    def read(self, name: ValueName, record: SnapshotRecord) -> memoryview:
        """A value as it was written; its checksum has been verified.

        Raises:
            ValueLost: it is not there, or is damaged.
        """
        data = self._bucket.get(name.key, record.value_bytes)
        if (
            data is None
            or len(data) != record.value_bytes
            or checksum(data) != record.value_xxh3_64
        ):
            raise ValueLost(name)
        return data

    def delete(self, names: Iterable[ValueName]) -> None:
        """Deletes values."""
        self._bucket.delete([name.key for name in names])
