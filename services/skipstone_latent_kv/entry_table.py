"""What a store knows about its entries in memory: sizes, use, leases; no snapshots, no bytes.

Quotas, eviction order and statistics are answered from here, so that none of them has to walk the
disk. With it a process takes about 1.7 kB per entry (docs/capacity.md).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from skipstone_latent_kv.eviction import EvictionQueue
from skipstone_latent_kv.eviction_policies import EvictionPolicy
from skipstone_shared.stored_entries import EvictionKind, StoredEntry, StoredSnapshot, StoreStats

EntryKey = tuple[str, str]
"""Namespace and entry id."""

_BEFORE_ALL_USES = 10**14
"""Milliseconds since the epoch less this are below every number of a use until the year 5138."""


@dataclasses.dataclass(frozen=True, slots=True)
class EntryState:
    """One entry; times are seconds since the epoch.

    ``first_use`` and ``last_use`` number the uses of the store; ``skip_steps`` is the highest step
    of its snapshots. Policies order entries by them, see ``UsedEntry``.
    """

    namespace: str
    entry_id: str
    create_time: float
    access_time: float
    size_bytes: int = 0
    snapshot_count: int = 0
    read_count: int = 0
    committed: bool = False
    lease_expire_time: float | None = None
    pinned: bool = False
    skip_steps: int = 0
    first_use: int = 0
    last_use: int = 0

    @property
    def key(self) -> EntryKey:
        """Namespace and entry id."""
        return self.namespace, self.entry_id

    @property
    def is_evictable(self) -> bool:
        """Whether it may be removed to make room."""
        return self.committed and not self.pinned

    def with_snapshot(
        self, step_index: int, growth: int, is_new: bool, lease_expire_time: float
    ) -> EntryState:
        """The entry after a snapshot was written; the lease binds it unless it is committed."""
        return dataclasses.replace(
            self,
            size_bytes=self.size_bytes + growth,
            snapshot_count=self.snapshot_count + is_new,
            skip_steps=max(self.skip_steps, step_index),
            lease_expire_time=None if self.committed else lease_expire_time,
        )

    def as_committed(self) -> EntryState:
        """The entry without a lease."""
        return dataclasses.replace(self, committed=True, lease_expire_time=None)

    def as_adopted(self, entry: StoredEntry) -> EntryState:
        """The entry, committed, with the history that it had in another store."""
        return dataclasses.replace(
            self.as_committed(),
            create_time=entry.create_time,
            access_time=entry.access_time,
            read_count=entry.read_count,
            pinned=entry.pinned,
            first_use=use_elsewhere(entry.create_time),
            last_use=use_elsewhere(entry.access_time),
        )

    def stored_entry(self, snapshots: Iterable[StoredSnapshot]) -> StoredEntry:
        """The entry as stores answer it."""
        return StoredEntry(
            entry_id=self.entry_id,
            snapshots=tuple(snapshots),
            create_time=self.create_time,
            access_time=self.access_time,
            read_count=self.read_count,
            committed=self.committed,
            lease_expire_time=self.lease_expire_time,
            pinned=self.pinned,
        )

    def end(self, ttl_s: float, now: float) -> EvictionKind | None:
        """Why the entry is over, None while it is not."""
        if self.lease_ended(now):
            return EvictionKind.LEASE_ENDED
        return EvictionKind.EXPIRED if self.outlived(ttl_s, now) else None

    def lease_ended(self, now: float) -> bool:
        """Whether it was never committed and its lease is over."""
        return self.lease_expire_time is not None and self.lease_expire_time <= now

    def outlived(self, ttl_s: float, now: float) -> bool:
        """Whether its time to live is over; 0 means none."""
        return ttl_s > 0 and self.is_evictable and self.create_time + ttl_s <= now


def use_elsewhere(time: float) -> int:
    """The number of a use in another store, by its time: before all uses of this one."""
    return int(time * 1000) - _BEFORE_ALL_USES


class _Namespace:
    """The entries of one namespace with their totals."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self.states: dict[str, EntryState] = {}
        self.uncommitted: set[str] = set()
        self.queue = EvictionQueue(policy)
        self.size_bytes = 0
        self.snapshot_count = 0

    def replace(self, entry_id: str, state: EntryState | None) -> int:
        """Puts or removes an entry; returns the growth in bytes."""
        before = self.size_bytes
        for sign, side in ((-1, self.states.pop(entry_id, None)), (1, state)):
            if side is not None:
                self.size_bytes += sign * side.size_bytes
                self.snapshot_count += sign * side.snapshot_count
        self.uncommitted.discard(entry_id)
        if state is not None:
            self.states[entry_id] = state
            if not state.committed:
                self.uncommitted.add(entry_id)
        return self.size_bytes - before


class EntryTable:
    """All entries of a store. Every method may be called from any thread.

    Changes can be grouped: what is put and removed inside ``transaction`` is undone when the block
    raises, as the storage beneath undoes its own half.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        """Creates an empty table.

        Args:
            policy: Which entries go first.
        """
        self._policy = policy
        self._lock = threading.RLock()
        self._namespaces: dict[str, _Namespace] = {}
        self._queue = EvictionQueue(policy)
        self._total_bytes = 0
        self._uses = 0
        self._touched: set[EntryKey] = set()
        self._journal: list[tuple[EntryKey, EntryState | None]] | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undoes the block's changes when it raises. For one thread at a time."""
        self._journal = []
        try:
            yield
        except BaseException:
            journal, self._journal = self._journal, None
            with self._lock:
                for key, before in reversed(journal):
                    self._replace(key, before)
            raise
        finally:
            self._journal = None

    def get(self, key: EntryKey) -> EntryState | None:
        """The entry, None when there is none."""
        with self._lock:
            namespace = self._namespaces.get(key[0])
            return namespace.states.get(key[1]) if namespace else None

    def load(self, states: Sequence[EntryState]) -> None:
        """Fills an empty table with the entries of an earlier process.

        Their uses are numbered anew in the order of their times: all creations, then all last uses.
        """
        with self._lock:
            created = sorted(states, key=lambda state: state.create_time)
            first_uses = {state.key: number for number, state in enumerate(created, 1)}
            used = sorted(created, key=lambda state: state.access_time)
            for number, state in enumerate(used, len(used) + 1):
                key = state.key
                numbered = dataclasses.replace(state, first_use=first_uses[key], last_use=number)
                self._replace(key, numbered)
            self._uses = 2 * len(used)

    def put(self, state: EntryState, used: bool = False) -> None:
        """Adds or replaces an entry.

        Args:
            state: The entry.
            used: Whether this is a use of it.
        """
        with self._lock:
            self._record(state.key)
            if used:
                self._uses += 1
                first_use = state.first_use or self._uses
                state = dataclasses.replace(state, first_use=first_use, last_use=self._uses)
            self._replace(state.key, state)

    def adopt(self, state: EntryState) -> None:
        """Replaces an entry by one whose uses may be earlier than those it had."""
        with self._lock:
            self._record(state.key)
            self._replace(state.key, None)  # Queues only look again at what ranks higher.
            self._replace(state.key, state)

    def remove(self, key: EntryKey) -> None:
        """Removes an entry that is there."""
        with self._lock:
            self._record(key)
            self._replace(key, None)

    def touch(self, key: EntryKey, now: float) -> None:
        """Counts a read. An entry that has gone meanwhile is left alone."""
        with self._lock:
            state = self.get(key)
            if state is None:
                return
            self._uses += 1
            # The queue finds out by itself, see EvictionQueue; totals do not change.
            self._namespaces[key[0]].states[key[1]] = dataclasses.replace(
                state, access_time=now, read_count=state.read_count + 1, last_use=self._uses
            )
            self._touched.add(key)

    def take_touched(self) -> list[EntryState]:
        """The entries read since the last call that are still there."""
        with self._lock:
            touched, self._touched = self._touched, set()
            return [state for key in touched if (state := self.get(key)) is not None]

    def namespaces(self) -> list[str]:
        """Namespaces that have entries, ascending."""
        with self._lock:
            return sorted(self._namespaces)

    def in_namespace(self, namespace: str) -> list[EntryState]:
        """The entries of a namespace, in no order."""
        with self._lock:
            found = self._namespaces.get(namespace)
            return list(found.states.values()) if found else []

    def over(self, ttl_s: float, now: float) -> list[tuple[EntryState, EvictionKind]]:
        """The entries whose lease or time to live is over, and which; 0 means no time to live."""
        with self._lock:
            candidates = [
                namespace.states[entry_id]
                for namespace in self._namespaces.values()
                # Only a time to live can end committed entries; there are many of them.
                for entry_id in (namespace.states if ttl_s else namespace.uncommitted)
            ]
            return [(s, kind) for s in candidates if (kind := s.end(ttl_s, now)) is not None]

    def size_bytes(self, namespace: str | None = None) -> int:
        """Bytes of all snapshots in a namespace, or in all of them."""
        with self._lock:
            if namespace is None:
                return self._total_bytes
            found = self._namespaces.get(namespace)
            return found.size_bytes if found else 0

    def entry_count(self) -> int:
        """Entries of all namespaces, uncommitted ones too."""
        with self._lock:
            return sum(len(namespace.states) for namespace in self._namespaces.values())

    def take_victim(self, namespace: str | None, keep: EntryKey) -> EntryState | None:
        """Takes the evictable entry that goes first out of its queue; not ``keep``.

        The caller removes the entry or gives it back with ``requeue``.
        """
        with self._lock:
            if namespace is None:
                return self._queue.take(self.get, keep)
            found = self._namespaces.get(namespace)
            return found.queue.take(self.get, keep) if found else None

    def requeue(self, state: EntryState) -> None:
        """Makes an entry that ``take_victim`` took a candidate again."""
        with self._lock:
            self._enqueue(state)

    def stats(self, namespace: str, now: float) -> StoreStats:
        """Counts and bytes of a namespace; the fields of the whole store are 0."""
        with self._lock:
            found = self._namespaces.get(namespace) or _Namespace(self._policy)
            leased = sum(not found.states[i].lease_ended(now) for i in found.uncommitted)
            committed = len(found.states) - len(found.uncommitted)
            return StoreStats(committed, leased, found.snapshot_count, found.size_bytes)

    def _record(self, key: EntryKey) -> None:
        if self._journal is not None:
            self._journal.append((key, self.get(key)))

    def _replace(self, key: EntryKey, state: EntryState | None) -> None:
        namespace = self._namespaces.get(key[0])
        if namespace is None:
            namespace = self._namespaces[key[0]] = _Namespace(self._policy)
        self._total_bytes += namespace.replace(key[1], state)
        if state is not None and state.is_evictable:
            self._enqueue(state)
        else:
            self._queue.discard(key)
            namespace.queue.discard(key)
        if not namespace.states:
            del self._namespaces[key[0]]

    def _enqueue(self, state: EntryState) -> None:
        self._queue.offer(state)
        self._namespaces[state.namespace].queue.offer(state)
