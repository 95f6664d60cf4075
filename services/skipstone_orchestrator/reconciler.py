"""The slow pass that finds what fell between latent_kv and vector_index.

Removals are followed as they happen and stale vectors are repaired on read. What both miss, because
a replica was not there or a save broke off in the middle, is found by comparing the two stores:

    a vector without an entry    can never be resumed from: it is removed
    an entry without a vector    can never be a donor: it is removed once it was neither used nor
                                 made findable for the grace time, unless it is pinned

The grace time is waited out beside the passes: minutes in which a vector without an entry would
cost every request that finds it a read for nothing.

Entries that are not committed are left to their lease. A namespace without any vector is left
alone: more likely the index was lost, and its entries still answer exact repeats until they are
evicted.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

from skipstone_orchestrator.backends import EntryIndex, LatentEntries
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.eviction_follower import Pause
from skipstone_orchestrator.paging import all_pages
from skipstone_orchestrator.stale_vectors import StaleVectors
from skipstone_orchestrator.upkeep_counts import RECONCILE, UpkeepCounts
from skipstone_shared.errors import EntryNotFound, SkipstoneError
from skipstone_shared.index_entries import IndexEntry, IndexPage, NamespacePage
from skipstone_shared.stored_entries import StoredEntry, StoredEntryPage
from skipstone_shared.structured_logging import get_logger

_PAGE_SIZE = 100
_RETRY_S = 10.0
_MAX_SUSPECTS = 10_000
"""Entries without a vector that one pass remembers, 1 MB; the next pass finds the others."""

Suspects = dict[tuple[str, str], float]
"""When entries without a vector were used last, by namespace and id."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReconcileLimits:
    """How stores are compared.

    Attributes:
        interval_s: Seconds between passes; 0: only when one is asked for.
        entries_per_s: Entries compared per second at most.
        grace_s: Seconds for which an entry must have stayed unused and without a vector.
        removes_entries: Whether entries without a vector are removed from the store.
        timeout_s: Seconds each call may take.
    """

    interval_s: float
    entries_per_s: float
    grace_s: float
    removes_entries: bool
    timeout_s: float


class Reconciler:
    """Compares both stores, a page at a time. Any number of replicas may do so at once."""

    def __init__(
        self,
        index: EntryIndex,
        store: LatentEntries,
        guards: Guards,
        stale: StaleVectors,
        counts: UpkeepCounts,
        limits: ReconcileLimits,
        *,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Creates the reconciler; `run` does the work.

        Args:
            index: Has the vectors.
            store: Has the entries.
            guards: Guards of both.
            stale: Removes vectors without an entry.
            counts: Where passes and removals are counted.
            limits: How stores are compared.
            pause: Waits between pages, for the grace time, and after trouble.
        """
        self._index = index
        self._store = store
        self._guards = guards
        self._stale = stale
        self._counts = counts
        self._limits = limits
        self._pause = pause
        self._asked = asyncio.Event()
        self._suspects: asyncio.Queue[Suspects] = asyncio.Queue()

    def ask(self) -> None:
        """Asks for a pass soon: removals may have been missed. One that runs is not enough."""
        self._asked.set()

    async def run(self) -> None:
        """Runs a pass whenever one is due, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_passes())
            tasks.create_task(self._run_second_looks())

    async def compare(self) -> Suspects:
        """Compares all namespaces that have vectors, and removes vectors without an entry.

        Returns:
            The entries without a vector.

        Raises:
            SkipstoneError: A service did not answer; what was found until then is removed.
        """
        namespaces = [namespace async for namespace in self._namespaces()]
        for namespace in namespaces:
            await self._remove_vectors(namespace)
        suspects: Suspects = {}
        if self._limits.removes_entries:
            for namespace in namespaces:
                await self._find_suspects(namespace, suspects)
        return suspects

    async def look_again(self, suspects: Suspects) -> None:
        """Removes the entries that stay without a vector and unused for the grace time.

        An entry is committed just before its vector is written, so one without a vector may be on
        its way. The time is counted here and not from the entry's own times: a run may take long,
        and clocks of machines differ.

        Args:
            suspects: From `compare`.

        Raises:
            SkipstoneError: A service did not answer; what was found until then is removed.
        """
        if suspects:
            await self._pause(self._limits.grace_s)
        for (namespace, entry_id), access_time in suspects.items():
            await self._pace("latent_kv", 1)
            if await self._is_orphan_still(namespace, entry_id, access_time):
                await self._delete_entry(namespace, entry_id)

    async def _run_passes(self) -> None:
        while True:
            await self._until_due()
            self._asked.clear()
            try:
                suspects = await self.compare()
            except SkipstoneError as error:
                self._count_failed(error)
                await self._pause(_RETRY_S)
            else:
                self._counts.count_pass("done")
                if suspects and self._suspects.empty():
                    self._suspects.put_nowait(suspects)  # else the next pass finds them again

    async def _run_second_looks(self) -> None:
        while True:
            suspects = await self._suspects.get()
            try:
                await self.look_again(suspects)
            except SkipstoneError as error:
                self._count_failed(error)

    def _count_failed(self, error: SkipstoneError) -> None:
        self._counts.count_pass("failed")
        get_logger().warning("reconcile pass failed", reason=error.reason, error=error.message)
        self._asked.set()

    async def _until_due(self) -> None:
        try:
            async with asyncio.timeout(self._limits.interval_s or None):
                await self._asked.wait()
        except TimeoutError:
            pass

    async def _remove_vectors(self, namespace: str) -> None:
        async for page in self._index_pages(namespace):
            await self._pace("vector_index", len(page))
            await self._stale.remove(namespace, [entry.entry_id for entry in page], RECONCILE)

    async def _find_suspects(self, namespace: str, suspects: Suspects) -> None:
        async for page in self._store_pages(namespace):
            await self._pace("latent_kv", len(page))
            for entry in page:
                if len(suspects) >= _MAX_SUSPECTS:
                    return
                if not entry.pinned and not await self._has_vector(namespace, entry.entry_id):
                    suspects[namespace, entry.entry_id] = entry.access_time

    async def _is_orphan_still(self, namespace: str, entry_id: str, access_time: float) -> bool:
        try:
            entry = await self._guards.store.call(
                lambda: self._store.get_entry(namespace, entry_id), self._limits.timeout_s
            )
        except EntryNotFound:
            return False
        unused = entry.committed and not entry.pinned and entry.access_time == access_time
        return unused and not await self._has_vector(namespace, entry_id)

    async def _has_vector(self, namespace: str, entry_id: str) -> bool:
        return await self._guards.index.finds(
            lambda: self._index.get_entry(namespace, entry_id), self._limits.timeout_s
        )

    async def _delete_entry(self, namespace: str, entry_id: str) -> None:
        existed = await self._guards.store.call(
            lambda: self._store.delete_entries(namespace, [entry_id]), self._limits.timeout_s
        )
        self._counts.count_entries(sum(existed))

    async def _namespaces(self) -> AsyncIterator[str]:
        async def ask(token: str) -> NamespacePage:
            return await self._guards.index.call(
                lambda: self._index.list_namespaces(_PAGE_SIZE, token), self._limits.timeout_s
            )

        async for page in all_pages(ask):
            for namespace in page.namespaces:
                yield namespace

    async def _index_pages(self, namespace: str) -> AsyncIterator[tuple[IndexEntry, ...]]:
        async def ask(token: str) -> IndexPage:
            return await self._guards.index.call(
                lambda: self._index.list_entries(namespace, page_size=_PAGE_SIZE, page_token=token),
                self._limits.timeout_s,
            )

        async for page in all_pages(ask):
            yield page.entries

    async def _store_pages(self, namespace: str) -> AsyncIterator[tuple[StoredEntry, ...]]:
        async def ask(token: str) -> StoredEntryPage:
            return await self._guards.store.call(
                lambda: self._store.list_entries(namespace, page_size=_PAGE_SIZE, page_token=token),
                self._limits.timeout_s,
            )

        async for page in all_pages(ask):
            yield page.entries

    async def _pace(self, side: str, count: int) -> None:
        self._counts.count_compared(side, count)
        await self._pause(count / self._limits.entries_per_s)
