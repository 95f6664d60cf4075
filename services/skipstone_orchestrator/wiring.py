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
from skipstone_orchestrator.guard import Guard, Watching
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
        knock: Callable[[str], Callable[[], Awaitable[bool]]],
    ) -> None:
        """Builds the objects, inside the event loop; nothing runs before `start`.

        Args:
            settings: Of the service.
            backends: The four services.
            gate: Scores candidates.
            version: Version of Skipstone.
            clock: Seconds on a clock that never goes back.
            draw_seed: Gives the seed of a request that has none.
            knock: Makes what tells whether anybody listens at a target.
        """
        self._knock = knock
        self._settings = settings
        self._backends = backends
        self._tasks: list[asyncio.Task[None]] = []
        policy = settings.policy()
        guards = Guards(
            self._guard("embedding", settings.embedding_target, backends.embedder, clock),
            self._guard("vector_index", settings.vector_index_target, backends.index, clock),
            self._guard("latent_kv", settings.latent_kv_target, backends.store, clock),
        )
        denoise_guard = self._denoise_guard_of(settings, clock)
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
        self._spawn(self.saver.run())
        guards = self._guards
        for guard in (guards.embedding, guards.index, guards.store, self._denoise_guard):
            self._spawn(guard.watch())

    async def stop(self) -> None:
        """Works off what waits to be saved, then ends the background tasks."""
        await self.saver.drain(self._settings.save_drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _guard(self, service: str, target: str, backend: Probed, clock: Clock) -> Guard:
        settings = self._settings
        return Guard(
            service,
            target,
            self._breaker(CircuitBreaker, service, clock),
            ping=backend.get_capabilities,
            knock=self._knock(target),
            watching=_watching(settings, settings.probe_timeout_s),
        )

    def _denoise_guard_of(self, settings: OrchestratorSettings, clock: Clock) -> Guard:
        return Guard(
            "denoise",
            settings.denoise_target,
            self._breaker(Monitor, "denoise", clock),
            ping=lambda: self.replica.ask_executor(),
            knock=self._knock(settings.denoise_target),
            # An executor that computes on all cores may take long to say so.
            watching=_watching(settings, settings.plan_timeout_s),
        )

    def _breaker(self, kind: type[CircuitBreaker], service: str, clock: Clock) -> CircuitBreaker:
        return kind(
            service,
            failure_threshold=self._settings.breaker_failures,
            open_period_s=self._settings.breaker_open_s,
            clock=clock,
        )

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.create_task(work))


def _watching(settings: OrchestratorSettings, probe_timeout_s: float) -> Watching:
    return Watching(
        probe_timeout_s=probe_timeout_s,
        healthy_interval_s=settings.probe_interval_s,
        sick_interval_s=settings.sick_probe_interval_s,
        return_wait_s=settings.return_wait_s,
    )
