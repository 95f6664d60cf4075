"""Puts the orchestrator together over any four backends: real clients, or a test's own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from prometheus_client.registry import Collector

from skipstone_orchestrator.backends import Denoiser, Embedder, EntryIndex, LatentEntries
from skipstone_orchestrator.breaker import CircuitBreaker, Clock, Monitor
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.donor_search import DonorSearch
from skipstone_orchestrator.entries import Entries
from skipstone_orchestrator.entry_reader import EntryReader
from skipstone_orchestrator.gate import Gate
from skipstone_orchestrator.guard import Guard
from skipstone_orchestrator.lookup import Lookup
from skipstone_orchestrator.outside_engines import OutsideEngines
from skipstone_orchestrator.pipeline import GenerationPipeline, PipelineSettings
from skipstone_orchestrator.plans import Planner
from skipstone_orchestrator.replica import Replica
from skipstone_orchestrator.saver import EntryWriter, Saver, SaveSettings
from skipstone_orchestrator.served_counts import BreakerCollector, ServedCounts


class Probed(Protocol):
    """A backend that can be probed."""

    async def get_capabilities(self) -> object:
        """A cheap answer that needs a worker of the service."""
        ...


class ProbedEmbedder(Embedder, Probed, Protocol):
    """An embedder that can be probed."""


class ProbedIndex(EntryIndex, Probed, Protocol):
    """An index that can be probed."""


class ProbedStore(LatentEntries, Probed, Protocol):
    """A latent store that can be probed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Backends:
    """The four services behind an orchestrator."""

    embedder: ProbedEmbedder
    index: ProbedIndex
    store: ProbedStore
    denoiser: Denoiser


class Orchestrator:
    """All objects of one replica, and their background tasks."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        backends: Backends,
        gate: Gate,
        *,
        version: str,
        clock: Clock,
        draw_seed: Callable[[], int],
    ) -> None:
        """Builds the objects; nothing runs before `start`.

        Args:
            settings: Of the service.
            backends: The four services.
            gate: Scores candidates.
            version: Version of Skipstone.
            clock: Seconds on a clock that never goes back.
            draw_seed: Gives the seed of a request that has none.
        """
        self._settings = settings
        self._backends = backends
        self._tasks: list[asyncio.Task[None]] = []
        policy = settings.policy()
        guards = Guards(
            self._guard(CircuitBreaker, "embedding", settings.embedding_target, clock),
            self._guard(CircuitBreaker, "vector_index", settings.vector_index_target, clock),
            self._guard(CircuitBreaker, "latent_kv", settings.latent_kv_target, clock),
        )
        denoise_guard = self._guard(Monitor, "denoise", settings.denoise_target, clock)
        counts = ServedCounts()
        writer = EntryWriter(
            embedder=backends.embedder,
            index=backends.index,
            store=backends.store,
            guards=guards,
            settings=SaveSettings(
                timeout_s=settings.call_timeout_s,
                store_prompts=settings.store_prompts,
                max_donor_depth=policy.max_donor_depth,
            ),
        )
        self.saver = Saver(writer, counts, queue_size=settings.save_queue_size, clock=clock)
        planner = Planner(
            backends.denoiser,
            denoise_guard,
            timeout_s=settings.plan_timeout_s,
            capacity=settings.plan_cache_size,
        )
        limits = settings.lookup_limits()
        reader = EntryReader(backends.store, guards.store, limits.store_s)
        donors = DonorSearch(
            index=backends.index,
            index_guard=guards.index,
            reader=reader,
            gate=gate,
            policy=policy,
            limits=limits,
            repair=self.saver.repair,
        )
        lookup = Lookup(
            embedder=backends.embedder,
            embedder_guard=guards.embedding,
            reader=reader,
            donors=donors,
            limits=limits,
            clock=clock,
        )
        self.pipeline = GenerationPipeline(
            planner=planner,
            lookup=lookup,
            denoiser=backends.denoiser,
            saver=self.saver,
            store_guard=guards.store,
            counts=counts,
            policy=policy,
            settings=PipelineSettings(settings.cache_mode, settings.top_k, settings.lease_s),
            clock=clock,
            draw_seed=draw_seed,
        )
        self.engines = OutsideEngines(
            lookup=lookup,
            writer=writer,
            store=backends.store,
            store_guard=guards.store,
            counts=counts,
            policy=policy,
            default_mode=settings.cache_mode,
            default_top_k=settings.top_k,
            timeout_s=settings.call_timeout_s,
            clock=clock,
        )
        self.entries = Entries(backends.index, backends.store, guards, settings.call_timeout_s)
        self.replica = Replica(
            version=version,
            policy=policy,
            default_mode=settings.cache_mode,
            counts=counts,
            saver=self.saver,
            planner=planner,
            index=backends.index,
            store=backends.store,
            denoiser=backends.denoiser,
            guards=guards,
            denoise_guard=denoise_guard,
            timeout_s=settings.call_timeout_s,
        )
        self._guards = guards
        self._denoise_guard = denoise_guard
        self._counts = counts

    def collectors(self) -> list[Collector]:
        """The Prometheus metrics of the replica."""
        return [*self._counts.collectors(), BreakerCollector(self.replica.service_states)]

    def start(self) -> None:
        """Starts saving and watching; inside the event loop. A service that is down is no error."""
        settings = self._settings
        self._spawn(self.saver.run())
        self._watch(self._guards.embedding, self._backends.embedder.get_capabilities)
        self._watch(self._guards.index, self._backends.index.get_capabilities)
        self._watch(self._guards.store, self._backends.store.get_capabilities)
        # An executor that computes on all cores may take long to say so.
        self._watch(self._denoise_guard, self.replica.ask_executor, settings.plan_timeout_s)

    async def stop(self) -> None:
        """Works off what waits to be saved, then ends the background tasks."""
        await self.saver.drain(self._settings.save_drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _guard(self, kind: type[CircuitBreaker], service: str, target: str, clock: Clock) -> Guard:
        breaker = kind(
            service,
            failure_threshold=self._settings.breaker_failures,
            open_period_s=self._settings.breaker_open_s,
            clock=clock,
        )
        return Guard(service, target, breaker)

    def _watch(
        self, guard: Guard, ping: Callable[[], Awaitable[object]], timeout_s: float | None = None
    ) -> None:
        settings = self._settings
        self._spawn(
            guard.watch(
                ping,
                timeout_s=timeout_s or settings.probe_timeout_s,
                healthy_interval_s=settings.probe_interval_s,
                sick_interval_s=settings.sick_probe_interval_s,
            )
        )

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.create_task(work))
