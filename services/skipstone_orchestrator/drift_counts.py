"""What the audits of one replica came to: for GetStats and for Prometheus."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from skipstone_orchestrator.drift_guard import ReuseTier
from skipstone_shared.orchestration import DriftTier

MEASURED = "measured"
DROPPED = "dropped"
INTERRUPTED = "interrupted"
GONE = "gone"
FAILED = "failed"

_DRIFT_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)


class DriftCounts:
    """Counts of one replica, for one event loop."""

    def __init__(self, states: Callable[[], Sequence[DriftTier]]) -> None:
        """Starts at nought.

        Args:
            states: Returns the audited tiers; called at every scrape, from another thread.
        """
        self._outcomes: Tally[str] = Tally()
        self.steps = 0
        self._audits_total = Counter(
            "skipstone_drift_audits", "Hits drawn for an audit.", ["outcome"], registry=None
        )
        self._steps_total = Counter(
            "skipstone_drift_audit_steps", "Denoising steps run by audits.", registry=None
        )
        self._drift = Histogram(
            "skipstone_drift",
            "Distance between what a hit produced and its full run; unrelated pictures are 1.",
            ["tier"],
            buckets=_DRIFT_BUCKETS,
            registry=None,
        )
        self._tiers = _TierCollector(states)

    def count(self, outcome: str) -> None:
        """Counts how an audit ended."""
        self._outcomes[outcome] += 1
        self._audits_total.labels(outcome).inc()

    def count_steps(self, steps: int) -> None:
        """Counts steps that were run for audits alone."""
        self.steps += steps
        self._steps_total.inc(steps)

    def observe(self, tier: ReuseTier, drift: float) -> None:
        """Takes in a measured drift."""
        self._drift.labels(tier.name).observe(drift)

    def outcomes(self) -> Mapping[str, int]:
        """Audits by how they ended."""
        return dict(self._outcomes)

    def collectors(self) -> list[Collector]:
        """The Prometheus metrics."""
        return [self._audits_total, self._steps_total, self._drift, self._tiers]


class _TierCollector(Collector):
    """Which tiers are closed, and how far they drift."""

    def __init__(self, states: Callable[[], Sequence[DriftTier]]) -> None:
        self._states = states

    def describe(self) -> Iterable[Metric]:
        """Names without values, so that registering asks nobody."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Two samples per audited tier, the bound only where there are enough audits."""
        gauge = GaugeMetricFamily(
            "skipstone_tier_closed", "1 for a tier that drift has closed.", labels=["tier"]
        )
        bounds = GaugeMetricFamily(
            "skipstone_drift_bound",
            "Upper bound of a tier's mean drift (95 %); above max_drift it is closed.",
            labels=["tier"],
        )
        for state in self._states():
            gauge.add_metric([state.tier], float(state.closed))
            if state.bound is not None:
                bounds.add_metric([state.tier], state.bound)
        yield gauge
        yield bounds
