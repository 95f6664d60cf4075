"""Builds the HNSW indexes of large shelves, and drops those that are not needed any more."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

import psycopg

from skipstone_shared.errors import SkipstoneError
from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index.graph_vectors import GraphOptions
from skipstone_vector_index.pgvector_connections import (
    Connection,
    PgConnections,
    translated_errors,
)
from skipstone_vector_index.pgvector_schema import PgSchema, graph_type

_RETRY_S = 1.0
"""Until another look when another process is building, or PostgreSQL is away."""

_CANCEL_EVERY_S = 0.1

_BUILD_MEMORY = "256MB"
"""In which pgvector builds graphs fast; about 100,000 vectors of 384 elements."""


class PgGraphs:
    """A thread that makes graphs be as counts want them, whenever asked to look.

    Searches and writes go on meanwhile: a search compares every vector until the graph is there.
    One process builds at a time.
    """

    def __init__(
        self,
        connections: PgConnections,
        schema: PgSchema,
        exact_search_limit: int,
        graph: GraphOptions,
    ) -> None:
        """Starts the thread.

        Args:
            connections: Where connections come from.
            schema: Names of the tables.
            exact_search_limit: Entries of a shelf up to which it has no graph.
            graph: How graphs are built.
        """
        self._connections = connections
        self._schema = schema
        self._limit = exact_search_limit
        # A quarter above: at the limit itself one entry more or less would build and drop a graph
        # again and again.
        self._build_from = exact_search_limit + exact_search_limit // 4
        self._graph = graph
        self._condition = threading.Condition()
        self._asked = 0
        self._done = 0
        self._closed = False
        self._building: Connection | None = None
        self._looked_after: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="pgvector-graphs", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Asks for a look at all shelves, soon."""
        with self._condition:
            self._asked += 1
            self._condition.notify_all()

    def note_counts(self, counts: Mapping[int, int]) -> None:
        """Asks for a look when one of these shelves has become large or small."""
        for number, count in counts.items():
            if number in self._looked_after:
                changed = count <= self._limit
            else:
                changed = count > self._build_from
            if changed:
                self.look()

    def wait(self) -> None:
        """Returns when a look that was asked for before has been taken."""
        with self._condition:
            wanted = self._asked
            self._condition.wait_for(lambda: self._closed or self._done >= wanted)

    def close(self) -> None:
        """Ends the thread; a build is cancelled."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        while self._thread.is_alive():
            # Again and again: a statement that had not begun was not cancelled.
            with self._condition:
                building = self._building
            if building is not None:
                with suppress(psycopg.Error):
                    building.cancel_safe(timeout=_RETRY_S)
            self._thread.join(_CANCEL_EVERY_S)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self._asked > self._done)
                if self._closed:
                    return
                asked = self._asked
            if self._attempt():
                with self._condition:
                    self._done = asked
                    self._condition.notify_all()
            else:
                with self._condition:
                    self._condition.wait_for(lambda: self._closed, timeout=_RETRY_S)

    def _attempt(self) -> bool:
        """Takes one look; returns whether all is as it should be."""
        try:
            with translated_errors(), self._connections.connect() as connection:
                with self._condition:
                    if self._closed:
                        return False
                    self._building = connection
                try:
                    return self._look(connection)
                finally:
                    with self._condition:
                        self._building = None
        except (SkipstoneError, psycopg.Error) as error:
            if not self._closed:
                get_logger().warning("graphs not looked after; trying again", error=str(error))
            return False

    def _look(self, connection: Connection) -> bool:
        schema = self._schema
        # Not a lock to wait for: who waits holds a snapshot, and a build waits for older ones.
        name = f"{schema.prefix} graphs"
        locked = connection.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (name,))
        if locked.fetchone() != (True,):
            return False
        connection.execute("SELECT set_config('statement_timeout', '0', false)")
        connection.answer_timeout_s = None
        connection.execute(f"SET maintenance_work_mem = '{_BUILD_MEMORY}'")
        rows = connection.execute(schema.large_shelves, (self._limit,)).fetchall()
        large = {number for number, _, _ in rows}
        whole = set()
        for number, valid in schema.graphs(connection).items():
            # One that is not valid is left of a build that was cut off.
            if valid and number in large:
                whole.add(number)
            else:
                connection.execute(schema.drop_graph(number))
        due = {
            number: dimension
            for number, dimension, count in rows
            if count > self._build_from and number not in whole
        }
        for number, dimension in due.items():
            if graph_type(dimension):
                statement = schema.create_graph(
                    number, dimension, self._graph.m, self._graph.ef_construction
                )
                connection.execute(statement)
        self._looked_after = whole | due.keys()
        return True
