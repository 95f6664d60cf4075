"""What an index holds, as Prometheus sees it."""

from __future__ import annotations

import threading

import numpy as np
from prometheus_client import CollectorRegistry
from tests.e2e.processes import wait_until

from skipstone_shared.errors import Unavailable
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.metrics import (
    COUNT_EVERY_S,
    COUNT_IS_TOLD_S,
    EngineMetrics,
    IndexMetrics,
)


def test_counts_cover_all_namespaces() -> None:
    index = FlatIndex()
    registry = CollectorRegistry()
    registry.register(IndexMetrics(index, "flat-1"))

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"skipstone_vector_index_{name}", {"store": "flat-1"})

    assert value("entries") == 0
    vector = np.ones(4, np.float32)
    for number in range(1001):  # more namespaces than one page has
        index.upsert_entries(f"n{number}", "key", [VectorEntry(IndexEntry("e"), vector)])
    index.upsert_entries("n0", "other", [VectorEntry(IndexEntry("f"), vector)])

    assert value("entries") == 1002
    assert value("partitions") == 1002
    index.delete_entries("n0", ["e", "f"])
    assert value("entries") == 1000
    assert value("partitions") == 1000


class Engine:
    """An engine outside that counts when it is let."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.entries: int | None = 7
        self.asked = 0
        self.lets = threading.Event()
        self.lets.set()
        self._registry = CollectorRegistry()
        self._registry.register(EngineMetrics(self.count, "milvus-1", lambda: self.now))

    def count(self) -> int:
        self.asked += 1
        self.lets.wait()
        if self.entries is None:
            raise Unavailable("it is away")
        return self.entries

    def scraped(self) -> float | None:
        return self._registry.get_sample_value(
            "skipstone_vector_index_entries", {"store": "milvus-1"}
        )


def test_an_engine_outside_is_counted_beside_scrapes_and_seldom() -> None:
    engine = Engine()
    engine.lets.clear()
    assert [engine.scraped() for _ in range(5)] == [None] * 5  # none waits
    engine.lets.set()
    wait_until(lambda: engine.scraped() == 7, "the count is told")
    assert engine.asked == 1

    engine.entries = 8
    engine.now += COUNT_EVERY_S
    wait_until(lambda: engine.scraped() == 8, "it is counted anew")
    assert engine.asked == 2


def test_the_count_of_an_engine_that_stays_away_is_forgotten() -> None:
    """An old count beside a fresh one of the other store would be an alert about nothing."""
    engine = Engine()
    wait_until(lambda: engine.scraped() == 7, "the count is told")
    engine.entries = None
    engine.now += COUNT_IS_TOLD_S - 1
    assert engine.scraped() == 7
    wait_until(lambda: engine.asked == 2, "it is asked")
    engine.now += 1
    assert engine.scraped() is None
    engine.entries = 9
    engine.now += COUNT_EVERY_S
    wait_until(lambda: engine.scraped() == 9, "it is back")
