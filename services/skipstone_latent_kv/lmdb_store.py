"""The default store: snapshots in LMDB, on the disk of one machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import lmdb

from skipstone_latent_kv import incoming
from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable
from skipstone_latent_kv.eviction import Quotas, make_room
from skipstone_latent_kv.eviction_log import EvictionLog, LogWatch
from skipstone_latent_kv.group_commit import GroupCommitter, Operation, Outcome
from skipstone_latent_kv.lmdb_environment import LmdbEnvironment, Transaction
from skipstone_latent_kv.lmdb_rows import LmdbRows
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_latent_kv.references import check_matches, reference
from skipstone_shared.errors import (
    DataCorrupt,
    EntryNotFound,
    LatentNotFound,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.latents import (
    LatentRef,
    SnapshotMetadata,
    checked_entry_id,
    checked_namespace,
    checksum,
)
from skipstone_shared.stored_entries import (
    EvictionKind,
    Snapshot,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")

Durability = Literal["always", "group", "none"]

_GROUP_SIZE = 64


class LmdbStore:
    """A ``LatentStore`` on LMDB.

    Reads run in parallel, each in a read transaction that ends before the data are handed out.
    Changes run on one thread (``GroupCommitter``) inside a write transaction, where ``_table`` and
    the rows change together: both are rolled back when the commit fails. Whether an entry is there
    is decided by the table, what its snapshots are by the rows.
    """

    def __init__(
        self,
        path: Path,
        quotas: Quotas = Quotas(),  # noqa: B008 - frozen
        ttl_s: float = 0.0,
        max_snapshot_bytes: int = 256 << 20,
        event_history: int = 10_000,
        durability: Durability = "group",
        initial_map_bytes: int = 1 << 30,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens the directory and reads which entries there are.

        Args:
            path: Directory; created when it is missing.
            quotas: Byte bounds.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            max_snapshot_bytes: Largest snapshot.
            event_history: Eviction events kept.
            durability: When a write is acknowledged; see ``LatentKVSettings.durability``.
            initial_map_bytes: Address space to start with.
            clock: Seconds since the epoch.

        Raises:
            FailedPrecondition: the directory cannot be used; the message says why.
        """
        self._quotas = quotas
        self._ttl_s = ttl_s
        self._clock = clock
        self._capabilities = StoreCapabilities(
            engine="lmdb",
            max_snapshot_bytes=max_snapshot_bytes,
            durability="process" if durability == "none" else "power",
        )
        self._log_line = get_logger(store="lmdb")
        self._closed = False
        self._evicted = 0
        self._removals: list[tuple[EvictionKind, str, str]] = []
        self._table = EntryTable()
        self._env = LmdbEnvironment(path, initial_map_bytes, sync=durability != "none")
        self._rows = LmdbRows(self._env)
        with self._env.read() as txn:
            self._log = EvictionLog(event_history, self._rows.events(txn))
            self._next_value_id = self._rows.last_value_id(txn) + 1
            damaged = self._load(txn)
        max_batch = 1 if durability == "always" else _GROUP_SIZE
        self._committer = GroupCommitter(self._execute, max_batch)
        if damaged:
            self._change(lambda txn: self._drop_damaged(txn, damaged))

    def write_latent(
        self,
        namespace: str,
        metadata: SnapshotMetadata,
        data: Iterable[bytes | memoryview],
        *,
        size_bytes: int,
        xxh3_64: int,
        lease_s: float | None = None,
    ) -> LatentRef:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), metadata.entry_id
        lease_s = incoming.check_header(metadata, size_bytes, lease_s, self._capabilities)
        received = memoryview(incoming.receive(metadata, data, size_bytes, xxh3_64))

        def write(txn: Transaction) -> None:
            now = self._clock()
            for over, kind in self._table.over(0.0, now):
                self._remove(txn, over.key, kind)
            state = self._live(txn, key) or EntryState(*key, create_time=now, access_time=now)
            before = self._rows.snapshot(txn, key, metadata.step_index)
            growth = size_bytes - (before.metadata.size_bytes if before else 0)
            for victim in make_room(self._table, self._quotas, key, growth):
                self._remove(txn, victim.key, EvictionKind.CAPACITY)
            if before is not None:
                self._rows.delete_value(txn, before.value_id)
            value_id, self._next_value_id = self._next_value_id, self._next_value_id + 1
            self._rows.put_value(txn, value_id, received)
            self._rows.put_snapshot(txn, key, SnapshotRecord(metadata, xxh3_64, value_id))
            self._put(txn, state.with_snapshot(growth, before is None, now + lease_s))

        self._change(write, size_bytes)
        return reference(key[0], metadata, xxh3_64)

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``; the data are a copy, so that a slow caller holds no transaction."""
        key = incoming.check_ref(namespace, ref), ref.entry_id
        missing = LatentNotFound(f"no snapshot at step {ref.step_index} of entry {key[1]!r}")
        self._check_open()
        if self._find(key) is None:
            raise missing
        try:
            with self._env.read() as txn:
                record = self._rows.snapshot(txn, key, ref.step_index)
                if record is None:
                    raise missing
                stored = reference(key[0], record.metadata, record.xxh3_64)
                check_matches(ref, stored)
                data = self._value(txn, record)
        except DataCorrupt as error:
            self._remove_corrupt(key, ref.step_index, error)
            raise missing from error
        self._table.touch(key, self._clock())
        return Snapshot(stored, record.metadata, data)

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)

        def commit(txn: Transaction) -> None:
            state = self._existing(txn, key)
            if not state.committed:
                self._put(txn, state.as_committed())

        self._change(commit)
        return self._entry(key)

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)
        lease_s = incoming.check_lease(lease_s, self._capabilities)

        def renew(txn: Transaction) -> float | None:
            state = self._existing(txn, key)
            if state.committed:
                return None
            end = self._clock() + lease_s
            self._put(txn, dataclasses.replace(state, lease_expire_time=end))
            return end

        return self._change(renew)

    def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        self._check_open()
        return self._entry((checked_namespace(namespace), checked_entry_id(entry_id)))

    def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_page(page_size, page_token)
        self._check_open()
        page: list[StoredEntry] = []
        with self._env.read() as txn:
            for entry_id in self._rows.entry_ids_after(txn, namespace, page_token):
                state = self._find((namespace, entry_id))
                if state is None or not (state.committed or include_uncommitted):
                    continue
                if len(page) == page_size:
                    return StoredEntryPage(tuple(page), page[-1].entry_id)
                page.append(self._stored_entry(txn, state))
        return StoredEntryPage(tuple(page))

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)

        def pin(txn: Transaction) -> list[bool]:
            states = [self._live(txn, (namespace, entry_id)) for entry_id in entry_ids]
            for state in states:
                if state is not None and state.pinned != pinned:
                    self._put(txn, dataclasses.replace(state, pinned=pinned))
            return [state is not None for state in states]

        return self._change(pin)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)

        def delete(txn: Transaction) -> list[bool]:
            found = []
            for entry_id in entry_ids:
                found.append(self._live(txn, (namespace, entry_id)) is not None)
                if found[-1]:
                    self._remove(txn, (namespace, entry_id), EvictionKind.DELETED)
            return found

        return self._change(delete)

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)

        def delete(txn: Transaction) -> int:
            keys = [state.key for state in self._table.in_namespace(namespace)]
            live = [key for key in keys if self._live(txn, key) is not None]
            for key in live:
                self._remove(txn, key, EvictionKind.DELETED)
            return len(live)

        return self._change(delete)

    def get_stats(self, namespace: str) -> StoreStats:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        self._check_open()
        return dataclasses.replace(
            self._table.stats(namespace, self._clock()),
            quota_bytes=self._quotas.namespace_bytes,
            disk_bytes=self._env.disk_bytes(),
            evicted_count=self._evicted,
        )

    def get_capabilities(self) -> StoreCapabilities:
        """See ``LatentStore``."""
        self._check_open()
        return self._capabilities

    def watch_evictions(self, namespace: str, after_sequence: int = 0) -> LogWatch:
        """See ``LatentStore``."""
        self._check_open()
        return self._log.watch(checked_namespace(namespace) if namespace else "", after_sequence)

    def sweep(self) -> int:
        """Removes what ended by lease or time to live, saves use times; returns how many ended."""

        def sweep(txn: Transaction) -> int:
            over = self._table.over(self._ttl_s, self._clock())
            for state, kind in over:
                self._remove(txn, state.key, kind)
            for state in self._table.take_touched():
                self._rows.put_entry(txn, state)
            return len(over)

        ended = self._change(sweep)
        self._env.flush()
        return ended

    def close(self) -> None:
        """See ``LatentStore``."""
        if self._closed:
            return
        self.sweep()
        self._closed = True
        self._committer.close()
        self._log.close()
        self._env.close()

    def _change(self, operation: Callable[[Transaction], T], size_bytes: int = 0) -> T:
        """Runs an operation in the next write transaction and waits for its commit."""
        try:
            return self._committer.run(operation, size_bytes)
        except lmdb.DiskError as error:
            raise ResourceExhausted(
                "the disk of the data directory is full; free space or lower quota_bytes"
            ) from error

    def _execute(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Runs operations in one transaction; the map grows as often as they need it."""
        while True:
            try:
                return self._execute_once(operations)
            except lmdb.MapFullError:
                self._log_line.info("map grown", map_bytes=self._env.grow())

    def _execute_once(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._removals = []
        with self._table.transaction(), self._env.write() as txn:
            outcomes = [_attempt(operation, txn) for operation in operations]
            events = self._log.number(self._removals)
            self._rows.put_events(txn, events, self._log.capacity)
        self._log.publish(events)
        self._evicted += sum(event.kind is not EvictionKind.DELETED for event in events)
        return outcomes

    # The methods that take a transaction run inside an operation.

    def _put(self, txn: Transaction, state: EntryState) -> None:
        self._table.put(state)
        self._rows.put_entry(txn, state)

    def _remove(self, txn: Transaction, key: EntryKey, kind: EvictionKind) -> None:
        self._table.remove(key)
        self._rows.delete_entry(txn, key)
        self._removals.append((kind, *key))

    def _live(self, txn: Transaction, key: EntryKey) -> EntryState | None:
        """The entry; one that is over is removed first."""
        state = self._table.get(key)
        if state is not None and (kind := state.end(self._ttl_s, self._clock())):
            self._remove(txn, key, kind)
            return None
        return state

    def _existing(self, txn: Transaction, key: EntryKey) -> EntryState:
        state = self._live(txn, key)
        if state is None:
            raise _no_entry(key)
        return state

    def _find(self, key: EntryKey) -> EntryState | None:
        """The entry unless it is over."""
        state = self._table.get(key)
        return None if state is None or state.end(self._ttl_s, self._clock()) else state

    def _entry(self, key: EntryKey) -> StoredEntry:
        state = self._find(key)
        if state is None:
            raise _no_entry(key)
        with self._env.read() as txn:
            return self._stored_entry(txn, state)

    def _stored_entry(self, txn: Transaction, state: EntryState) -> StoredEntry:
        return state.stored_entry(
            StoredSnapshot(reference(state.namespace, r.metadata, r.xxh3_64), r.metadata)
            for r in self._rows.snapshots(txn, state.key)
        )

    def _value(self, txn: Transaction, record: SnapshotRecord) -> bytes:
        """A copy of the bytes of a snapshot.

        Raises:
            DataCorrupt: they do not match their checksum.
        """
        data = self._rows.value(txn, record.value_id)
        if len(data) != record.metadata.size_bytes or checksum(data) != record.xxh3_64:
            raise DataCorrupt("the bytes do not match their checksum")
        return data

    def _remove_corrupt(self, key: EntryKey, step_index: int, error: DataCorrupt) -> None:
        """Removes an entry of which a snapshot was found corrupt, unless it was just replaced."""

        def remove(txn: Transaction) -> None:
            try:
                record = self._rows.snapshot(txn, key, step_index)
                if record is not None:
                    self._value(txn, record)
            except DataCorrupt:
                if self._table.get(key) is not None:
                    self._remove(txn, key, EvictionKind.CORRUPT)

        self._log_line.error(
            "corrupt entry removed", namespace=key[0], entry_id=key[1], error=str(error)
        )
        self._change(remove)

    def _drop_damaged(self, txn: Transaction, keys: Sequence[EntryKey]) -> None:
        """Removes entries whose record was found corrupt at the start; the table has none."""
        for key in keys:
            self._rows.delete_entry(txn, key)
            self._removals.append((EvictionKind.CORRUPT, *key))

    def _load(self, txn: Transaction) -> list[EntryKey]:
        """Fills the table by ascending last use; returns the entries whose record is corrupt."""
        states, damaged = [], []
        for key, state in self._rows.entries(txn):
            if state is None:
                damaged.append(key)
            else:
                states.append(state)
        for state in sorted(states, key=lambda state: state.access_time):
            self._table.put(state)
        return damaged

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")


def _attempt(operation: Operation, txn: Transaction) -> Outcome:
    """Runs one operation. An error of ours leaves rows and table consistent; others roll back."""
    try:
        return operation(txn), None
    except SkipstoneError as error:
        return None, error


def _no_entry(key: EntryKey) -> EntryNotFound:
    return EntryNotFound(f"no entry {key[1]!r} in namespace {key[0]!r}")
