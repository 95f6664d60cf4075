"""The default store: snapshots in LMDB, on the disk of one machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from skipstone_latent_kv import incoming
from skipstone_latent_kv.entry_table import EntryKey, EntryState
from skipstone_latent_kv.eviction import Quotas, make_room
from skipstone_latent_kv.eviction_log import LogWatch
from skipstone_latent_kv.eviction_policies import EvictionPolicy, LeastRecentlyUsed
from skipstone_latent_kv.latent_codec import CodecName, decode, encode
from skipstone_latent_kv.lmdb_entries import LmdbEntries, no_entry
from skipstone_latent_kv.lmdb_environment import Transaction
from skipstone_latent_kv.record_format import EncodedValue, SnapshotRecord
from skipstone_latent_kv.references import check_matches, reference
from skipstone_latent_kv.store_metrics import StoreTotals
from skipstone_shared.errors import (
    DataCorrupt,
    LatentNotFound,
    Unavailable,
)
from skipstone_shared.latents import (
    LatentRef,
    SnapshotMetadata,
    checked_entry_id,
    checked_namespace,
    checksum,
)
from skipstone_shared.page_check import PageCheck
from skipstone_shared.stored_entries import (
    EvictionKind,
    Snapshot,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)

T = TypeVar("T")

Durability = Literal["always", "group", "none"]

_GROUP_SIZE = 64


class LmdbStore:
    """A ``LatentStore`` on LMDB: parallel reads, changes on one thread with group commit.

    Uses of an entry are counted in memory and saved by ``sweep`` and ``close``.
    """

    def __init__(
        self,
        path: Path,
        quotas: Quotas = Quotas(),  # noqa: B008 - frozen
        policy: EvictionPolicy = LeastRecentlyUsed(),  # noqa: B008 - stateless
        ttl_s: float = 0.0,
        max_snapshot_bytes: int = 256 << 20,
        event_history: int = 10_000,
        durability: Durability = "group",
        codec: CodecName = "lossless",
        initial_map_bytes: int = 1 << 30,
        page_check: PageCheck = "always",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens the directory and reads which entries there are.

        Args:
            path: Directory; created when it is missing.
            quotas: Byte bounds.
            policy: Which entries go first when a bound is reached.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            max_snapshot_bytes: Largest snapshot.
            event_history: Eviction events kept.
            durability: When a write is acknowledged; see ``LatentKVSettings.durability``.
            codec: How new snapshots are written; what is there is read however it was written.
            initial_map_bytes: Address space to start with.
            page_check: When pages are looked at; see ``LatentKVSettings.page_check``.
            clock: Seconds since the epoch.

        Raises:
            FailedPrecondition: the directory cannot be used; the message says why.
        """
        self._quotas = quotas
        self._codec: CodecName = codec
        self._clock = clock
        self._capabilities = StoreCapabilities(
            engine="lmdb",
            max_snapshot_bytes=quotas.largest_snapshot(max_snapshot_bytes),
            durability="process" if durability == "none" else "power",
        )
        self._closed = False
        self._entries = LmdbEntries(
            path,
            policy=policy,
            ttl_s=ttl_s,
            event_history=event_history,
            sync=durability != "none",
            max_batch=1 if durability == "always" else _GROUP_SIZE,
            initial_map_bytes=initial_map_bytes,
            page_check=page_check,
            clock=clock,
        )

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
        self._quotas.check_fits(size_bytes)
        lease_s = incoming.check_header(metadata, size_bytes, lease_s, self._capabilities)
        received = incoming.receive(metadata, data, size_bytes, xxh3_64)
        value, encoded = received, None
        if self._codec != "lossless":
            narrow = encode(received, metadata.parts, self._codec)
            value, encoded = memoryview(narrow), EncodedValue(len(narrow), checksum(narrow))
            # Of what readers get, since the reference that is returned names that.
            xxh3_64 = checksum(decode(narrow, metadata.parts))

        def write(txn: Transaction) -> None:
            now = self._clock()
            # Ended leases first: they make room without an eviction.
            self._entries.remove_over(txn, ttl_s=0.0)
            state, before = self._before_write(txn, key, metadata.step_index, now)
            growth = len(value) - (before.value_bytes if before else 0)
            for victim in make_room(self._entries.table, self._quotas, key, growth):
                self._entries.remove(txn, victim.key, EvictionKind.CAPACITY)
            if before is not None:
                self._entries.rows.delete_value(txn, before.value_id)
            record = SnapshotRecord(metadata, xxh3_64, self._entries.next_value_id(), encoded)
            self._entries.rows.put_value(txn, record.value_id, value)
            self._entries.rows.put_snapshot(txn, key, record)
            state = state.with_snapshot(metadata.step_index, growth, before is None, now + lease_s)
            self._entries.put(txn, state, used=True)

        self._entries.change(write, size_bytes)
        return reference(key[0], metadata, xxh3_64)

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``; the data are a copy, so that a slow caller holds no transaction."""
        snapshot = self.peek_latent(namespace, ref)
        self._count_use(snapshot.ref)
        return snapshot

    def peek_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``MovableStore``."""
        head, data = self._read(namespace, ref, self._entries.value)
        return Snapshot(head.ref, head.metadata, data)

    def touch_latent(self, namespace: str, ref: LatentRef) -> StoredSnapshot:
        """See ``LatentStore``."""
        head, _ = self._read(namespace, ref, lambda txn, record: None)
        self._count_use(head.ref)
        return head

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)

        def commit(txn: Transaction) -> StoredEntry:
            state = self._entries.require(key)
            try:
                # Here and not after the change, by when another write may have evicted it.
                entry = self._entries.stored_entry(txn, state.as_committed())
            except DataCorrupt as error:
                self._entries.remove(txn, key, EvictionKind.CORRUPT)
                raise no_entry(key) from error
            if not state.committed:
                self._entries.put(txn, state.as_committed())
            return entry

        return self._entries.change(commit)

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)
        lease_s = incoming.check_lease(lease_s, self._capabilities)

        def renew(txn: Transaction) -> float | None:
            state = self._entries.require(key)
            if state.committed:
                return None
            end = self._clock() + lease_s
            self._entries.put(txn, dataclasses.replace(state, lease_expire_time=end))
            return end

        return self._entries.change(renew)

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
        corrupt: list[tuple[EntryKey, DataCorrupt]] = []
        next_page_token = ""
        with self._entries.read() as txn:
            for entry_id in self._entries.rows.entry_ids_after(txn, namespace, page_token):
                state = self._entries.find((namespace, entry_id))
                if state is None or not (state.committed or include_uncommitted):
                    continue
                if len(page) == page_size:
                    next_page_token = page[-1].entry_id
                    break
                try:
                    page.append(self._entries.stored_entry(txn, state))
                except DataCorrupt as error:
                    corrupt.append((state.key, error))
        for key, found in corrupt:
            self._entries.remove_corrupt(key, found)
        return StoredEntryPage(tuple(page), next_page_token)

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)

        def pin(txn: Transaction) -> list[bool]:
            states = [self._entries.live(txn, (namespace, entry_id)) for entry_id in entry_ids]
            for state in states:
                if state is not None and state.pinned != pinned:
                    self._entries.put(txn, dataclasses.replace(state, pinned=pinned))
            return [state is not None for state in states]

        return self._entries.change(pin)

    def adopt_entries(self, namespace: str, entries: Sequence[StoredEntry]) -> list[bool]:
        """See ``MovableStore``."""
        namespace = checked_namespace(namespace)
        self._check_open()

        def adopt(txn: Transaction) -> list[bool]:
            states = [self._entries.live(txn, (namespace, entry.entry_id)) for entry in entries]
            for state, entry in zip(states, entries, strict=True):
                if state is not None:
                    self._entries.adopt(txn, state.as_adopted(entry))
            return [state is not None for state in states]

        return self._entries.change(adopt)

    def namespaces(self) -> list[str]:
        """See ``MovableStore``."""
        self._check_open()
        return self._entries.table.namespaces()

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)

        def delete(txn: Transaction) -> list[bool]:
            found = []
            for entry_id in entry_ids:
                found.append(self._entries.live(txn, (namespace, entry_id)) is not None)
                if found[-1]:
                    self._entries.remove(txn, (namespace, entry_id), EvictionKind.DELETED)
            return found

        return self._entries.change(delete)

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)

        def delete(txn: Transaction) -> int:
            keys = [state.key for state in self._entries.table.in_namespace(namespace)]
            live = [key for key in keys if self._entries.live(txn, key) is not None]
            for key in live:
                self._entries.remove(txn, key, EvictionKind.DELETED)
            return len(live)

        return self._entries.change(delete)

    def get_stats(self, namespace: str) -> StoreStats:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        self._check_open()
        return dataclasses.replace(
            self._entries.table.stats(namespace, self._clock()),
            quota_bytes=self._quotas.namespace_bytes,
            disk_bytes=self._entries.disk_bytes(),
            evicted_count=self._entries.evicted_count,
        )

    def totals(self) -> StoreTotals:
        """What the store holds, all namespaces together."""
        entries = self._entries
        return StoreTotals(
            entries.table.entry_count(),
            entries.table.size_bytes(),
            entries.disk_bytes(),
            dict(entries.log.published),
        )

    def get_capabilities(self) -> StoreCapabilities:
        """See ``LatentStore``."""
        self._check_open()
        return self._capabilities

    def watch_evictions(self, namespace: str, after_sequence: int = 0) -> LogWatch:
        """See ``LatentStore``."""
        self._check_open()
        return self._entries.log.watch(
            checked_namespace(namespace) if namespace else "", after_sequence
        )

    def sweep(self) -> int:
        """Removes what ended by lease or time to live, saves use times; returns how many ended."""
        return self._entries.sweep()

    def close(self) -> None:
        """See ``LatentStore``."""
        if not self._closed:
            self._closed = True
            self._entries.close()

    def _read(
        self,
        namespace: str,
        ref: LatentRef,
        load: Callable[[Transaction, SnapshotRecord], T],
    ) -> tuple[StoredSnapshot, T]:
        """A snapshot, and what ``load`` makes of its record."""
        key = incoming.check_ref(namespace, ref), ref.entry_id
        missing = LatentNotFound(f"no snapshot at step {ref.step_index} of entry {key[1]!r}")
        self._check_open()
        if self._entries.find(key) is None:
            raise missing
        try:
            with self._entries.read() as txn:
                record = self._entries.rows.snapshot(txn, key, ref.step_index)
                if record is None:
                    raise missing
                stored = reference(key[0], record.metadata, record.xxh3_64)
                check_matches(ref, stored)
                loaded = load(txn, record)
        except DataCorrupt as error:
            self._entries.remove_corrupt(key, error)
            raise missing from error
        return StoredSnapshot(stored, record.metadata), loaded

    def _count_use(self, ref: LatentRef) -> None:
        self._entries.table.touch((ref.namespace, ref.entry_id), self._clock())

    def _before_write(
        self, txn: Transaction, key: EntryKey, step_index: int, now: float
    ) -> tuple[EntryState, SnapshotRecord | None]:
        """The entry that is written to, new if need be, and the snapshot that is replaced."""
        state = self._entries.live(txn, key)
        if state is not None:
            try:
                return state, self._entries.rows.snapshot(txn, key, step_index)
            except DataCorrupt:
                self._entries.remove(txn, key, EvictionKind.CORRUPT)
        # Rows of an entry whose own record was damaged may still be there.
        self._entries.rows.delete_entry(txn, key)
        return EntryState(*key, create_time=now, access_time=now), None

    def _entry(self, key: EntryKey) -> StoredEntry:
        state = self._entries.require(key)
        try:
            with self._entries.read() as txn:
                entry = self._entries.stored_entry(txn, state)
        except DataCorrupt as error:
            self._entries.remove_corrupt(key, error)
            raise no_entry(key) from error
        if not entry.snapshots:
            raise no_entry(key)  # Its first write is not committed yet.
        return entry

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
