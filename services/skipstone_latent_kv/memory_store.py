"""The store that keeps everything in memory: for tests, and the reference the others must equal."""

from __future__ import annotations

import bisect
import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from skipstone_latent_kv import incoming
from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable
from skipstone_latent_kv.eviction import Quotas, make_room
from skipstone_latent_kv.eviction_log import EvictionLog, LogWatch
from skipstone_latent_kv.eviction_policies import EvictionPolicy, LeastRecentlyUsed
from skipstone_latent_kv.references import check_matches, reference
from skipstone_latent_kv.store_metrics import StoreTotals
from skipstone_shared.errors import EntryNotFound, LatentNotFound, Unavailable
from skipstone_shared.latents import (
    LatentRef,
    SnapshotMetadata,
    checked_entry_id,
    checked_namespace,
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


class MemoryStore:
    """A ``LatentStore`` in the memory of this process; one lock, nothing survives the process."""

    def __init__(
        self,
        quotas: Quotas = Quotas(),  # noqa: B008 - frozen
        policy: EvictionPolicy = LeastRecentlyUsed(),  # noqa: B008 - stateless
        ttl_s: float = 0.0,
        max_snapshot_bytes: int = 256 << 20,
        event_history: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Creates an empty store.

        Args:
            quotas: Byte bounds.
            policy: Which entries go first when a bound is reached.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            max_snapshot_bytes: Largest snapshot.
            event_history: Eviction events kept.
            clock: Seconds since the epoch.
        """
        self._quotas = quotas
        self._ttl_s = ttl_s
        self._clock = clock
        self._capabilities = StoreCapabilities(
            engine="memory",
            max_snapshot_bytes=quotas.largest_snapshot(max_snapshot_bytes),
            durability="none",
        )
        self._lock = threading.RLock()
        self._table = EntryTable(policy)
        self._log = EvictionLog(event_history)
        self._snapshots: dict[EntryKey, dict[int, Snapshot]] = {}
        self._evicted = 0
        self._closed = False

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
        ref = reference(key[0], metadata, xxh3_64)
        with self._open_lock():
            now = self._clock()
            self._remove_over(now, ttl_s=0.0)
            state = self._live(key) or EntryState(*key, create_time=now, access_time=now)
            before = self._snapshots.get(key, {}).get(metadata.step_index)
            growth = size_bytes - (before.ref.size_bytes if before else 0)
            for victim in make_room(self._table, self._quotas, key, growth):
                self._remove(victim.key, EvictionKind.CAPACITY)
            snapshot = Snapshot(ref, metadata, received.toreadonly())
            self._snapshots.setdefault(key, {})[metadata.step_index] = snapshot
            state = state.with_snapshot(metadata.step_index, growth, before is None, now + lease_s)
            self._table.put(state, used=True)
        return ref

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``."""
        with self._open_lock():
            snapshot = self.peek_latent(namespace, ref)
            self._table.touch((snapshot.ref.namespace, ref.entry_id), self._clock())
            return snapshot

    def peek_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``MovableStore``."""
        key = incoming.check_ref(namespace, ref), ref.entry_id
        with self._open_lock():
            snapshot = self._snapshots.get(key, {}).get(ref.step_index)
            if snapshot is None or self._find(key) is None:
                raise LatentNotFound(f"no snapshot at step {ref.step_index} of entry {key[1]!r}")
            check_matches(ref, snapshot.ref)
            return snapshot

    def touch_latent(self, namespace: str, ref: LatentRef) -> StoredSnapshot:
        """See ``LatentStore``."""
        snapshot = self.read_latent(namespace, ref)
        return StoredSnapshot(snapshot.ref, snapshot.metadata)

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        with self._open_lock():
            state = self._existing(namespace, entry_id)
            if not state.committed:
                self._table.put(state.as_committed())
            return self._entry(state.key)

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        lease_s = incoming.check_lease(lease_s, self._capabilities)
        with self._open_lock():
            state = self._existing(namespace, entry_id)
            if state.committed:
                return None
            end = self._clock() + lease_s
            self._table.put(dataclasses.replace(state, lease_expire_time=end))
            return end

    def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        with self._open_lock():
            return self._entry(self._existing(namespace, entry_id).key)

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
        with self._open_lock():
            keys = sorted(
                state.key
                for state in self._table.in_namespace(namespace)
                if (state.committed or include_uncommitted) and self._find(state.key)
            )
            start = bisect.bisect_right(keys, (namespace, page_token)) if page_token else 0
            page = keys[start : start + page_size]
            token = page[-1][1] if start + page_size < len(keys) else ""
            return StoredEntryPage(tuple(self._entry(key) for key in page), token)

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)
        found = []
        with self._open_lock():
            for entry_id in entry_ids:
                state = self._find((namespace, entry_id))
                if state is not None and state.pinned != pinned:
                    self._table.put(dataclasses.replace(state, pinned=pinned))
                found.append(state is not None)
        return found

    def adopt_entries(self, namespace: str, entries: Sequence[StoredEntry]) -> list[bool]:
        """See ``MovableStore``."""
        namespace = checked_namespace(namespace)
        found = []
        with self._open_lock():
            for entry in entries:
                state = self._find((namespace, entry.entry_id))
                if state is not None:
                    self._table.adopt(state.as_adopted(entry))
                found.append(state is not None)
        return found

    def namespaces(self) -> list[str]:
        """See ``MovableStore``."""
        with self._open_lock():
            return self._table.namespaces()

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)
        found = []
        with self._open_lock():
            for entry_id in entry_ids:
                found.append(self._live((namespace, entry_id)) is not None)
                if found[-1]:
                    self._remove((namespace, entry_id), EvictionKind.DELETED)
        return found

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        with self._open_lock():
            self._remove_over(self._clock(), self._ttl_s)
            states = self._table.in_namespace(namespace)
            for state in states:
                self._remove(state.key, EvictionKind.DELETED)
            return len(states)

    def get_stats(self, namespace: str) -> StoreStats:
        """See ``LatentStore``; nothing is on disk."""
        namespace = checked_namespace(namespace)
        with self._open_lock():
            return dataclasses.replace(
                self._table.stats(namespace, self._clock()),
                quota_bytes=self._quotas.namespace_bytes,
                evicted_count=self._evicted,
            )

    def totals(self) -> StoreTotals:
        """What the store holds, all namespaces together; nothing is on disk."""
        table = self._table
        return StoreTotals(table.entry_count(), table.size_bytes(), 0, dict(self._log.published))

    def get_capabilities(self) -> StoreCapabilities:
        """See ``LatentStore``."""
        with self._open_lock():
            return self._capabilities

    def watch_evictions(self, namespace: str, after_sequence: int = 0) -> LogWatch:
        """See ``LatentStore``."""
        with self._open_lock():
            return self._log.watch(
                checked_namespace(namespace) if namespace else "", after_sequence
            )

    def sweep(self) -> int:
        """Removes what ended by lease or time to live; returns how many entries."""
        with self._open_lock():
            return self._remove_over(self._clock(), self._ttl_s)

    def close(self) -> None:
        """See ``LatentStore``."""
        with self._lock:
            self._closed = True
            self._log.close()
            self._snapshots.clear()

    @contextmanager
    def _open_lock(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise Unavailable("the store is closed")
            yield

    def _find(self, key: EntryKey) -> EntryState | None:
        """The entry unless it is over."""
        state = self._table.get(key)
        return None if state is None or state.end(self._ttl_s, self._clock()) else state

    def _live(self, key: EntryKey) -> EntryState | None:
        """The entry; one that is over is removed first."""
        state = self._table.get(key)
        if state is not None and (kind := state.end(self._ttl_s, self._clock())):
            self._remove(key, kind)
            return None
        return state

    def _existing(self, namespace: str, entry_id: str) -> EntryState:
        key = checked_namespace(namespace), checked_entry_id(entry_id)
        state = self._find(key)
        if state is None:
            raise EntryNotFound(f"no entry {key[1]!r} in namespace {key[0]!r}")
        return state

    def _entry(self, key: EntryKey) -> StoredEntry:
        state = self._existing(*key)
        snapshots = sorted(self._snapshots[key].items())
        return state.stored_entry(StoredSnapshot(s.ref, s.metadata) for _, s in snapshots)

    def _remove(self, key: EntryKey, kind: EvictionKind) -> None:
        self._table.remove(key)
        del self._snapshots[key]
        self._evicted += kind is not EvictionKind.DELETED
        self._log.publish(self._log.number([(kind, *key)]))

    def _remove_over(self, now: float, ttl_s: float) -> int:
        over = self._table.over(ttl_s, now)
        for state, kind in over:
            self._remove(state.key, kind)
        return len(over)
