"""Follows what latent_kv removes, so that its vectors do not stay behind in vector_index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from skipstone_orchestrator.backends import LatentEntries
from skipstone_orchestrator.stale_vectors import StaleVectors
from skipstone_orchestrator.upkeep_counts import EVICTION, UpkeepCounts
from skipstone_shared.errors import InvalidArgument, SkipstoneError
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind
from skipstone_shared.structured_logging import get_logger

_RETRY_S = 1.0
_BATCH_SIZE = 256
_LINGER_S = 0.02
"""How long a batch waits for one event more. A store that must make room removes several entries
in one go."""

Pause = Callable[[float], Awaitable[object]]
"""Waits for some seconds; `asyncio.sleep`."""


class EvictionFollower:
    """Removes the vectors of what the store removes. Any number of replicas may follow.

    A batch is tried until its vectors are gone, while the store keeps what comes after it. A watch
    that breaks starts again behind the last batch; removing twice is harmless. Where events were
    missed (at the start of the replica, after a gap, from a store with a new history) a reconcile
    pass is asked for.
    """

    def __init__(
        self,
        store: LatentEntries,
        stale: StaleVectors,
        counts: UpkeepCounts,
        *,
        on_missed: Callable[[], None],
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Creates the follower; `run` does the work.

        Args:
            store: Tells its removals.
            stale: Removes vectors.
            counts: Where events are counted.
            on_missed: Called when removals may have gone by unseen; must not wait.
            pause: Waits before the next try.
        """
        self._store = store
        self._stale = stale
        self._counts = counts
        self._on_missed = on_missed
        self._pause = pause
        self._last_sequence = 0
        self._in_trouble = False

    async def run(self) -> None:
        """Follows for ever."""
        while True:
            try:
                await self._follow()
            except InvalidArgument as error:
                # The store has never come to our number: it was emptied, or is another one.
                self._last_sequence = 0
                self._log_trouble(error)
            except SkipstoneError as error:
                self._log_trouble(error)
            await self._pause(_RETRY_S)

    async def _follow(self) -> None:
        events = await self._store.watch_evictions("", self._last_sequence)
        try:
            self._in_trouble = False
            if self._last_sequence == 0:
                self._on_missed()
            async for batch in _batches(events):
                await self._work_off(batch)
        finally:
            events.close()

    async def _work_off(self, batch: Sequence[EvictionEvent]) -> None:
        while True:
            try:
                await self._remove(batch)
                break
            except SkipstoneError as error:
                self._log_trouble(error)
                await self._pause(_RETRY_S)
        self._in_trouble = False
        for event in batch:
            self._counts.count_event(event.kind)
        self._last_sequence = batch[-1].sequence

    async def _remove(self, batch: Sequence[EvictionEvent]) -> None:
        entry_ids: dict[str, list[str]] = {}
        for event in batch:
            if event.kind is EvictionKind.GAP:
                self._on_missed()
            else:
                entry_ids.setdefault(event.namespace, []).append(event.entry_id)
        for namespace, ids in entry_ids.items():
            await self._stale.remove(namespace, list(dict.fromkeys(ids)), EVICTION)

    def _log_trouble(self, error: SkipstoneError) -> None:
        if not self._in_trouble:  # once per outage, not once per try
            get_logger().warning(
                "evictions are not followed", reason=error.reason, error=error.message
            )
        self._in_trouble = True


async def _batches(events: AsyncIterator[EvictionEvent]) -> AsyncIterator[list[EvictionEvent]]:
    """Groups events that come close together; ends or raises where they do, and loses none."""
    coming = asyncio.ensure_future(anext(events))
    try:
        while True:
            try:
                batch = [await coming]
            except StopAsyncIteration:
                return
            coming = asyncio.ensure_future(anext(events))
            while len(batch) < _BATCH_SIZE and await _arrives(coming):
                batch.append(coming.result())
                coming = asyncio.ensure_future(anext(events))
            yield batch
    finally:
        coming.cancel()


async def _arrives(coming: asyncio.Future[EvictionEvent]) -> bool:
    """Whether an event arrives soon; the wait is not a timeout, which would end the watch."""
    await asyncio.wait({coming}, timeout=_LINGER_S)
    return coming.done() and coming.exception() is None
