"""Vectors that are searched exactly while they are few, and in a graph when they are many."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection

import numpy as np

from skipstone_vector_index.flat_vectors import FlatVectors
from skipstone_vector_index.graph_vectors import GraphOptions, GraphState, GraphVectors
from skipstone_vector_index.read_write_lock import ReadWriteLock
from skipstone_vector_index.vectors import Labels, Matrix, Vectors

_PUT_ROWS = 16
"""Vectors added to a graph while searches wait: about 8 ms at 384 dimensions."""

_BUILD_ROWS = 256
"""Vectors copied and added at once in a build. Between two pieces it looks at whether the index is
closing; a write, and the searches behind it, wait for the copy of one: 10 ms at 384 dimensions."""

_CATCH_UP_ROWS = 64
"""Changed vectors that are few enough to be put into a new graph while searches wait."""

_CAUGHT_UP_PER_CHANGE = 2
"""Changed vectors that a new graph must have got until a writer may change the next one. With 1 or
less a steady writer could keep a new graph from ever taking over, and tombstones would pile up.

A new graph begins with a tombstone for each vector that was replaced after the build had copied it
(up to 1.06 for each under a writer that replaces all of them, 20,000 a second); 4 and 8 give no
fewer and only slow the writer down."""


@dataclasses.dataclass(frozen=True, slots=True)
class AdaptiveOptions:
    """When which kind of search is used.

    Attributes:
        exact_search_limit: Up to this many live vectors every search is exact.
        rebuild_tombstone_share: Share of tombstones in a graph above which it is built anew.
        save_change_share: Share of a graph's vectors that change until it is saved again.
        graph: How graphs are built.
    """

    exact_search_limit: int = 4096
    rebuild_tombstone_share: float = 0.3
    save_change_share: float = 0.05
    graph: GraphOptions = dataclasses.field(default_factory=GraphOptions)

    @property
    def graph_from(self) -> int:
        """Live vectors above which a graph is built.

        A quarter above the limit: at the limit itself one entry more or less would build a graph
        and throw it away again and again.
        """
        return self.exact_search_limit + self.exact_search_limit // 4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GraphSeed:
    """A graph of an earlier process to begin a build with.

    Attributes:
        load: Returns its copy; None when it cannot be used.
        outdated: Labels whose vector in it is not the present one.
    """

    load: Callable[[], GraphState | None]
    outdated: Labels


class AdaptiveVectors:
    """Thread-safe vectors that change between `FlatVectors` and `GraphVectors` on their own.

    Graphs are built on another thread while the old vectors go on being searched and changed; what
    has changed meanwhile is brought up to date in the new graph before it takes over.

    Searches may run at any time. Changes must come one at a time: the index has one writer.
    """

    def __init__(
        self,
        dimension: int,
        options: AdaptiveOptions,
        schedule: Callable[[Callable[[], None]], None],
        stopping: threading.Event,
        save: Callable[[], None] | None = None,
    ) -> None:
        """Creates an empty set.

        Args:
            dimension: Elements of a vector.
            options: When which kind of search is used.
            schedule: Runs a function soon, on another thread.
            stopping: Set when the index closes; a build then gives up.
            save: Saves a `copy_graph` of this; scheduled when enough has changed. None: never.
        """
        self._dimension = dimension
        self._options = options
        self._schedule = schedule
        self._stopping = stopping
        self._lock = ReadWriteLock()
        self._vectors: Vectors = FlatVectors(dimension)
        self._changed: set[int] | None = None
        self._build_scheduled = False
        self._discarded = False
        self._catch_up = threading.Condition()
        self._catching_up = False
        self._caught_up = 0
        self._seed: GraphSeed | None = None
        self._save = save
        self._save_scheduled = False
        self._unsaved = 0

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
            self._change(labels[rows], vectors[rows])
        self._settle()

    def remove(self, labels: Labels) -> None:
        """Removes vectors."""
        self._change(labels, None)
        self._settle()

    def discard(self) -> None:
        """Frees the memory; nothing is found here any more, and a running build gives up."""
        with self._lock.writing():
            self._discarded = True
            self._vectors = FlatVectors(self._dimension)

    def seed(self, seed: GraphSeed) -> None:
        """Lets the first build begin with an earlier graph, if a build is due."""
        with self._lock.writing():
            if self._needs_graph():
                self._seed = seed
                self._unsaved = 0
                # A vector that is replaced before the build starts is outdated in the seed too.
                self._changed = set()

    def copy_graph(self) -> GraphState | None:
        """Returns a copy of the graph; None when there is none. Changes must wait meanwhile."""
        self._save_scheduled = False
        vectors = self._vectors
        if not isinstance(vectors, GraphVectors):
            return None
        self._unsaved = 0
        return vectors.copy()

    def nearest(self, queries: Matrix, count: int) -> list[Labels]:
        """Returns per query the labels of about ``count`` closest vectors; see `Vectors`."""
        with self._lock.reading():
            return self._vectors.nearest(queries, count)

    def _change(self, labels: Labels, vectors: Matrix | None) -> None:
        with self._lock.writing():
            if vectors is None:
                self._vectors.remove(labels)
            else:
                self._vectors.put(labels, vectors)
            self._unsaved += len(labels)
            if self._changed is not None:
                self._changed.update(labels.tolist())
        with self._catch_up:  # slows a writer down while a new graph catches up with it
            enough = self._caught_up + _CAUGHT_UP_PER_CHANGE * len(labels)
            self._catch_up.wait_for(lambda: not self._catching_up or self._caught_up >= enough)

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
        self._settle_saving()

    def _settle_saving(self) -> None:
        """Asks for a graph to be saved when enough of it has changed."""
        if self._save is None or self.is_exact or self._save_scheduled:
            return
        if self._unsaved > self._options.save_change_share * self.live_count:
            self._save_scheduled = True
            self._schedule(self._save)

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
                if self._changed is None:
                    self._changed = set()
                labels = self._vectors.labels()
            graph, missing = self._begin(labels)
            for start in range(0, len(missing), _BUILD_ROWS):
                if self._is_given_up():
                    return
                with self._lock.reading():
                    rows = self._vectors.read(missing[start : start + _BUILD_ROWS])
                graph.put(*rows)
            self._take_over(graph)
            with self._lock.writing():
                self._unsaved += len(missing)
            self._settle_saving()
        finally:
            with self._lock.writing():
                self._changed = None
                self._build_scheduled = False
            self._set_catching_up(False)

    def _set_catching_up(self, catching_up: bool) -> None:
        with self._catch_up:
            self._catching_up = catching_up
            self._catch_up.notify_all()

    def _begin(self, labels: Labels) -> tuple[GraphVectors, Labels]:
        """Returns the graph that a build of these labels starts from, and what it still lacks."""
        seed, self._seed = self._seed, None
        state = seed.load() if seed else None
        if seed and state:
            graph = GraphVectors.restored(self._dimension, self._options.graph, state)
            if graph is not None:
                graph.remove(np.setdiff1d(graph.labels(), labels))
                graph.remove(seed.outdated)
                missing = np.setdiff1d(labels, graph.labels())
                dead = graph.tombstone_count
                if dead <= self._options.rebuild_tombstone_share * (len(labels) + dead):
                    return graph, missing
        return GraphVectors(self._dimension, self._options.graph, len(labels) * 3 // 2), labels

    def _take_over(self, graph: GraphVectors) -> None:
        """Puts what changed during the build into a graph, the last of it while searches wait."""
        self._set_catching_up(True)
        while not self._is_given_up():
            with self._lock.writing():
                changed, self._changed = self._changed or set(), set()
                if len(changed) <= _CATCH_UP_ROWS:
                    labels = _as_labels(changed)
                    _update(graph, labels, *self._vectors.read(labels))
                    few = graph.live_count <= self._options.exact_search_limit
                    if not few and not self._discarded:
                        self._vectors = graph
                    return
            labels = _as_labels(changed)
            for start in range(0, len(labels), _PUT_ROWS):
                if self._is_given_up():
                    return
                piece = labels[start : start + _PUT_ROWS]
                with self._lock.reading():
                    rows = self._vectors.read(piece)
                _update(graph, piece, *rows)
                with self._catch_up:
                    self._caught_up += len(piece)
                    self._catch_up.notify_all()

    def _is_given_up(self) -> bool:
        return self._stopping.is_set() or self._discarded


def _as_labels(labels: Collection[int]) -> Labels:
    return np.fromiter(labels, np.int64, len(labels))


def _update(graph: GraphVectors, labels: Labels, live: Labels, vectors: Matrix) -> None:
    """Makes a graph have of some labels the live ones, with these vectors."""
    graph.remove(np.setdiff1d(labels, live))
    graph.put(live, vectors)
