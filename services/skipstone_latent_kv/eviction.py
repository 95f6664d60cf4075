"""Which entries go so that a write stays within two byte quotas."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from skipstone_latent_kv.eviction_policies import EvictionPolicy, Rank
from skipstone_shared.errors import QuotaExceeded

if TYPE_CHECKING:
    from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable

_MOST_EXTRA = 256
"""Entries that one write removes beyond those it needs: freeing a low mark's worth of a large store
at once would hold all other writes for seconds."""


class EvictionQueue:
    """Evictable entries in the order of a policy.

    A lazy heap: a read does not move the entry (that would cost every read a reordering); instead
    ``take`` puts back what ranks higher than when it was queued. Not thread-safe; its table locks.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        """Creates an empty queue.

        Args:
            policy: Who goes first.
        """
        self._policy = policy
        self._heap: list[tuple[Rank, EntryKey]] = []
        self._queued: dict[EntryKey, Rank] = {}

    def __len__(self) -> int:
        """Places in memory, those left behind included."""
        return len(self._heap)

    def offer(self, state: EntryState) -> None:
        """Queues an entry unless it is queued already."""
        if state.key not in self._queued:
            rank = self._policy.rank(state)
            self._queued[state.key] = rank
            heapq.heappush(self._heap, (rank, state.key))

    def discard(self, key: EntryKey) -> None:
        """Takes an entry out, if it is in."""
        self._queued.pop(key, None)
        # Its place in the heap is left behind; without this a store that never fills up would
        # collect one of every entry that it ever had.
        if len(self._heap) > 2 * len(self._queued) + 64:
            self._heap = [(rank, key) for key, rank in self._queued.items()]
            heapq.heapify(self._heap)

    def take(
        self, find: Callable[[EntryKey], EntryState | None], keep: EntryKey
    ) -> EntryState | None:
        """Takes out the entry that goes first.

        Args:
            find: The present state of an entry.
            keep: An entry that must stay; it remains queued.

        Returns:
            The entry; None when none may go.
        """
        kept: EntryState | None = None
        taken: EntryState | None = None
        while self._heap and taken is None:
            rank, key = heapq.heappop(self._heap)
            if self._queued.get(key) != rank:
                continue  # A place left behind.
            del self._queued[key]
            state = find(key)
            if key == keep:
                kept = state
            elif state is not None and self._policy.rank(state) > rank:
                self.offer(state)
            else:
                taken = state
        if kept is not None:
            self.offer(kept)
        return taken


@dataclasses.dataclass(frozen=True, slots=True)
class Quotas:
    """Byte bounds on snapshots; 0 means none.

    Attributes:
        total_bytes: Of all namespaces together.
        namespace_bytes: Of each namespace.
        high_water: Share of a quota above which a write evicts, above 0 and up to 1. What may not
            be evicted can fill the rest.
        low_water: Share of a quota down to which it then evicts, so that the next writes need not;
            at most ``high_water``.
    """

    total_bytes: int = 0
    namespace_bytes: int = 0
    high_water: float = 1.0
    low_water: float = 1.0

    def largest_snapshot(self, limit: int) -> int:
        """Bytes of the largest snapshot that fits, at most ``limit``."""
        return min(self.total_bytes or limit, self.namespace_bytes or limit, limit)

    def check_fits(self, size_bytes: int) -> None:
        """Refuses what no eviction makes room for, before any of its bytes are received.

        Raises:
            QuotaExceeded: the snapshot alone exceeds a quota.
        """
        largest = self.largest_snapshot(size_bytes)
        if size_bytes > largest:
            raise QuotaExceeded(
                f"a snapshot of {size_bytes} bytes exceeds a quota "
                f"(total {self.total_bytes}, namespace {self.namespace_bytes}; 0: none)",
                field="size_bytes",
                allowed=f"up to {largest}",
            )


def make_room(table: EntryTable, quotas: Quotas, key: EntryKey, growth: int) -> list[EntryState]:
    """The entries to remove so that the entry ``key`` may grow by ``growth`` bytes.

    The caller removes them; nothing is removed here. The namespace's own quota is met first, with
    its own entries, then the total, with entries of all namespaces.

    Raises:
        QuotaExceeded: even removing all that may be removed makes no room; nothing has changed.
    """
    victims: dict[EntryKey, EntryState] = {}
    bounds: tuple[tuple[str | None, int], ...] = (
        (key[0], quotas.namespace_bytes),
        (None, quotas.total_bytes),
    )
    for scope, quota in bounds:
        if not quota:
            continue
        freed = sum(v.size_bytes for v in victims.values() if scope in (None, v.namespace))
        needed = table.size_bytes(scope) + growth - freed
        if needed > quota * quotas.high_water:
            needed = _evict(table, scope, key, needed, quota, quotas.low_water, victims)
        if needed > quota:
            for state in victims.values():
                table.requeue(state)
            where = f"namespace {scope!r}" if scope else "the store"
            raise QuotaExceeded(
                f"{growth} more bytes do not fit into {where}: quota {quota}, "
                f"{table.size_bytes(scope)} in use, and no more can be evicted"
            )
    return list(victims.values())


def _evict(
    table: EntryTable,
    scope: str | None,
    keep: EntryKey,
    needed: int,
    quota: int,
    low_water: float,
    victims: dict[EntryKey, EntryState],
) -> int:
    """Adds victims until what is needed is at the low mark; returns the bytes needed then."""
    extra = 0
    while needed > quota * low_water and extra < _MOST_EXTRA:
        victim = table.take_victim(scope, keep)
        if victim is None:
            break
        if victim.key not in victims:  # The total's queue still holds what the namespace's gave.
            victims[victim.key] = victim
            extra += needed <= quota
            needed -= victim.size_bytes
    return needed
