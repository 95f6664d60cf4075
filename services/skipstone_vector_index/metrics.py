"""Prometheus metrics of what an index holds, read from its own counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skipstone_shared.errors import SkipstoneError
from skipstone_shared.index_entries import IndexStats, NamespacePage
from skipstone_shared.structured_logging import get_logger

_PAGE_SIZE = 1000

COUNT_EVERY_S = 30.0
"""How often an engine outside is asked at most, however often it is scraped."""

COUNT_IS_TOLD_S = 300.0
"""For how long a count is told where no later one succeeds."""


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

    def __init__(self, index: CountedIndex, label: str) -> None:
        """Reads from `index`; `label` names it, see `store_label`."""
        self._index = index
        self._label = label

    def describe(self) -> Iterable[Metric]:
        """Names without values, so that registering asks the index nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The counts."""
        stats = [self._index.get_stats(namespace) for namespace in self._namespaces()]
        yield _entries(self._label, sum(s.entry_count for s in stats))
        yield _gauge(
            "partitions",
            "Pairs of namespace and compatibility key that have entries.",
            self._label,
            sum(s.partition_count for s in stats),
        )
        yield _gauge(
            "tombstones",
            "Removed vectors that still take room.",
            self._label,
            sum(s.tombstone_count for s in stats),
        )
        # Of the whole index, whichever namespace is asked; one without entries may be too.
        disk_bytes = stats[0].disk_bytes if stats else self._index.get_stats("").disk_bytes
        yield _gauge("disk_bytes", "Bytes on disk.", self._label, disk_bytes)

    def _namespaces(self) -> Iterator[str]:
        token = ""
        while True:
            page = self._index.list_namespaces(_PAGE_SIZE, token)
            yield from page.namespaces
            token = page.next_page_token
            if not token:
                return


class EngineMetrics(Collector):
    """Tells how many entries an engine outside has, as it was counted lately.

    A scrape waits for no engine: it has the entries counted in a thread, and tells the last count.
    The first scrape tells nothing yet.
    """

    def __init__(
        self, count: Callable[[], int], label: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Asks nothing yet.

        Args:
            count: Counts all entries; ends by itself when the engine does not answer.
            label: Name of the index, see `store_label`.
            monotonic: Seconds since any time.
        """
        self._count = count
        self._label = label
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._is_counting = False
        self._next_s = monotonic()
        self._counted: tuple[float, int] | None = None
        self._logger = get_logger(metrics="engine")

    def describe(self) -> Iterable[Metric]:
        """Names without values, so that registering asks the engine nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The last count, while it is young enough."""
        now = self._monotonic()
        with self._lock:
            counted = self._counted
            is_due = not self._is_counting and now >= self._next_s
            if is_due:
                self._is_counting, self._next_s = True, now + COUNT_EVERY_S
        if is_due:
            threading.Thread(target=self._refresh, name="count of entries", daemon=True).start()
        if counted is not None and now - counted[0] < COUNT_IS_TOLD_S:
            yield _entries(self._label, counted[1])

    def _refresh(self) -> None:
        counted = None
        try:
            counted = self._monotonic(), self._count()
        except SkipstoneError as error:
            self._logger.warning("entries not counted", error=error.message)
        finally:
            with self._lock:
                self._is_counting = False
                self._counted = counted or self._counted


def _entries(label: str, count: int) -> Metric:
    return _gauge("entries", "Entries that can be found.", label, count)


def _gauge(name: str, meaning: str, label: str, value: int) -> Metric:
    family = GaugeMetricFamily(f"skipstone_vector_index_{name}", meaning, labels=["store"])
    family.add_metric([label], value)
    return family
