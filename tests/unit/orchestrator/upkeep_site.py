"""Two stores that can lose things, and the upkeep between them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
from prometheus_client import CollectorRegistry
from tests.unit.orchestrator.fakes import MemoryIndex, MemoryStore

from skipstone_orchestrator.breaker import CircuitBreaker
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.eviction_follower import EvictionFollower
from skipstone_orchestrator.guard import Guard, Watching
from skipstone_orchestrator.reconciler import ReconcileLimits, Reconciler
from skipstone_orchestrator.stale_vectors import StaleVectors
from skipstone_orchestrator.upkeep_counts import UpkeepCounts
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry, NamespacePage, VectorEntry
from skipstone_shared.stored_entries import (
    EvictionEvent,
    EvictionKind,
    StoredEntry,
    StoredEntryPage,
)

PATIENCE_S = 20.0
GRACE_S = 300.0
KEY = "c0ffee00" * 4


class ListedIndex(MemoryIndex):
    """An index whose namespaces can be listed."""

    async def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        await self.meet("list_namespaces")
        names = sorted({n for (n, _), part in self.partitions.items() if part and n > page_token})
        page = tuple(names[:page_size])
        return NamespacePage(page, page[-1] if len(names) > len(page) else "")

    def put(self, *entry_ids: str, namespace: str = "default") -> None:
        part = self.partitions.setdefault((namespace, KEY), {})
        for entry_id in entry_ids:
            part[entry_id] = VectorEntry(IndexEntry(entry_id), np.ones(2, np.float32))


class WatchedStore(MemoryStore):
    """A store that evicts and tells, numbered from 1, and keeps the events that a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[EvictionEvent] = []
        self.last_sequence = 0
        self.watched_after: list[int] = []
        self.pinned: set[str] = set()
        self.access_times: dict[str, float] = {}
        self._streams: list[Evictions] = []

    def put(self, *entry_ids: str, namespace: str = "default", committed: bool = True) -> None:
        for entry_id in entry_ids:
            self.write(namespace, entry_id, 10, 10, "latent", compatibility_key=KEY)
            if committed:
                self.committed.add((namespace, entry_id))

    def evict(self, *entry_ids: str, namespace: str = "default") -> None:
        for entry_id in entry_ids:
            del self.entries[namespace, entry_id]
            self.committed.discard((namespace, entry_id))
            self.last_sequence += 1
            self.events.append(
                EvictionEvent(self.last_sequence, EvictionKind.CAPACITY, namespace, entry_id)
            )
        for stream in self._streams:
            stream.news.set()

    def drop_watchers(self, error: Exception) -> None:
        for stream in self._streams:
            stream.error = error
            stream.news.set()
        self._streams.clear()

    async def watch_evictions(self, namespace: str, after_sequence: int = 0) -> Evictions:
        await self.meet("watch_evictions")
        self.watched_after.append(after_sequence)
        if after_sequence > self.last_sequence:
            raise InvalidArgument("no such event", field="after_sequence", allowed="the past")
        stream = Evictions(self, after_sequence or self.last_sequence)
        self._streams.append(stream)
        return stream

    async def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        return self._dressed(await super().get_entry(namespace, entry_id))

    async def list_entries(
        self, namespace: str, *, page_size: int = 100, page_token: str = ""
    ) -> StoredEntryPage:
        await self.meet("list_entries")
        ids = sorted(i for n, i in self.committed if n == namespace and i > page_token)
        page = tuple(self._dressed(self._entry(namespace, i)) for i in ids[:page_size])
        return StoredEntryPage(page, page[-1].entry_id if len(ids) > len(page) else "")

    def _dressed(self, entry: StoredEntry) -> StoredEntry:
        id_ = entry.entry_id
        used = self.access_times.get(id_, 0.0)
        return dataclasses.replace(entry, pinned=id_ in self.pinned, access_time=used)


class Evictions(AsyncIterator[EvictionEvent]):
    """One watch of a `WatchedStore`."""

    def __init__(self, store: WatchedStore, position: int) -> None:
        self.news = asyncio.Event()
        self.error: Exception | None = None
        self._store = store
        self._position = position

    async def __anext__(self) -> EvictionEvent:
        while True:
            if self.error is not None:
                raise self.error
            later = [e for e in self._store.events if e.sequence > self._position]
            if later:
                lost = later[0].sequence > self._position + 1
                event = EvictionEvent(later[0].sequence - 1, EvictionKind.GAP) if lost else later[0]
                self._position = event.sequence
                return event
            self.news.clear()
            await self.news.wait()

    def close(self) -> None:
        self.error = StopAsyncIteration()
        self.news.set()


class UpkeepSite:
    """Two stores with one or more replicas' upkeep, whose pauses take no time."""

    def __init__(self, *, removes_entries: bool = True, interval_s: float = 0.0) -> None:
        self.index = ListedIndex()
        self.store = WatchedStore()
        self.counts = UpkeepCounts()
        self.asked = 0
        self.pauses: list[float] = []
        self.during_grace: Callable[[], None] = lambda: None
        self.grace_over = asyncio.Event()
        self.grace_over.set()
        guards = patient_guards()
        self.stale = StaleVectors(self.index, self.store, guards, self.counts, PATIENCE_S)
        limits = ReconcileLimits(interval_s, 50.0, GRACE_S, removes_entries, PATIENCE_S)
        self.reconciler = Reconciler(
            self.index, self.store, guards, self.stale, self.counts, limits, pause=self.pause
        )

    def follower(self) -> EvictionFollower:
        return EvictionFollower(
            self.store, self.stale, self.counts, on_missed=self.ask, pause=self.pause
        )

    def ask(self) -> None:
        self.asked += 1

    async def reconcile(self) -> None:
        await self.reconciler.look_again(await self.reconciler.compare())

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if seconds == GRACE_S:
            self.during_grace()
            await self.grace_over.wait()
        await asyncio.sleep(0)

    def counted(self, name: str, **labels: str) -> float:
        registry = CollectorRegistry()
        for collector in self.counts.collectors():
            registry.register(collector)
        return registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def running(*followers: EvictionFollower | Reconciler) -> AsyncIterator[None]:
    """Runs background work inside the block."""
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(reached: Callable[[], bool]) -> None:
    """Waits for a state."""
    async with asyncio.timeout(PATIENCE_S):
        while not reached():
            await asyncio.sleep(0.001)


def patient_guards() -> Guards:
    return Guards(_guard("embedding"), _guard("vector_index"), _guard("latent_kv"))


def _guard(service: str) -> Guard:
    async def answer() -> bool:
        return True

    # Its breaker tries again at once: the tests are of upkeep, not of breakers.
    breaker = CircuitBreaker(service, failure_threshold=1000, open_period_s=0.0, clock=lambda: 0.0)
    watching = Watching(PATIENCE_S, PATIENCE_S, PATIENCE_S, PATIENCE_S)
    return Guard(service, "nowhere", breaker, ping=answer, knock=answer, watching=watching)
