"""Takes vectors out of the index whose latents the store has no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from skipstone_orchestrator.backends import EntryIndex, LatentEntries
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.upkeep_counts import UpkeepCounts

_CHECKS_AT_ONCE = 8
"""Reads of the store under way at a time: few, since requests need its threads too."""

_BATCH_SIZE = 64
"""Entries removed in one call. More would only widen the time between check and removal."""


class StaleVectors:
    """Removes what is stale, and only that. Any number of replicas may do the same at once.

    The store is asked again about every entry: a removal that is told late may be of an entry that
    has been saved anew since. Between that answer and the removal are a few milliseconds; an entry
    that is saved anew just then keeps its latents and loses its vector, which costs a later hit and
    never a wrong one.
    """

    def __init__(
        self,
        index: EntryIndex,
        store: LatentEntries,
        guards: Guards,
        counts: UpkeepCounts,
        timeout_s: float,
    ) -> None:
        """Creates it.

        Args:
            index: Has the vectors.
            store: Knows which entries there are.
            guards: Guards of both.
            counts: Where removals are counted.
            timeout_s: Seconds each call may take.
        """
        self._index = index
        self._store = store
        self._guards = guards
        self._counts = counts
        self._timeout_s = timeout_s

    async def remove(self, namespace: str, entry_ids: Sequence[str], found_by: str) -> None:
        """Removes the vectors of those entries that the store does not have.

        Args:
            namespace: Namespace of the entries.
            entry_ids: Entries to look at.
            found_by: EVICTION or RECONCILE, for the metrics.

        Raises:
            SkipstoneError: A service did not answer; the call may be repeated.
        """
        for batch in _cut(entry_ids, _BATCH_SIZE):
            gone: list[str] = []
            for some in _cut(batch, _CHECKS_AT_ONCE):
                stored = await asyncio.gather(*(self._is_stored(namespace, id_) for id_ in some))
                gone += [id_ for id_, there in zip(some, stored, strict=True) if not there]
            if gone:
                await self._delete(namespace, gone, found_by)

    async def _is_stored(self, namespace: str, entry_id: str) -> bool:
        """Whether the store has an entry, be it one that a run is writing at this moment."""
        return await self._guards.store.finds(
            lambda: self._store.get_entry(namespace, entry_id), self._timeout_s
        )

    async def _delete(self, namespace: str, entry_ids: Sequence[str], found_by: str) -> None:
        existed = await self._guards.index.call(
            lambda: self._index.delete_entries(namespace, entry_ids), self._timeout_s
        )
        self._counts.count_vectors(found_by, sum(existed))


def _cut(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
