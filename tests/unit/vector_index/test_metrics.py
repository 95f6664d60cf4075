"""What an index holds, as Prometheus sees it."""

from __future__ import annotations

import numpy as np
from prometheus_client import CollectorRegistry

from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.metrics import IndexMetrics


def test_counts_cover_all_namespaces() -> None:
    index = FlatIndex()
    registry = CollectorRegistry()
    registry.register(IndexMetrics(index))

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"skipstone_vector_index_{name}")

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
