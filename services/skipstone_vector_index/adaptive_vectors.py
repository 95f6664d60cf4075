"""Vectors that are searched exactly while they are few, and in a graph when they are many."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from skipstone_vector_index.flat_vectors import FlatVectors
from skipstone_vector_index.graph_vectors import GraphOptions, GraphVectors
from skipstone_vector_index.read_write_lock import ReadWriteLock
from skipstone_vector_index.vectors import Labels, Matrix, Vectors

_PUT_ROWS = 16
"""Vectors added to a graph while searches wait: about 8 ms at 384 dimensions."""

_BUILD_ROWS = 256
"""Vectors copied and added at once in a build. Between two pieces it looks at whether the index is
closing; a write, and the searches behind it, wait for the copy of one: 10 ms at 384 dimensions."""

_CATCH_UP_ROWS = 64
"""Changes that are few enough to be applied to a new graph while searches wait."""


@dataclasses.dataclass(frozen=True, slots=True)
class AdaptiveOptions:
    """When which kind of search is used.

    Attributes:
        exact_search_limit: Up to this many live vectors every search is exact.
        rebuild_tombstone_share: Share of tombstones in a graph above which it is built anew.
        graph: How graphs are built.
    """

    exact_search_limit: int = 4096
    rebuild_tombstone_share: float = 0.3
    graph: GraphOptions = dataclasses.field(default_factory=GraphOptions)

    @property
    def graph_from(self) -> int:
        """Live vectors above which a graph is built.

        A quarter above the limit: at the limit itself one entry more or less would build a graph
        and throw it away again and again.
        """
        return self.exact_search_limit + self.exact_search_limit // 4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Change:
    labels: Labels
    vectors: Matrix | None

    def apply(self, target: Vectors) -> None:
        if self.vectors is None:
            target.remove(self.labels)
        else:
            target.put(self.labels, self.vectors)


class AdaptiveVectors:
    """Thread-safe vectors that change between `FlatVectors` and `GraphVectors` on their own.

    Graphs are built on another thread while the old vectors go on being searched and changed; what
    changes meanwhile is recorded and applied to the new graph before it takes over.

    Searches may run at any time. Changes must come one at a time: the index has one writer.
    """

    def __init__(
        self,
        dimension: int,
        options: AdaptiveOptions,
        schedule: Callable[[Callable[[], None]], None],
        stopping: threading.Event,
    ) -> None:
        """Creates an empty set.

        Args:
            dimension: Elements of a vector.
            options: When which kind of search is used.
            schedule: Runs a function soon, on another thread.
            stopping: Set when the index closes; a build then gives up.
        """
        self._dimension = dimension
        self._options = options
        self._schedule = schedule
        self._stopping = stopping
        self._lock = ReadWriteLock()
        self._vectors: Vectors = FlatVectors(dimension)
        self._changes: list[_Change] | None = None
        self._build_scheduled = False
        self._discarded = False

    @property
    def live_count(self) -> int:
        """Vectors that a search can find."""
        return self._vectors.live_count

    @property
    def tombstone_count(self) -> int:
        """Vectors removed whose space is not yet reclaimed."""
        return self._vectors.tombstone_count

    @property
    def is_exact(self) -> bool:
        """Whether searches compare every vector at this moment."""
        return isinstance(self._vectors, FlatVectors)

    def put(self, labels: Labels, vectors: Matrix) -> None:
        """Adds or replaces vectors."""
        for start in range(0, len(labels), _PUT_ROWS):
            rows = slice(start, start + _PUT_ROWS)
            self._change(_Change(labels[rows], vectors[rows]))
        self._settle()

    def remove(self, labels: Labels) -> None:
        """Removes vectors."""
        self._change(_Change(labels, None))
        self._settle()

    def discard(self) -> None:
        """Frees the memory; nothing is found here any more, and a running build gives up."""
        with self._lock.writing():
            self._discarded = True
            self._vectors = FlatVectors(self._dimension)

    def nearest(self, queries: Matrix, count: int) -> list[Labels]:
        """Returns per query the labels of about ``count`` closest vectors; see `Vectors`."""
        with self._lock.reading():
            return self._vectors.nearest(queries, count)

    def _change(self, change: _Change) -> None:
        with self._lock.writing():
            change.apply(self._vectors)
            if self._changes is not None:
                self._changes.append(change)

    def _settle(self) -> None:
        """Goes back to exact search when few vectors are left; asks for a graph when needed."""
        few = self._vectors.live_count <= self._options.exact_search_limit
        if few and not self.is_exact:
            with self._lock.writing():
                self._vectors = self._flattened()
        with self._lock.reading():
            schedule = self._needs_graph() and not self._build_scheduled
            self._build_scheduled |= schedule
        if schedule:
            self._schedule(self._build)

    def _needs_graph(self) -> bool:
        live, dead = self._vectors.live_count, self._vectors.tombstone_count
        if self.is_exact:
            return live > self._options.graph_from
        return dead > self._options.rebuild_tombstone_share * (live + dead)

    def _flattened(self) -> FlatVectors:
        labels = self._vectors.labels()
        flat = FlatVectors(self._dimension, len(labels))
        flat.put(*self._vectors.read(labels))
        return flat

    def _build(self) -> None:
        """Builds a graph and lets it take over. Runs on the builder's thread."""
        try:
            with self._lock.reading():
                if not self._needs_graph():
                    return
                self._changes = []
                labels = self._vectors.labels()
            graph = GraphVectors(self._dimension, self._options.graph, len(labels) * 3 // 2)
            for start in range(0, len(labels), _BUILD_ROWS):
                if self._is_given_up():
                    return
                with self._lock.reading():
                    rows = self._vectors.read(labels[start : start + _BUILD_ROWS])
                graph.put(*rows)
            self._take_over(graph)
        finally:
            with self._lock.writing():
                self._changes = None
                self._build_scheduled = False

    def _take_over(self, graph: GraphVectors) -> None:
        """Applies what changed during the build, the last of it while searches wait."""
        while not self._is_given_up():
            with self._lock.writing():
                changes, self._changes = self._changes or [], []
                if sum(len(change.labels) for change in changes) <= _CATCH_UP_ROWS:
                    for change in changes:
                        change.apply(graph)
                    few = graph.live_count <= self._options.exact_search_limit
                    if not few and not self._discarded:
                        self._vectors = graph
                    return
            for change in changes:
                if self._is_given_up():
                    return
                change.apply(graph)

    def _is_given_up(self) -> bool:
        return self._stopping.is_set() or self._discarded
