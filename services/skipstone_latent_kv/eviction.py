"""Which entries go when there is no room: least recently used first, within two byte quotas."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from skipstone_shared.errors import QuotaExceeded

if TYPE_CHECKING:
    from skipstone_latent_kv.entry_table import EntryKey, EntryState, EntryTable


class EvictionQueue:
    """Evictable entries by last use, oldest first.

    A lazy heap: a read does not move the entry (that would cost every read a reordering); instead
    ``take`` puts back what was used since it was queued. Not thread-safe; its table locks.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, EntryKey]] = []
        self._queued: dict[EntryKey, int] = {}

    def __len__(self) -> int:
        """Places in memory, those left behind included."""
        return len(self._heap)

    def offer(self, key: EntryKey, last_use: int) -> None:
        """Queues an entry unless it is queued already."""
        if key not in self._queued:
            self._queued[key] = last_use
            heapq.heappush(self._heap, (last_use, key))

    def discard(self, key: EntryKey) -> None:
        """Takes an entry out, if it is in."""
        self._queued.pop(key, None)
        # Its place in the heap is left behind; without this a store that never fills up would
        # collect one of every entry that it ever had.
        if len(self._heap) > 2 * len(self._queued) + 64:
            self._heap = [(last_use, key) for key, last_use in self._queued.items()]
            heapq.heapify(self._heap)

    def take(
        self, find: Callable[[EntryKey], EntryState | None], keep: EntryKey
    ) -> EntryState | None:
        """Takes out the entry that was unused longest.

        Args:
            find: The present state of an entry.
            keep: An entry that must stay; it remains queued.

        Returns:
            The entry; None when none may go.
        """
        kept: EntryState | None = None
        taken: EntryState | None = None
        while self._heap and taken is None:
            last_use, key = heapq.heappop(self._heap)
            if self._queued.get(key) != last_use:
                continue  # A place left behind.
            del self._queued[key]
            state = find(key)
            if key == keep:
                kept = state
            elif state is not None and state.last_use > last_use:
                self.offer(key, state.last_use)
            else:
                taken = state
        if kept is not None:
            self.offer(keep, kept.last_use)
        return taken


@dataclasses.dataclass(frozen=True, slots=True)
class Quotas:
    """Byte bounds on snapshots; 0 means none.

    Attributes:
        total_bytes: Of all namespaces together.
        namespace_bytes: Of each namespace.
    """

    total_bytes: int = 0
    namespace_bytes: int = 0

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
    namespace = key[0]
    bounds: tuple[tuple[str | None, int], ...] = (
        (namespace, quotas.namespace_bytes),
        (None, quotas.total_bytes),
    )
    for scope, quota in bounds:
        freed = sum(v.size_bytes for v in victims.values() if scope in (None, v.namespace))
        excess = table.size_bytes(scope) + growth - freed - quota if quota else 0
        while excess > 0:
            victim = table.take_oldest(scope, key)
            if victim is None:
                for state in victims.values():
                    table.requeue(state)
                where = f"namespace {namespace!r}" if scope else "the store"
                raise QuotaExceeded(
                    f"{growth} more bytes do not fit into {where}: quota {quota}, "
                    f"{table.size_bytes(scope)} in use, and no more can be evicted"
                )
            if (
                victim.key not in victims
            ):  # The total's queue still holds what the namespace's gave.
                victims[victim.key] = victim
                excess -= victim.size_bytes
    return list(victims.values())
