"""A `VectorEngine` over collections of one dimension each, without transactions.

So are Milvus and Qdrant. All partitions of one dimension share a collection: an engine takes a few
hundred collections, and there may be many thousands of partitions. Every point carries its
partition in an indexed field, which every search and every read filters by.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from skipstone_shared.index_entries import IndexStats
from skipstone_vector_index.engine import (
    ListedRow,
    LocatedRow,
    NewRow,
    OtherDimension,
    PartitionName,
    Row,
)
from skipstone_vector_index.vector_form import Matrix

_EPOCH_US = 1_704_067_200_000_000
"""Labels count from 2024."""

_TICK_US = 100

_PROCESS_BITS = 9
"""Of a label. With ticks of 100 µs labels stay below 2**53 until 2079: Qdrant compares numbers as
floats of 64 bits."""


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Which points: those that meet all that is given.

    Attributes:
        namespace: Namespace.
        partition: `PartitionName.digest`.
        model: `model_digest`.
        entry_ids: Any of these.
        after: Label above this.
        until: Label up to this.
    """

    namespace: str | None = None
    partition: str | None = None
    model: str | None = None
    entry_ids: Sequence[str] | None = None
    after: int | None = None
    until: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A row as a collection keeps it.

    Attributes:
        point_id: 32 hexadecimal digits, of partition and entry id.
        partition: Where it is.
        model: `model_digest` of the model of its vector.
        label: Its place in listings.
        revision: Grows with every write.
        row: The entry.
    """

    point_id: str
    partition: PartitionName
    model: str
    label: int
    revision: int
    row: Row


class Collections(Protocol):
    """The collections of one engine under one prefix; errors as `VectorEngine` raises them."""

    name: str
    exact_search_limit: int
    max_packed_bytes: int

    def dimensions(self) -> set[int]:
        """Returns the dimensions that have a collection now, whoever created it."""
        ...

    def create(self, dimension: int) -> None:
        """Creates a collection, or what is missing of it, ready to be written and searched."""
        ...

    def labels(self, dimension: int, point_ids: Sequence[str]) -> dict[str, int]:
        """Returns the labels of those points that are there, by id."""
        ...

    def upsert(self, dimension: int, points: Sequence[Point]) -> None:
        """Stores points, replacing those of the same id."""
        ...

    def nearest(
        self, dimension: int, where: Filter, queries: Matrix, count: int
    ) -> list[list[Row]]:
        """Returns per query the points with the largest inner products."""
        ...

    def find(self, dimension: int, where: Filter) -> list[Point]:
        """Returns some points, few, with everything."""
        ...

    def page(self, dimension: int, where: Filter, limit: int) -> list[ListedRow]:
        """Returns the first points by ascending label."""
        ...

    def entry_ids(self, dimension: int, where: Filter) -> set[str]:
        """Returns the entry ids of at most some thousand points."""
        ...

    def distinct(self, dimension: int, field: str, where: Filter) -> set[str]:
        """Returns the different values of ``namespace`` or ``partition``."""
        ...

    def count(self, dimension: int, where: Filter) -> int:
        """Returns the exact number of points."""
        ...

    def delete(self, dimension: int, where: Filter) -> None:
        """Removes points."""
        ...

    def close(self) -> None:
        """Releases the connection."""
        ...


class CollectionEngine:
    """Keeps the promises of `VectorEngine` as far as an engine without transactions can.

    A write reads what it replaces and then writes; writers of this process take turns. Of two
    processes that write one entry at a time the last wins as a whole. Only if two processes give an
    empty partition its first vectors at the same moment may it get those of two dimensions; each
    search then refuses one of them by field.
    """

    def __init__(self, collections: Collections, clock_us: Callable[[], int] | None = None) -> None:
        """Takes over the collections.

        Args:
            collections: Where points are.
            clock_us: Microseconds since 1970.
        """
        self.name = collections.name
        self.exact_search_limit = collections.exact_search_limit
        self.max_packed_bytes = collections.max_packed_bytes
        self._collections = collections
        self._labels = LabelClock(clock_us)
        self._writing = threading.Lock()
        self._dimensions = collections.dimensions()
        self._complete: set[int] = set()

    def put(self, partition: PartitionName, rows: Sequence[NewRow]) -> None:
        """Stores rows; see `VectorEngine`."""
        dimension = len(rows[0].vector)
        with self._writing:
            self._check_dimension(partition, dimension)
            if dimension not in self._complete:
                # Also where it exists: who created it may have been ended half way, and without
                # its indexes it would never be usable.
                self._collections.create(dimension)
                self._complete.add(dimension)
                self._dimensions = self._dimensions | {dimension}
            ids = {row.entry_id: point_id(partition, row.entry_id) for row in rows}
            stored = self._collections.labels(dimension, list(ids.values()))
            points = [self._point(ids[row.entry_id], partition, row, stored) for row in rows]
            self._collections.upsert(dimension, points)

    def nearest(
        self, partition: PartitionName, queries: Matrix, count: int, model: str | None
    ) -> list[list[Row]]:
        """Returns the nearest rows; see `VectorEngine`."""
        dimension = queries.shape[1]
        found: list[list[Row]] = [[] for _ in queries]
        if dimension in self._dimensions or dimension in self._refreshed():
            where = Filter(partition=partition.digest(), model=model)
            found = self._collections.nearest(dimension, where, queries, count)
        if not any(found):
            self._check_dimension(partition, dimension)
        return found

    def find(self, namespace: str, entry_id: str) -> LocatedRow | None:
        """Returns the row stored last; see `VectorEngine`."""
        where = Filter(namespace=namespace, entry_ids=[entry_id])
        points = [p for d in self._refreshed() for p in self._collections.find(d, where)]
        if not points:
            return None
        newest = max(points, key=lambda point: point.revision)
        return LocatedRow(newest.partition.compatibility_key, newest.row)

    def find_all(self, namespace: str, entry_ids: Sequence[str]) -> list[LocatedRow]:
        """Returns rows of all partitions; see `VectorEngine`."""
        where = Filter(namespace=namespace, entry_ids=entry_ids)
        points = [p for d in self._refreshed() for p in self._collections.find(d, where)]
        return [LocatedRow(point.partition.compatibility_key, point.row) for point in points]

    def last_label(self) -> int:
        """Returns a label of now; see `VectorEngine`."""
        return self._labels.next()

    def page(
        self, namespace: str, compatibility_key: str, after: int, until: int, limit: int
    ) -> list[ListedRow]:
        """Returns rows by label; see `VectorEngine`."""
        where = dataclasses.replace(_of(namespace, compatibility_key), after=after, until=until)
        pages = [self._collections.page(d, where, limit) for d in self._refreshed()]
        return list(heapq.merge(*pages, key=lambda row: row.label))[:limit]

    def namespaces(self) -> list[str]:
        """Returns the namespaces; see `VectorEngine`."""
        return list(self._distinct("namespace", Filter()))

    def delete(self, namespace: str, entry_ids: Sequence[str]) -> set[str]:
        """Removes rows; see `VectorEngine`."""
        where = Filter(namespace=namespace, entry_ids=entry_ids)
        existed: set[str] = set()
        with self._writing:
            for dimension in self._refreshed():
                found = self._collections.entry_ids(dimension, where)
                if found:
                    self._collections.delete(dimension, where)
                existed |= found
        return existed

    def delete_partition(self, namespace: str, compatibility_key: str) -> int:
        """Removes a partition or a namespace; see `VectorEngine`."""
        where = _of(namespace, compatibility_key)
        removed = 0
        with self._writing:
            for dimension in self._refreshed():
                count = self._collections.count(dimension, where)
                if count:
                    self._collections.delete(dimension, where)
                removed += count
        return removed

    def stats(self, namespace: str) -> IndexStats:
        """Counts a namespace; what the engine takes on disk it does not tell."""
        where = Filter(namespace=namespace)
        entries = sum(self._collections.count(d, where) for d in self._refreshed())
        return IndexStats(entries, len(self._distinct("partition", where)))

    def count(self) -> int:
        """Counts all rows; see `VectorEngine`."""
        return sum(self._collections.count(d, Filter()) for d in self._refreshed())

    def close(self) -> None:
        """Releases the connection."""
        self._collections.close()

    def _refreshed(self) -> set[int]:
        """Returns the dimensions that have a collection; other processes create some too."""
        self._dimensions = self._collections.dimensions()
        return self._dimensions

    def _check_dimension(self, partition: PartitionName, dimension: int) -> None:
        where = Filter(partition=partition.digest())
        for other in self._refreshed() - {dimension}:
            if self._collections.count(other, where):
                raise OtherDimension(other)

    def _distinct(self, field: str, where: Filter) -> set[str]:
        found: set[str] = set()
        for dimension in self._refreshed():
            found |= self._collections.distinct(dimension, field, where)
        return found

    def _point(
        self, id_: str, partition: PartitionName, row: NewRow, stored: Mapping[str, int]
    ) -> Point:
        revision = self._labels.next()
        return Point(id_, partition, row.model, stored.get(id_, revision), revision, row)


class LabelClock:
    """Numbers that grow, and that no two processes give: the time and a part of the process."""

    def __init__(self, clock_us: Callable[[], int] | None = None) -> None:
        """Starts at the time of the clock, microseconds since 1970."""
        self._clock_us = clock_us or (lambda: time.time_ns() // 1000)
        self._process = int.from_bytes(os.urandom(2), "little") % (1 << _PROCESS_BITS)
        self._lock = threading.Lock()
        self._last_tick = 0

    def next(self) -> int:
        """Returns the next number."""
        with self._lock:
            now = (self._clock_us() - _EPOCH_US) // _TICK_US
            self._last_tick = max(self._last_tick + 1, now)
            return self._last_tick << _PROCESS_BITS | self._process


def point_id(partition: PartitionName, entry_id: str) -> str:
    """Returns the 32 hexadecimal digits that name an entry's point."""
    name = f"{partition.digest()}/{entry_id}"
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def rows_in_parts(count: int, part: int) -> Iterable[slice]:
    """Returns slices that together cover ``count`` things, at most ``part`` each."""
    return (slice(start, start + part) for start in range(0, count, part))


def _of(namespace: str, compatibility_key: str) -> Filter:
    if not compatibility_key:
        return Filter(namespace=namespace)
    return Filter(partition=PartitionName(namespace, compatibility_key).digest())
