"""Rows in PostgreSQL, found with pgvector."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgvector import Vector as PgVector

from skipstone_shared.index_entries import IndexStats
from skipstone_vector_index.engine import (
    ListedRow,
    LocatedRow,
    NewRow,
    OtherDimension,
    PartitionName,
    Row,
)
from skipstone_vector_index.graph_vectors import GraphOptions
from skipstone_vector_index.pgvector_connections import (
    Connection,
    PgConnections,
    translated_errors,
)
from skipstone_vector_index.pgvector_graphs import PgGraphs
from skipstone_vector_index.pgvector_schema import PgSchema
from skipstone_vector_index.vector_form import Matrix

_MAX_EF_SEARCH = 1000
"""Of pgvector; a search that wants more goes on from there."""

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PgvectorEngine:
    """A `VectorEngine` in one PostgreSQL database.

    A write is one transaction that holds the lock of each partition it touches, so partitions have
    one dimension and right counts whoever writes; a search is one snapshot. Every process sees a
    write as soon as it is acknowledged.
    """

    name = "pgvector"
    max_packed_bytes = 1 << 28

    def __init__(
        self,
        url: str,
        prefix: str,
        timeout_s: float = 5.0,
        exact_search_limit: int = 4096,
        graph: GraphOptions | None = None,
    ) -> None:
        """Connects, and creates the tables where they are missing.

        Args:
            url: Where the database is.
            prefix: Of the names of the tables; a plain identifier.
            timeout_s: Seconds that a statement may take.
            exact_search_limit: Entries of one partition and model up to which a search compares
                all vectors; more get a graph, in the background.
            graph: How graphs are built and searched.

        Raises:
            FailedPrecondition: The URL is none of PostgreSQL.
            Unavailable: It is not there.
        """
        self.exact_search_limit = exact_search_limit
        graph = graph or GraphOptions()
        self._schema = PgSchema(prefix)
        settings = {
            "hnsw.ef_search": str(min(graph.ef_search, _MAX_EF_SEARCH)),
            # Candidates are put in order exactly afterwards.
            "hnsw.iterative_scan": "relaxed_order",
            # Where a sort is needed after all its cost looks worth compiling.
            "jit": "off",
        }
        self._connections = PgConnections(url, timeout_s, settings)
        with translated_errors(), self._connections.connect() as connection:
            self._schema.create(connection)
        self._graphs = PgGraphs(self._connections, self._schema, exact_search_limit, graph)
        self._graphs.look()

    def put(self, partition: PartitionName, rows: Sequence[NewRow]) -> None:
        """Stores rows; see `VectorEngine`."""
        dimension = len(rows[0].vector)
        names = partition.namespace, partition.compatibility_key
        with self._connections.get() as connection, connection.transaction():
            connection.execute(self._schema.lock, (self._lock_key(partition),))
            shelves = self._shelves(connection, names, dimension)
            for model in {row.model for row in rows} - shelves.keys():
                shelves[model] = _one(
                    connection.execute(self._schema.add_shelf, (*names, model, dimension))
                )
            ids = [row.entry_id for row in rows]
            stored = dict(connection.execute(self._schema.stored_shelves, (*names, ids)).fetchall())
            with connection.cursor() as cursor:
                cursor.executemany(
                    self._schema.put,
                    [
                        (*names, row.entry_id, shelves[row.model], row.packed, PgVector(row.vector))
                        for row in rows
                    ],
                )
            changes = Counter(shelves[row.model] for row in rows)
            changes.subtract(stored.values())
            counts = self._count(connection, changes)
        self._graphs.note_counts(counts)

    def nearest(
        self, partition: PartitionName, queries: Matrix, count: int, model: str | None
    ) -> list[list[Row]]:
        """Returns the nearest rows; see `VectorEngine`."""
        dimension = queries.shape[1]
        with self._connections.get() as connection:
            with connection.pipeline():
                connection.execute(_SNAPSHOT)
                names = partition.namespace, partition.compatibility_key
                shelves = connection.execute(self._schema.shelves, names).fetchall()
                _check_dimension((row[2] for row in shelves), dimension)
                chosen = {
                    number: entry_count <= self.exact_search_limit
                    for number, digest, _, entry_count in shelves
                    if model in (None, digest)
                }
                parts = [
                    self._schema.nearest(number, dimension, exact=exact)
                    for number, exact in chosen.items()
                ]
                if not all(chosen.values()):
                    # Statistics of a shelf that grew today say that it is small: sort it, then.
                    connection.execute("SET LOCAL enable_sort = off")
                statement = " UNION ALL ".join(parts)
                cursors = [
                    connection.execute(
                        statement, (PgVector(query), count) * len(parts), binary=True
                    )
                    for query in queries
                    if parts
                ]
                connection.execute("COMMIT")
                found = [cursor.fetchall() for cursor in cursors]
        if not found:
            return [[] for _ in queries]
        return [
            [Row(entry_id, packed, vector.to_numpy()) for entry_id, packed, vector in rows]
            for rows in found
        ]

    def find(self, namespace: str, entry_id: str) -> LocatedRow | None:
        """Returns the row stored last; see `VectorEngine`."""
        with self._connections.get() as connection:
            found = connection.execute(
                self._schema.find, (namespace, entry_id), binary=True
            ).fetchone()
        if found is None:
            return None
        key, packed, vector = found
        return LocatedRow(key, Row(entry_id, packed, vector.to_numpy()))

    def find_all(self, namespace: str, entry_ids: Sequence[str]) -> list[LocatedRow]:
        """Returns rows of all partitions; see `VectorEngine`."""
        with self._connections.get() as connection:
            rows = connection.execute(
                self._schema.find_all, (namespace, list(entry_ids)), binary=True
            ).fetchall()
        return [
            LocatedRow(key, Row(entry_id, packed, vector.to_numpy()))
            for key, entry_id, packed, vector in rows
        ]

    def last_label(self) -> int:
        """Returns the newest label; see `VectorEngine`."""
        with self._connections.get() as connection:
            return _one(connection.execute(self._schema.last_label))

    def page(
        self, namespace: str, compatibility_key: str, after: int, until: int, limit: int
    ) -> list[ListedRow]:
        """Returns rows by label; see `VectorEngine`."""
        statement, names = self._schema.page, [namespace]
        if compatibility_key:
            statement, names = self._schema.page_of_shelves, [namespace, compatibility_key]
        with self._connections.get() as connection:
            rows = connection.execute(statement, (*names, after, until, limit), binary=True)
            return [ListedRow(label, packed) for label, packed in rows]

    def namespaces(self) -> list[str]:
        """Returns the namespaces; see `VectorEngine`."""
        with self._connections.get() as connection:
            return [row[0] for row in connection.execute(self._schema.namespaces)]

    def delete(self, namespace: str, entry_ids: Sequence[str]) -> set[str]:
        """Removes rows; see `VectorEngine`."""
        ids = list(entry_ids)
        with self._connections.get() as connection, connection.transaction():
            keys = connection.execute(self._schema.keys_with, (namespace, ids)).fetchall()
            locked = self._lock_all(connection, namespace, keys)
            removed = connection.execute(self._schema.delete, (namespace, ids, locked)).fetchall()
            changes = Counter({shelf: 0 for _, shelf in removed})
            changes.subtract(shelf for _, shelf in removed)
            counts = self._count(connection, changes)
        self._graphs.note_counts(counts)
        return {entry_id for entry_id, _ in removed}

    def delete_partition(self, namespace: str, compatibility_key: str) -> int:
        """Removes a partition or a namespace; see `VectorEngine`."""
        with self._connections.get() as connection, connection.transaction():
            keys = [(compatibility_key,)]
            if not compatibility_key:
                keys = connection.execute(self._schema.keys, (namespace,)).fetchall()
            locked = self._lock_all(connection, namespace, keys)
            rows = connection.execute(self._schema.delete_shelves, (namespace, locked)).fetchall()
            numbers = [row[0] for row in rows]
            count = connection.execute(self._schema.delete_of_shelves, (numbers,)).rowcount
        if numbers:
            self._graphs.look()
        return count

    def stats(self, namespace: str) -> IndexStats:
        """Counts a namespace; PostgreSQL's vacuum reclaims what was removed."""
        with self._connections.get() as connection:
            found = connection.execute(self._schema.stats, (namespace,)).fetchone()
        entries, partitions, size_bytes = found or (0, 0, 0)
        return IndexStats(entries, partitions, disk_bytes=size_bytes)

    def count(self) -> int:
        """Adds up the counts of all shelves; see `VectorEngine`."""
        with self._connections.get() as connection:
            return _one(connection.execute(self._schema.count))

    def wait_for_graphs(self) -> None:
        """Returns when the graphs that are due have been built by this process."""
        self._graphs.wait()

    def close(self) -> None:
        """Closes connections; a graph that is being built is given up."""
        self._graphs.close()
        self._connections.close()

    def _shelves(
        self, connection: Connection, names: tuple[str, str], dimension: int
    ) -> dict[str, int]:
        """Returns the shelves of a partition by model."""
        rows = connection.execute(self._schema.shelves, names).fetchall()
        _check_dimension((row[2] for row in rows), dimension)
        return {row[1]: row[0] for row in rows}

    def _count(self, connection: Connection, changes: Mapping[int, int]) -> dict[int, int]:
        """Adds changes to the counts of shelves and removes empty shelves; returns new counts."""
        counts = {
            number: _one(connection.execute(self._schema.count_shelf, (change, number)))
            for number, change in sorted(changes.items())
            if change
        }
        emptied = [number for number, count in counts.items() if not count]
        if emptied:
            connection.execute(self._schema.drop_empty, (emptied,))
        return counts

    def _lock_all(
        self, connection: Connection, namespace: str, keys: Iterable[Sequence[str]]
    ) -> list[str]:
        """Locks partitions; in one order, so that two callers never wait for each other."""
        found = sorted(key for (key,) in keys)
        for lock in sorted({self._lock_key(PartitionName(namespace, key)) for key in found}):
            connection.execute(self._schema.lock, (lock,))
        return found

    def _lock_key(self, partition: PartitionName) -> int:
        name = f"{self._schema.prefix}/{partition.digest()}"
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


def _one(cursor: Any) -> int:
    """Returns the number in the only row."""
    return int(cursor.fetchone()[0])


def _check_dimension(found: Iterable[int], dimension: int) -> None:
    for other in found:
        if other != dimension:
            raise OtherDimension(other)
