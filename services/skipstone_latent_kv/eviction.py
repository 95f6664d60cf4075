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
    """Entries by last use, oldest first.

    A lazy heap: a read does not move the entry (that would cost every read a reordering); instead
    ``take`` puts back what was used since it was queued. Not thread-safe; its table locks.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, EntryKey]] = []
        self._queued: set[EntryKey] = set()

    def offer(self, key: EntryKey, last_use: int) -> None:
        """Queues an entry unless it is queued already."""
        if key not in self._queued:
            self._queued.add(key)
            heapq.heappush(self._heap, (last_use, key))

    def take(
        self, find: Callable[[EntryKey], EntryState | None], keep: EntryKey
    ) -> EntryState | None:
        """Takes out the evictable entry that was unused longest.

        Args:
            find: The present state of an entry.
            keep: An entry that must stay; it remains queued.

        Returns:
            The entry; None when none may go.
        """
        kept = False
        try:
            while self._heap:
                last_use, key = heapq.heappop(self._heap)
                self._queued.discard(key)
                state = find(key)
                if state is None or not state.is_evictable:
                    continue  # It is offered again when it comes back or is unpinned.
                if key == keep:
                    kept = True
                elif state.last_use > last_use:
                    self.offer(key, state.last_use)
                else:
                    return state
            return None
        finally:
            if kept and (state := find(keep)) is not None:
                self.offer(keep, state.last_use)


@dataclasses.dataclass(frozen=True, slots=True)
class Quotas:
    """Byte bounds on snapshots; 0 means none.

    Attributes:
        total_bytes: Of all namespaces together.
        namespace_bytes: Of each namespace.
    """

    total_bytes: int = 0
    namespace_bytes: int = 0

    @property
    def largest_value(self) -> int:
        """Bytes of the largest entry that fits; 0 for no bound."""
        return min((q for q in (self.total_bytes, self.namespace_bytes) if q), default=0)


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
