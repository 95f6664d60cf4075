"""What the upkeep of both stores has seen and removed since the start, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter
from prometheus_client.registry import Collector

from skipstone_shared.stored_entries import EvictionKind

EVICTION = "eviction"
RECONCILE = "reconcile"


class UpkeepCounts:
    """Counts of one replica."""

    def __init__(self) -> None:
        """Starts at nought."""
        self._events = Counter(
            "skipstone_eviction_events",
            "Removals of latent_kv that were worked off; a gap stands for events that were missed.",
            ["kind"],
            registry=None,
        )
        self._vectors = Counter(
            "skipstone_stale_vectors_removed",
            "Vectors removed from vector_index because their latents are gone.",
            ["found_by"],
            registry=None,
        )
        self._entries = Counter(
            "skipstone_unfindable_entries_removed",
            "Entries removed from latent_kv because no vector leads to them.",
            registry=None,
        )
        self._compared = Counter(
            "skipstone_reconcile_entries_compared",
            "Entries that reconcile passes looked for in the other store.",
            ["side"],
            registry=None,
        )
        self._passes = Counter(
            "skipstone_reconcile_passes", "Reconcile passes.", ["outcome"], registry=None
        )

    def count_event(self, kind: EvictionKind) -> None:
        """Counts a removal that latent_kv told."""
        self._events.labels(kind.value).inc()

    def count_vectors(self, found_by: str, count: int) -> None:
        """Counts vectors that are gone now; ``found_by`` is EVICTION or RECONCILE."""
        self._vectors.labels(found_by).inc(count)

    def count_entries(self, count: int) -> None:
        """Counts entries that are gone now."""
        self._entries.inc(count)

    def count_compared(self, side: str, count: int) -> None:
        """Counts entries of one service that were looked for in the other."""
        self._compared.labels(side).inc(count)

    def count_pass(self, outcome: str) -> None:
        """Counts a pass that is done or has failed."""
        self._passes.labels(outcome).inc()

    def collectors(self) -> list[Collector]:
        """The Prometheus metrics."""
        return [self._events, self._vectors, self._entries, self._compared, self._passes]
