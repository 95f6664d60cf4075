"""Approximate search in an HNSW graph (Malkov and Yashunin 2018, arXiv 1603.09320)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import hnswlib
import numpy as np
import numpy.typing as npt

from skipstone_vector_index.flat_vectors import FlatVectors
from skipstone_vector_index.vectors import Labels, Matrix

_MIN_ROWS = 64
_READ_ROWS = 256
_SEED = 100


@dataclasses.dataclass(frozen=True, slots=True)
class GraphOptions:
    """How graphs are built and searched.

    Attributes:
        m: Links per vector and layer.
        ef_construction: Candidates looked at when a vector is added.
        ef_search: Candidates looked at in a search, at least.
    """

    m: int = 16
    ef_construction: int = 200
    ef_search: int = 384


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GraphState:
    """A copy of a graph, as plain numbers and arrays.

    Attributes:
        labels: Label in each slot, NO_LABEL in that of a tombstone.
        scalars: hnswlib's numbers.
        arrays: hnswlib's arrays: vectors, links, levels.
    """

    labels: Labels
    scalars: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]


NO_LABEL = -1


class GraphVectors:
    """Vectors in an hnswlib graph, which holds the only copy of them.

    Every write takes a fresh slot of the graph, and the slot of the old vector becomes a tombstone:
    hnswlib's own update and reuse of slots leave links that cost recall. `AdaptiveVectors` builds a
    new graph when tombstones become many.
    """

    def __init__(self, dimension: int, options: GraphOptions, rows: int = _MIN_ROWS) -> None:
        """Creates an empty graph.

        Args:
            dimension: Elements of a vector.
            options: How it is built and searched.
            rows: Vectors to make room for.
        """
        self._dimension = dimension
        # Inner product of unit vectors is the cosine; hnswlib's "cosine" would normalise again.
        self._graph = hnswlib.Index(space="ip", dim=dimension)
        self._graph.init_index(
            max_elements=max(rows, _MIN_ROWS),
            M=options.m,
            ef_construction=options.ef_construction,
            random_seed=_SEED,
        )
        self._graph.set_ef(options.ef_search)
        self._slots: dict[int, int] = {}
        self._labels: Labels = np.empty(max(rows, _MIN_ROWS), np.int64)
        self._next_slot = 0

    @classmethod
    def restored(
        cls, dimension: int, options: GraphOptions, state: GraphState
    ) -> GraphVectors | None:
        """Returns the graph of a copy; None when it was built with other options.

        Args:
            dimension: Elements of a vector.
            options: How it was built, and how it is searched.
            state: The copy; its bytes must be as `copy` gave them, since hnswlib trusts them.
        """
        built = {"dim": dimension, "M": options.m, "ef_construction": options.ef_construction}
        if any(state.scalars[name] != value for name, value in built.items()):
            return None
        restored = cls(dimension, options)
        graph = hnswlib.Index.__new__(hnswlib.Index)
        graph.__setstate__(({**state.scalars, **state.arrays},))
        graph.set_ef(options.ef_search)
        restored._graph = graph
        slots = len(state.labels)
        restored._labels = np.full(graph.get_max_elements(), NO_LABEL, np.int64)
        restored._labels[:slots] = state.labels
        live = np.flatnonzero(state.labels != NO_LABEL)
        restored._slots = dict(zip(state.labels[live].tolist(), live.tolist(), strict=True))
        restored._next_slot = slots
        return restored

    def copy(self) -> GraphState:
        """Returns a copy. hnswlib holds the interpreter lock meanwhile: 20 to 70 ms per 100 MB."""
        (fields,) = self._graph.__getstate__()
        arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
        labels = np.full(self._next_slot, NO_LABEL, np.int64)
        labels[np.fromiter(self._slots.values(), np.int64, len(self._slots))] = self.labels()
        scalars = {name: value for name, value in fields.items() if name not in arrays}
        return GraphState(labels, scalars, arrays)

    @property
    def live_count(self) -> int:
        """Vectors that a search can find."""
        return len(self._slots)

    @property
    def tombstone_count(self) -> int:
        """Slots whose vector was removed or replaced."""
        return self._next_slot - len(self._slots)

    def put(self, labels: Labels, vectors: Matrix) -> None:
        """Adds or replaces vectors; one that is equal to the stored one stays where it is."""
        new = [i for i, label in enumerate(labels.tolist()) if not self._has(label, vectors[i])]
        if not new:
            return
        labels, vectors = labels[new], vectors[new]
        self.remove(labels)
        slots = np.arange(self._next_slot, self._next_slot + len(labels))
        self._reserve(self._next_slot + len(labels))
        self._graph.add_items(vectors, slots, num_threads=1)
        self._labels[slots] = labels
        self._slots.update(zip(labels.tolist(), slots.tolist(), strict=True))
        self._next_slot += len(labels)

    def remove(self, labels: Labels) -> None:
        """Turns vectors into tombstones."""
        for label in labels.tolist():
            slot = self._slots.pop(label, None)
            if slot is not None:
                self._graph.mark_deleted(slot)

    def nearest(self, queries: Matrix, count: int) -> list[Labels]:
        """Returns the vectors that the graph finds."""
        count = min(count, len(self._slots))
        if count == 0:
            return [np.empty(0, np.int64) for _ in queries]
        try:
            slots, _ = self._graph.knn_query(queries, k=count, num_threads=1)
        except RuntimeError:
            # hnswlib fills a matrix or fails: removals can leave fewer than `count` vectors within
            # reach although there are more.
            return self._nearest_exact(queries, count)
        return list(self._labels[slots.astype(np.int64)])

    def labels(self) -> Labels:
        """Returns a copy of all live labels."""
        return np.fromiter(self._slots, np.int64, len(self._slots))

    def read(self, labels: Labels) -> tuple[Labels, Matrix]:
        """Returns those of the labels that are live, and copies of their vectors."""
        live = [label for label in labels.tolist() if label in self._slots]
        vectors = np.empty((len(live), self._dimension), np.float32)
        # In pieces, since hnswlib holds the interpreter lock: 40 microseconds per vector of 384.
        for start in range(0, len(live), _READ_ROWS):
            rows = slice(start, min(start + _READ_ROWS, len(live)))
            vectors[rows] = self._graph.get_items([self._slots[label] for label in live[rows]])
        return np.array(live, np.int64), vectors

    def _has(self, label: int, vector: Matrix) -> bool:
        slot = self._slots.get(label)
        return slot is not None and np.array_equal(self._graph.get_items([slot])[0], vector)

    def _nearest_exact(self, queries: Matrix, count: int) -> list[Labels]:
        flat = FlatVectors(self._dimension, len(self._slots))
        flat.put(*self.read(self.labels()))
        return flat.nearest(queries, count)

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._labels):
            return
        size = max(rows, 2 * len(self._labels))
        self._graph.resize_index(size)
        self._labels = np.resize(self._labels, size)
