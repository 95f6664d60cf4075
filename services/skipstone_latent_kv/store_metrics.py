"""Prometheus metrics of what a store holds, read from the store's own totals."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skipstone_shared.stored_entries import EvictionKind


@dataclasses.dataclass(frozen=True, slots=True)
class StoreTotals:
    """What a store holds, all namespaces together.

    Attributes:
        entry_count: Entries, uncommitted ones too.
        size_bytes: Of all snapshots.
        disk_bytes: Of the store on disk; 0 in memory.
        removals: Entries removed since the start, by why.
        unreadable_records: Records that could not be read since the start; None without a log.
        undeleted_values: Values of removed entries whose deletion is not confirmed; None where
            it is part of the removal.
    """

    entry_count: int
    size_bytes: int
    disk_bytes: int
    removals: Mapping[EvictionKind, int]
    unreadable_records: int | None = None
    undeleted_values: int | None = None


class TotalledStore(Protocol):
    """A store that knows its totals."""

    def totals(self) -> StoreTotals:
        """Them, at once; from any thread."""
        ...


class StoreMetrics(Collector):
    """Tells the totals of a store when it is scraped."""

    def __init__(self, store: TotalledStore, quota_bytes: int, label: str) -> None:
        """Reads from a store when it is asked.

        Args:
            store: Knows its totals.
            quota_bytes: Bound of all snapshots together, 0 for none.
            label: Name of the store, which other processes may share; see `store_label`.
        """
        self._store = store
        self._quota_bytes = quota_bytes
        self._label = label

    def describe(self) -> Iterable[Metric]:
        """Names without values, so that registering asks the store nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The totals."""
        totals = self._store.totals()
        yield self._gauge("entries", "Entries, uncommitted ones too.", totals.entry_count)
        yield self._gauge("stored_bytes", "Bytes of all snapshots.", totals.size_bytes)
        yield self._gauge(
            "quota_bytes", "Most bytes of all snapshots; 0 for no bound.", self._quota_bytes
        )
        yield self._gauge("disk_bytes", "Bytes on disk; 0 in memory.", totals.disk_bytes)
        removals = CounterMetricFamily(
            "skipstone_latent_kv_removals", "Entries removed, by why.", None, ["store", "kind"]
        )
        for kind in EvictionKind:
            if kind is not EvictionKind.GAP:
                removals.add_metric([self._label, kind.value], totals.removals.get(kind, 0))
        yield removals
        if totals.unreadable_records is not None:
            unreadable = CounterMetricFamily(
                "skipstone_latent_kv_unreadable_records",
                "Records of the log that could not be read.",
                labels=["store"],
            )
            unreadable.add_metric([self._label], totals.unreadable_records)
            yield unreadable
        if totals.undeleted_values is not None:
            yield self._gauge(
                "undeleted_values",
                "Values of removed entries whose deletion is not confirmed.",
                totals.undeleted_values,
            )

    def _gauge(self, name: str, meaning: str, value: int) -> Metric:
        family = GaugeMetricFamily(f"skipstone_latent_kv_{name}", meaning, labels=["store"])
        family.add_metric([self._label], value)
        return family
