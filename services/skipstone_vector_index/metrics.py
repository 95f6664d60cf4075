"""Prometheus metrics of what an index holds, read from its own counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skipstone_shared.index_entries import IndexStats, NamespacePage

_PAGE_SIZE = 1000


class CountedIndex(Protocol):
    """The part of an index that the metrics ask."""

    def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        """One page of namespaces."""
        ...

    def get_stats(self, namespace: str) -> IndexStats:
        """Counts of one namespace."""
        ...


class IndexMetrics(Collector):
    """Tells the counts of an index, all namespaces together, when it is scraped.

    For an index in this process: it is asked once per namespace.
    """

    def __init__(self, index: CountedIndex) -> None:
        """Reads from `index`."""
        self._index = index

    def describe(self) -> Iterable[Metric]:
        """Names without values, so that registering asks the index nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The counts."""
        stats = [self._index.get_stats(namespace) for namespace in self._namespaces()]
        yield GaugeMetricFamily(
            "skipstone_vector_index_entries",
            "Entries that can be found.",
            sum(s.entry_count for s in stats),
        )
        yield GaugeMetricFamily(
            "skipstone_vector_index_partitions",
            "Pairs of namespace and compatibility key that have entries.",
            sum(s.partition_count for s in stats),
        )
        yield GaugeMetricFamily(
            "skipstone_vector_index_tombstones",
            "Removed vectors that still take room.",
            sum(s.tombstone_count for s in stats),
        )
        # Of the whole index, whichever namespace is asked; one without entries may be too.
        disk_bytes = stats[0].disk_bytes if stats else self._index.get_stats("").disk_bytes
        yield GaugeMetricFamily("skipstone_vector_index_disk_bytes", "Bytes on disk.", disk_bytes)

    def _namespaces(self) -> Iterator[str]:
        token = ""
        while True:
            page = self._index.list_namespaces(_PAGE_SIZE, token)
            yield from page.namespaces
            token = page.next_page_token
            if not token:
                return
