"""Snapshots and entries as they are in Redis, looked at again when they were replaced meanwhile.

A look takes two steps, the row in the catalog and the value that it names; in between another
process may replace or evict. What is missing then is looked up again; what is missing although the
row still names it is lost, and its entry is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from skipstone_latent_kv.entry_table import EntryKey
from skipstone_latent_kv.latent_codec import decode
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_latent_kv.redis_catalog import RedisCatalog
from skipstone_latent_kv.redis_catalog_rows import CatalogRow, StoredValue
from skipstone_latent_kv.redis_values import RedisValues, ValueLost, ValueName
from skipstone_latent_kv.references import check_matches, reference
from skipstone_shared.errors import EntryNotFound, LatentNotFound, Unavailable
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import Snapshot, StoredEntry, StoredSnapshot
from skipstone_shared.structured_logging import get_logger

_MOST_LOOKS = 20
"""Times that a read looks again because what it found had been replaced meanwhile."""

_Loaded = tuple[SnapshotRecord, memoryview | bytes]
"""A head, and the bytes where they were wanted."""

_Heads = dict[ValueName, SnapshotRecord | None]
"""What values are; None for one that is not there."""


class RedisReader:
    """Reads what a store holds. Any thread may call."""

    def __init__(self, catalog: RedisCatalog, values: RedisValues) -> None:
        """Creates the reader.

        Args:
            catalog: The entries.
            values: Their values.
        """
        self._catalog = catalog
        self._values = values
        self._logger = get_logger(store="redis")

    def snapshot(self, key: EntryKey, ref: LatentRef) -> Snapshot:
        """A snapshot; counts as a read.

        Raises:
            LatentNotFound: there is none.
            FingerprintMismatch: another one is stored than the reference names.
        """
        head, data = self._find(key, ref, self._used, self._load)
        return Snapshot(head.ref, head.metadata, data)

    def peek(self, key: EntryKey, ref: LatentRef) -> Snapshot:
        """A snapshot; as ``snapshot`` but that it is no use of the entry."""
        head, data = self._find(key, ref, self._seen, self._load)
        return Snapshot(head.ref, head.metadata, data)

    def head(self, key: EntryKey, ref: LatentRef) -> StoredSnapshot:
        """A snapshot without its bytes, which are not moved; as ``snapshot`` in all else."""
        return self._find(key, ref, self._used, self._load_head)[0]

    def entry(self, key: EntryKey) -> StoredEntry:
        """An entry.

        Raises:
            EntryNotFound: there is none.
        """
        for _ in range(_MOST_LOOKS):
            row = self._catalog.get(key)
            if row is None:
                raise no_entry(key)
            heads = self._heads([row])
            if entry := _stored_entry(row, heads):
                return entry
            self._drop_lost(row, heads)
        raise _too_busy(key)

    def commit(self, key: EntryKey) -> StoredEntry:
        """Commits an entry and returns it as it is then.

        Raises:
            EntryNotFound: there is none.
        """
        for _ in range(_MOST_LOOKS):
            before = self._catalog.get(key)
            # Read before, since from its commit on any other write may evict the entry.
            heads = self._heads([before]) if before else {}
            row = self._catalog.commit(key)
            if row is None:
                raise no_entry(key)
            if entry := _stored_entry(row, heads):
                return entry
            self._drop_lost(row, heads)
        raise _too_busy(key)

    def entries(self, rows: Sequence[CatalogRow]) -> list[StoredEntry]:
        """The entries of rows, without those that have gone."""
        heads = self._heads(rows)
        found: list[StoredEntry] = []
        for row in rows:
            entry = _stored_entry(row, heads)
            if entry is None:
                self._drop_lost(row, heads)
                try:
                    entry = self.entry(row.state.key)
                except EntryNotFound:
                    continue
            found.append(entry)
        return found

    def _used(self, key: EntryKey, ref: LatentRef) -> StoredValue | None:
        return self._catalog.use(key, ref.step_index, ref.xxh3_64)

    def _seen(self, key: EntryKey, ref: LatentRef) -> StoredValue | None:
        row = self._catalog.get(key)
        return row.values.get(ref.step_index) if row else None

    def _find(
        self,
        key: EntryKey,
        ref: LatentRef,
        look_up: Callable[[EntryKey, LatentRef], StoredValue | None],
        load: Callable[[StoredValue], _Loaded],
    ) -> tuple[StoredSnapshot, memoryview | bytes]:
        for _ in range(_MOST_LOOKS):
            value = look_up(key, ref)
            if value is None:
                raise _no_snapshot(key, ref)
            try:
                record, data = load(value)
            except ValueLost as error:
                if self._drop(ref.step_index, value, error):
                    raise _no_snapshot(key, ref) from error
                continue
            stored = reference(key[0], record.metadata, record.xxh3_64)
            check_matches(ref, stored)
            return StoredSnapshot(stored, record.metadata), data
        raise _too_busy(key)

    def _load(self, value: StoredValue) -> _Loaded:
        record, data = self._values.read(value.name, value.size_bytes)
        return record, data if record.encoded is None else decode(data, record.metadata.parts)

    def _load_head(self, value: StoredValue) -> _Loaded:
        (record,) = self._values.heads([value.name])
        if record is None:
            raise _lost(value)
        return record, b""

    def _heads(self, rows: Iterable[CatalogRow]) -> _Heads:
        names = [value.name for row in rows for value in row.values.values()]
        return dict(zip(names, self._values.heads(names), strict=True))

    def _drop_lost(self, row: CatalogRow, heads: _Heads) -> None:
        """Removes an entry whose values are lost, unless it has others by now."""
        for step_index, value in row.values.items():
            if value.name in heads and heads[value.name] is None:
                self._drop(step_index, value, _lost(value))

    def _drop(self, step_index: int, value: StoredValue, error: ValueLost) -> bool:
        removed = self._catalog.lost(step_index, value.name)
        if removed:
            self._logger.error(
                "corrupt entry",
                namespace=value.name.namespace,
                entry_id=value.name.entry_id,
                error=error.message,
            )
        return removed


def no_entry(key: EntryKey) -> EntryNotFound:
    """The error that there is no such entry."""
    return EntryNotFound(f"no entry {key[1]!r} in namespace {key[0]!r}")


def _no_snapshot(key: EntryKey, ref: LatentRef) -> LatentNotFound:
    return LatentNotFound(f"no snapshot at step {ref.step_index} of entry {key[1]!r}")


def _lost(value: StoredValue) -> ValueLost:
    return ValueLost(f"value {value.name} is not in Redis, or damaged")


def _too_busy(key: EntryKey) -> Unavailable:
    return Unavailable(f"entry {key[1]!r} was replaced again and again while it was read")


def _stored_entry(row: CatalogRow, heads: _Heads) -> StoredEntry | None:
    """The entry as stores answer it; None when a head of it is not there."""
    snapshots = []
    for value in row.values.values():
        record = heads.get(value.name)
        if record is None:
            return None
        ref = reference(row.state.namespace, record.metadata, record.xxh3_64)
        snapshots.append(StoredSnapshot(ref, record.metadata))
    return row.state.stored_entry(snapshots)
