"""A graph gives what was asked for even where hnswlib alone would raise or lose vectors."""

from __future__ import annotations

import numpy as np

from skipstone_vector_index.graph_vectors import GraphOptions, GraphVectors

# So few links that a graph falls apart.
POOR = GraphOptions(m=2, ef_construction=8, ef_search=8)


def unit_rows(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def distinct(count: int, dimension: int = 8) -> np.ndarray:
    return unit_rows(np.random.default_rng(0).standard_normal((count, dimension)))


def clumps(count: int) -> np.ndarray:
    """Four far clumps of close vectors."""
    return unit_rows(np.repeat(distinct(4), count // 4, axis=0) + 1e-3 * distinct(count))


def test_all_live_vectors_are_given_though_the_graph_falls_apart() -> None:
    for vectors in (clumps(400), np.repeat(distinct(1), 400, axis=0)):
        graph = GraphVectors(8, POOR)
        graph.put(np.arange(400), vectors)
        graph.remove(np.arange(0, 400, 2))
        for found in graph.nearest(vectors[:20], 200):
            assert sorted(found) == list(range(1, 400, 2))


def test_a_graph_without_live_vectors_gives_none() -> None:
    graph = GraphVectors(8, GraphOptions())
    assert graph.nearest(distinct(1), 5)[0].size == 0
    graph.put(np.arange(3), distinct(3))
    graph.remove(np.arange(5))
    assert graph.nearest(distinct(1), 5)[0].size == 0
    assert (graph.live_count, graph.tombstone_count) == (0, 3)


def test_a_graph_grows_past_its_first_size() -> None:
    vectors = distinct(1000)
    graph = GraphVectors(8, GraphOptions(), rows=1)
    for start in range(0, 1000, 37):
        graph.put(np.arange(start, min(start + 37, 1000)), vectors[start : start + 37])
    assert graph.live_count == 1000
    assert all(i in found for i, found in enumerate(graph.nearest(vectors, 3)))


def test_what_is_read_is_what_is_live() -> None:
    vectors = distinct(600)
    graph = GraphVectors(8, GraphOptions())
    graph.put(np.arange(600), vectors)
    graph.put(np.arange(10), vectors[10:20])
    graph.remove(np.arange(100, 200))
    labels, read = graph.read(np.arange(700))
    assert sorted(graph.labels()) == sorted(labels)
    assert sorted(labels) == [*range(100), *range(200, 600)]
    expected = np.where(labels < 10, labels + 10, labels)
    np.testing.assert_array_equal(read, vectors[expected])
    assert graph.tombstone_count == 110
