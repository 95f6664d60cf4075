"""What this replica has served and saved since its start: for GetStats and for Prometheus."""

from __future__ import annotations

import dataclasses
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from skipstone_shared.generation import BlockCacheReport
from skipstone_shared.orchestration import (
    BlockCacheCounts,
    BreakerState,
    Fallback,
    HitTier,
    OrchestratorStats,
    Provenance,
    ServiceState,
)
from skipstone_shared.tracing import current_trace_id

_STAGE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)


class ServedCounts:
    """Counts of one replica, for one event loop."""

    def __init__(self) -> None:
        """Starts at nought."""
        self._tiers: Tally[HitTier] = Tally()
        self._fallbacks: Tally[str] = Tally()
        self._executed = 0
        self._skipped = 0
        self._saved = 0
        self._dropped = 0
        self._joined = 0
        self._block_cache: BlockCacheCounts | None = None
        self._requests_total = Counter(
            "skipstone_requests", "Finished generations.", ["tier", "reason"], registry=None
        )
        self._steps_total = Counter(
            "skipstone_steps", "Denoising steps, executed or skipped.", ["kind"], registry=None
        )
        self._fallbacks_total = Counter(
            "skipstone_fallbacks",
            "Troubles of the cache that cost a request its hit or its save.",
            ["stage", "service", "reason"],
            registry=None,
        )
        self._saves_total = Counter(
            "skipstone_saves", "Entries saved or dropped.", ["outcome"], registry=None
        )
        self._stage_seconds = Histogram(
            "skipstone_stage_seconds",
            "Time of a request per stage, in seconds.",
            ["stage"],
            buckets=_STAGE_BUCKETS_S,
            registry=None,
        )
        self._joined_total = Counter(
            "skipstone_joined_requests",
            "Finished generations that got the result of an equal one beside them.",
            registry=None,
        )

    def count_request(self, provenance: Provenance) -> None:
        """Counts a finished generation; a traced one is the exemplar of its buckets."""
        self._tiers[provenance.tier] += 1
        self._executed += provenance.executed_steps
        self._skipped += provenance.skip_steps
        self._joined += bool(provenance.joined_request_id)
        if provenance.block_cache is not None:
            self._count_block_cache(provenance.block_cache)
        self._requests_total.labels(provenance.tier.value, provenance.reason).inc()
        self._steps_total.labels("executed").inc(provenance.executed_steps)
        self._steps_total.labels("skipped").inc(provenance.skip_steps)
        self._joined_total.inc(bool(provenance.joined_request_id))
        trace_id = current_trace_id()
        exemplar = {"trace_id": trace_id} if trace_id else None
        for stage, seconds in provenance.stage_times_s.items():
            self._stage_seconds.labels(stage).observe(seconds, exemplar)

    def _count_block_cache(self, report: BlockCacheReport) -> None:
        before = self._block_cache or BlockCacheCounts()
        self._block_cache = BlockCacheCounts(
            before.computed_steps + sum(len(branch.computed_steps) for branch in report.branches),
            before.reused_steps + sum(len(branch.reused_steps) for branch in report.branches),
            before.block_calls + report.block_calls,
            before.block_calls_full + report.block_calls_full,
        )

    def count_fallbacks(self, fallbacks: Iterable[Fallback]) -> None:
        """Counts what went wrong in a request, finished or not, or in a save."""
        for fallback in fallbacks:
            self._fallbacks[f"{fallback.stage}/{fallback.reason}"] += 1
            self._fallbacks_total.labels(fallback.stage, fallback.service, fallback.reason).inc()

    def count_saved(self) -> None:
        """Counts an entry that can be found from now on."""
        self._saved += 1
        self._saves_total.labels("saved").inc()

    def count_dropped(self) -> None:
        """Counts an entry that was lost."""
        self._dropped += 1
        self._saves_total.labels("dropped").inc()

    def stats(self) -> OrchestratorStats:
        """The counts so far."""
        return OrchestratorStats(
            tiers={tier: self._tiers[tier] for tier in HitTier},
            executed_steps=self._executed,
            skipped_steps=self._skipped,
            saved_count=self._saved,
            dropped_saves=self._dropped,
            fallbacks=dict(self._fallbacks),
            joined_requests=self._joined,
            block_cache=self._block_cache,
        )

    def with_states(self, states: Sequence[ServiceState], queued_saves: int) -> OrchestratorStats:
        """The counts so far with the state of the services."""
        return dataclasses.replace(self.stats(), services=tuple(states), queued_saves=queued_saves)

    def collectors(self) -> list[Collector]:
        """The Prometheus metrics."""
        return [
            self._requests_total,
            self._steps_total,
            self._fallbacks_total,
            self._saves_total,
            self._stage_seconds,
            self._joined_total,
        ]


class BreakerCollector(Collector):
    """The state of every breaker as a gauge: 1 for the state it is in."""

    def __init__(self, states: Callable[[], Sequence[ServiceState]]) -> None:
        """Creates the collector.

        Args:
            states: Returns the states now; called at every scrape, from another thread.
        """
        self._states = states

    def collect(self) -> Iterable[Metric]:
        """One sample per service and state."""
        gauge = GaugeMetricFamily(
            "skipstone_breaker_state",
            "1 for the state a service's circuit breaker is in.",
            labels=["service", "state"],
        )
        for service in self._states():
            for state in BreakerState:
                value = 1.0 if service.breaker is state else 0.0
                gauge.add_metric([service.service, state.value], value)
        yield gauge
