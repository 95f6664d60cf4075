"""What happens to a graph that is being built while vectors change or the index closes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from skipstone_vector_index import adaptive_vectors
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions, AdaptiveVectors
from skipstone_vector_index.graph_vectors import GraphVectors
from skipstone_vector_index.vectors import Labels, Matrix

COUNT = 600
Build = Callable[[], None]


class Meanwhile(threading.Event):
    """Is looked at by a build between its pieces, which is when others get their turn."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act: Callable[[], None] | None = act

    def is_set(self) -> bool:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().is_set()


def unit(count: int, seed: int = 0) -> Matrix:
    rows = np.random.default_rng(seed).standard_normal((count, 8))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def filled(meanwhile: Meanwhile) -> tuple[AdaptiveVectors, Build]:
    """Vectors that want a graph, and what builds it."""
    builds: list[Build] = []
    vectors = AdaptiveVectors(8, AdaptiveOptions(exact_search_limit=8), builds.append, meanwhile)
    vectors.put(np.arange(COUNT), unit(COUNT))
    (build,) = builds
    return vectors, build


def test_vectors_are_copied_piece_by_piece_so_that_writes_need_not_wait_for_all_of_them() -> None:
    """What is removed before its piece is copied never gets into the graph."""

    def change() -> None:
        vectors.remove(np.arange(300, COUNT))
        vectors.put(np.arange(10), unit(10, seed=1))
        vectors.put(np.array([COUNT]), unit(1, seed=2))

    vectors, build = filled(Meanwhile(change))
    build()
    assert not vectors.is_exact
    assert (vectors.live_count, vectors.tombstone_count) == (301, 0)
    for label, vector in [
        (3, unit(10, seed=1)[3]),
        (299, unit(COUNT)[299]),
        (COUNT, unit(1, 2)[0]),
    ]:
        assert label in vectors.nearest(vector[None], 1)[0]


def test_a_build_is_given_up_in_the_middle_of_what_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a start nearly all of a large index is such a change; the process must end soon."""
    added: list[int] = []

    class CountedGraph(GraphVectors):
        def put(self, labels: Labels, vectors: Matrix) -> None:
            super().put(labels, vectors)
            added.append(len(labels))
            if sum(added) > COUNT:  # all that was there at the start, and the first change
                stopping.set()

    monkeypatch.setattr(adaptive_vectors, "GraphVectors", CountedGraph)
    stopping = Meanwhile(lambda: vectors.put(np.arange(COUNT, 2 * COUNT), unit(COUNT, seed=1)))
    vectors, build = filled(stopping)
    build()
    assert vectors.is_exact
    assert sum(added) < COUNT + 100


def test_a_graph_takes_over_under_a_writer_that_never_stops() -> None:
    """Else tombstones would pile up for as long as there are writes: puts into a graph are slow."""
    builds: list[Build] = []
    options = AdaptiveOptions(exact_search_limit=8)
    vectors = AdaptiveVectors(8, options, builds.append, threading.Event())
    vectors.put(np.arange(COUNT), unit(COUNT))
    (build,) = builds
    written = 0
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build)
        while not building.done() and written < 200_000:
            # Beside those the build began with: bringing them up to date makes a tombstone of each.
            vectors.put(np.array([COUNT + written % COUNT]), unit(1, seed=written))
            written += 1
        building.result()
    assert not vectors.is_exact
    assert written < 200_000
    assert vectors.tombstone_count <= COUNT, "each vector was brought up to date about once"
    last = {COUNT + number % COUNT: number for number in range(written)}
    for label, number in sorted(last.items())[::50]:
        assert label in vectors.nearest(unit(1, seed=number), 1)[0]


def test_a_vector_removed_while_its_graph_catches_up_is_not_in_it() -> None:
    def change() -> None:
        vectors.remove(np.arange(0, COUNT, 2))
        vectors.put(np.arange(0, 100, 2), unit(50, seed=1))

    vectors, build = filled(Meanwhile(change))
    build()
    alive = {*range(1, COUNT, 2), *range(0, 100, 2)}
    assert set(vectors.nearest(unit(1), 2 * COUNT)[0].tolist()) == alive
