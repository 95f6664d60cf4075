"""Keeps latent_kv and vector_index in step, beside and between requests."""

from __future__ import annotations

from collections.abc import Coroutine

from prometheus_client.registry import Collector

from skipstone_orchestrator.backends import EntryIndex, LatentEntries
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.eviction_follower import EvictionFollower
from skipstone_orchestrator.reconciler import ReconcileLimits, Reconciler
from skipstone_orchestrator.stale_vectors import StaleVectors
from skipstone_orchestrator.upkeep_counts import UpkeepCounts


class Upkeep:
    """The background work of one replica on both stores."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        index: EntryIndex,
        store: LatentEntries,
        guards: Guards,
    ) -> None:
        """Creates it, inside the event loop; nothing runs before `work`.

        Args:
            settings: Of the service.
            index: Has the vectors.
            store: Has the entries.
            guards: Guards of both.
        """
        self._follows = settings.follow_evictions
        self._counts = UpkeepCounts()
        stale = StaleVectors(index, store, guards, self._counts, settings.call_timeout_s)
        self._reconciler = Reconciler(index, store, guards, stale, self._counts, _limits(settings))
        self._follower = EvictionFollower(
            store, stale, self._counts, on_missed=self._reconciler.ask
        )

    def work(self) -> list[Coroutine[object, object, None]]:
        """What has to run in the background for ever."""
        work = [self._reconciler.run()]
        if self._follows:
            work.append(self._follower.run())
        return work

    def collectors(self) -> list[Collector]:
        """The Prometheus metrics."""
        return self._counts.collectors()


def _limits(settings: OrchestratorSettings) -> ReconcileLimits:
    return ReconcileLimits(
        interval_s=settings.reconcile_interval_s,
        entries_per_s=settings.reconcile_entries_per_s,
        grace_s=settings.reconcile_grace_s,
        removes_entries=settings.reconcile_removes_entries,
        timeout_s=settings.call_timeout_s,
    )
