"""Puts the orchestrator together over any four backends: real clients, or a test's own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from prometheus_client.registry import Collector

from skipstone_orchestrator.activity import Activity
from skipstone_orchestrator.audits import DriftAudits
from skipstone_orchestrator.backends import Denoiser, Embedder, EntryIndex, LatentEntries
from skipstone_orchestrator.breaker import CircuitBreaker, Clock, Monitor
from skipstone_orchestrator.candidates import CandidateJudge
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.deciding_services import DecidingServices
from skipstone_orchestrator.deletions import Deletions
from skipstone_orchestrator.donor_search import DonorSearch
from skipstone_orchestrator.donor_vectors import DonorVectors
from skipstone_orchestrator.drift_guard import DriftGuard
from skipstone_orchestrator.entries import Entries
from skipstone_orchestrator.entry_reader import EntryReader
from skipstone_orchestrator.explainer import Explainer
from skipstone_orchestrator.gate import Gate
from skipstone_orchestrator.guard import Guard, Watching
from skipstone_orchestrator.lookup import Lookup
from skipstone_orchestrator.outside_engines import OutsideEngines
from skipstone_orchestrator.pipeline import GenerationPipeline, PipelineSettings
from skipstone_orchestrator.plans import Planner
from skipstone_orchestrator.pools import Pools
from skipstone_orchestrator.prompt_keys import read_prompt_keys
from skipstone_orchestrator.rate_limits import RateLimits
from skipstone_orchestrator.replica import Replica
from skipstone_orchestrator.saver import EntryWriter, Saver, SaveSettings
from skipstone_orchestrator.served_counts import BreakerCollector, ServedCounts
from skipstone_orchestrator.upkeep import Upkeep
from skipstone_orchestrator.waiting_gauges import waiting_gauges
from skipstone_shared.embeddings import EmbeddingCapabilities


class Probed(Protocol):
    """A backend that can be probed."""

    async def get_capabilities(self) -> object:
        """A cheap answer that needs a worker of the service."""
        ...


class ProbedEmbedder(Embedder, Protocol):
    """An embedder that can be probed."""

    async def get_capabilities(self) -> EmbeddingCapabilities:
        """Who embeds and who compares."""
        ...


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
        draw_index: Callable[[int], int],
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
            draw_index: Gives one of 0 to n - 1 at random.
            knock: Makes what tells whether anybody listens at a target.
        """
        self._settings = settings
        self._backends = backends
        self._clock = clock
        self._knock = knock
        self._tasks: list[asyncio.Task[None]] = []
        self._prompts = read_prompt_keys(settings.prompt_key_file)
        self.pools = Pools(settings.pools)
        self.rates = RateLimits(settings.rate_limits, settings.rate_burst_s, clock)
        self._policies = settings.policies()
        self._policy = self._policies.base
        self._counts = ServedCounts()
        self._activity = Activity()
        self._services = DecidingServices(backends.embedder.get_capabilities, gate.scorer_id)
        self._guards = self._make_guards()
        self._vectors = DonorVectors(
            backends.embedder,
            self._guards.embedding,
            frames=settings.sampled_frames,
            timeout_s=settings.call_timeout_s,
            frames_timeout_s=settings.frames_timeout_s,
        )
        self._denoise_guard = self._make_denoise_guard()
        self._writer = self._make_writer()
        self.saver = Saver(
            self._writer,
            self._counts,
            queue_size=settings.save_queue_size,
            late_write_s=settings.late_write_s,
            clock=clock,
        )
        self._planner = Planner(
            backends.denoiser,
            self._denoise_guard,
            timeout_s=settings.plan_timeout_s,
            capacity=settings.plan_cache_size,
        )
        self._drift = DriftGuard(settings.drift_limits())
        self._audits = self._make_audits(draw_index)
        self._lookup = self._make_lookup(gate, draw_index)
        self.pipeline = self._make_pipeline(draw_seed)
        self.explainer = self._make_explainer(draw_seed)
        self.engines = self._make_engines()
        self.entries = Entries(
            backends.index, backends.store, self._guards, settings.call_timeout_s
        )
        self.deletions = Deletions(
            index=backends.index,
            store=backends.store,
            guards=self._guards,
            prompts=self._prompts,
            settle=self.saver.settle,
            timeout_s=settings.call_timeout_s,
        )
        self.replica = self._make_replica(version)
        self._upkeep = Upkeep(settings, backends.index, backends.store, self._guards)

    def collectors(self) -> list[Collector]:
        """The Prometheus metrics of the replica."""
        breakers = BreakerCollector(self.replica.service_states)
        return [
            *self._counts.collectors(),
            breakers,
            *waiting_gauges(
                requests=lambda: self._activity.running,
                saves=lambda: self.saver.waiting_saves,
                audits=lambda: self._audits.report().queued_audits,
                quarantined=lambda: self._drift.quarantined_count,
            ),
            *self._audits.counts.collectors(),
            *self._upkeep.collectors(),
        ]

    def start(self) -> None:
        """Starts saving and watching; inside the event loop. A service that is down is no error."""
        self._spawn(self.saver.run())
        self._spawn(self._audits.run())
        guards = self._guards
        for guard in (guards.embedding, guards.index, guards.store, self._denoise_guard):
            self._spawn(guard.watch())
        for work in self._upkeep.work():
            self._spawn(work)

    async def stop(self) -> None:
        """Works off what waits to be saved, then ends the background tasks."""
        await self.saver.drain(self._settings.save_drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _make_guards(self) -> Guards:
        settings, backends = self._settings, self._backends
        return Guards(
            self._guard("embedding", settings.embedding_target, self._services.refresh),
            self._guard(
                "vector_index", settings.vector_index_target, backends.index.get_capabilities
            ),
            self._guard("latent_kv", settings.latent_kv_target, backends.store.get_capabilities),
        )

    def _guard(self, service: str, target: str, ping: Callable[[], Awaitable[object]]) -> Guard:
        return Guard(
            service,
            target,
            self._breaker(CircuitBreaker, service),
            ping=ping,
            knock=self._knock(target),
            watching=_watching(self._settings, self._settings.probe_timeout_s),
        )

    def _make_denoise_guard(self) -> Guard:
        settings = self._settings
        return Guard(
            "denoise",
            settings.denoise_target,
            self._breaker(Monitor, "denoise"),
            ping=lambda: self._planner.ask_executor(),
            knock=self._knock(settings.denoise_target),
            # An executor that computes on all cores may take long to say so.
            watching=_watching(settings, settings.plan_timeout_s),
        )

    def _make_writer(self) -> EntryWriter:
        settings, backends = self._settings, self._backends
        return EntryWriter(
            vectors=self._vectors,
            index=backends.index,
            store=backends.store,
            guards=self._guards,
            settings=SaveSettings(
                timeout_s=settings.call_timeout_s,
                store_prompts=settings.store_prompts and not self._prompts.is_keyed,
                max_donor_depth=self._policy.max_donor_depth,
                prompts=self._prompts,
            ),
        )

    def _make_audits(self, draw_index: Callable[[int], int]) -> DriftAudits:
        backends = self._backends
        return DriftAudits(
            denoiser=backends.denoiser,
            index=backends.index,
            store=backends.store,
            guards=self._guards,
            guard=self._drift,
            activity=self._activity,
            settings=self._settings.audit_settings(),
            draw_index=draw_index,
        )

    def _make_lookup(self, gate: Gate, draw_index: Callable[[int], int]) -> Lookup:
        backends, guards = self._backends, self._guards
        limits = self._settings.lookup_limits()
        reader = EntryReader(backends.store, guards.store, limits.store_s)
        donors = DonorSearch(
            index=backends.index,
            index_guard=guards.index,
            vectors=self._vectors,
            services=self._services,
            services_guard=guards.embedding,
            reader=reader,
            gate=gate,
            policies=self._policies,
            limits=limits,
            repair=self.saver.repair,
            judge=CandidateJudge(self._drift, draw_index),
        )
        return Lookup(
            embedder=backends.embedder,
            embedder_guard=guards.embedding,
            reader=reader,
            donors=donors,
            limits=limits,
            clock=self._clock,
        )

    def _make_pipeline(self, draw_seed: Callable[[], int]) -> GenerationPipeline:
        settings = self._settings
        return GenerationPipeline(
            planner=self._planner,
            lookup=self._lookup,
            denoiser=self._backends.denoiser,
            saver=self.saver,
            store_guard=self._guards.store,
            counts=self._counts,
            audits=self._audits,
            activity=self._activity,
            policy=self._policy,
            settings=PipelineSettings(
                settings.cache_defaults(), settings.lease_s, self._prompts, self._vectors.frames
            ),
            clock=self._clock,
            draw_seed=draw_seed,
        )

    def _make_explainer(self, draw_seed: Callable[[], int]) -> Explainer:
        return Explainer(
            planner=self._planner,
            lookup=self._lookup,
            policy=self._policy,
            defaults=self._settings.cache_defaults(),
            prompts=self._prompts,
            clock=self._clock,
            draw_seed=draw_seed,
        )

    def _make_engines(self) -> OutsideEngines:
        settings = self._settings
        return OutsideEngines(
            lookup=self._lookup,
            writer=self._writer,
            store=self._backends.store,
            store_guard=self._guards.store,
            counts=self._counts,
            policy=self._policy,
            defaults=settings.cache_defaults(),
            prompts=self._prompts,
            donor_frames=self._vectors.frames,
            timeout_s=settings.call_timeout_s,
            clock=self._clock,
        )

    def _make_replica(self, version: str) -> Replica:
        return Replica(
            version=version,
            policy=self._policy,
            default_mode=self._settings.default_mode,
            donor_frames=self._vectors.frames,
            counts=self._counts,
            audits=self._audits,
            saver=self.saver,
            planner=self._planner,
            index=self._backends.index,
            store=self._backends.store,
            guards=self._guards,
            denoise_guard=self._denoise_guard,
            timeout_s=self._settings.call_timeout_s,
        )

    def _breaker(self, kind: type[CircuitBreaker], service: str) -> CircuitBreaker:
        return kind(
            service,
            failure_threshold=self._settings.breaker_failures,
            open_period_s=self._settings.breaker_open_s,
            clock=self._clock,
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
