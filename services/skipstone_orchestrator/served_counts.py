"""What this replica has served and saved since its start: for GetStats and for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from skipstone_orchestrator.served_tallies import TalliesByNamespace
from skipstone_shared.orchestration import (
    BreakerState,
    Fallback,
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
        self._tallies = TalliesByNamespace()
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

    def count_request(self, provenance: Provenance, namespace: str) -> None:
        """Counts a finished generation; a traced one is the exemplar of its buckets."""
        for tallies in self._tallies.both(namespace):
            tallies.add_request(provenance)
        self._requests_total.labels(provenance.tier.value, provenance.reason).inc()
        self._steps_total.labels("executed").inc(provenance.executed_steps)
        self._steps_total.labels("skipped").inc(provenance.skip_steps)
        self._joined_total.inc(bool(provenance.joined_request_id))
        trace_id = current_trace_id()
        exemplar = {"trace_id": trace_id} if trace_id else None
        for stage, seconds in provenance.stage_times_s.items():
            self._stage_seconds.labels(stage).observe(seconds, exemplar)

    def count_fallbacks(self, fallbacks: Sequence[Fallback], namespace: str) -> None:
        """Counts what went wrong in a request, finished or not, or in a save."""
        for tallies in self._tallies.both(namespace):
            tallies.add_fallbacks(fallbacks)
        for fallback in fallbacks:
            self._fallbacks_total.labels(fallback.stage, fallback.service, fallback.reason).inc()

    def count_saved(self, namespace: str) -> None:
        """Counts an entry that can be found from now on."""
        for tallies in self._tallies.both(namespace):
            tallies.saved += 1
        self._saves_total.labels("saved").inc()

    def count_dropped(self, namespace: str) -> None:
        """Counts an entry that was lost."""
        for tallies in self._tallies.both(namespace):
            tallies.dropped += 1
        self._saves_total.labels("dropped").inc()

    def stats(self, namespace: str | None = None) -> OrchestratorStats:
        """The counts so far of a namespace; of the whole replica for None."""
        return self._tallies.stats(namespace)

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
