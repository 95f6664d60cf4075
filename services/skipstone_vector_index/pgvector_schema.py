"""Tables of the index in PostgreSQL, and the statements on them.

    PREFIX_shelves   one row per partition and embedding model that has entries
    PREFIX_entries   one row per entry: ids, shelf, label, revision, packed entry, vector
    PREFIX_labels    sequence of labels and revisions
    PREFIX_graph_N   HNSW index over the entries of shelf N; only where they are many

PREFIX is the collection and the metric: vectors of another metric never meet these. All rows stand
in one table, since a table for each of thousands of small partitions would cost more than a column;
an HNSW index over one shelf has no filter to get around, so that its recall is that of its graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_vector_index.pgvector_connections import Connection

_LARGEST_VECTOR_GRAPH = 2000
_LARGEST_HALF_GRAPH = 4000
"""Elements that pgvector can index as float32, and as float16."""

_CREATE = """
CREATE SEQUENCE IF NOT EXISTS {p}_labels;
CREATE TABLE IF NOT EXISTS {p}_shelves (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    compatibility_key text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    dimension integer NOT NULL,
    entry_count bigint NOT NULL,
    UNIQUE (namespace, compatibility_key, model)
);
CREATE TABLE IF NOT EXISTS {p}_entries (
    namespace text COLLATE "C" NOT NULL,
    entry_id text COLLATE "C" NOT NULL,
    compatibility_key text COLLATE "C" NOT NULL,
    shelf bigint NOT NULL,
    label bigint NOT NULL DEFAULT nextval('{p}_labels'),
    revision bigint NOT NULL DEFAULT nextval('{p}_labels'),
    packed bytea NOT NULL,
    vector vector NOT NULL,
    PRIMARY KEY (namespace, entry_id, compatibility_key)
);
ALTER TABLE {p}_entries ALTER COLUMN packed SET STORAGE EXTERNAL;
ALTER TABLE {p}_entries ALTER COLUMN vector SET STORAGE MAIN;
CREATE INDEX IF NOT EXISTS {p}_by_shelf ON {p}_entries (shelf, label);
CREATE INDEX IF NOT EXISTS {p}_by_label ON {p}_entries (namespace, label);
"""
# Storage: an exact search reads every vector of a shelf. They stay in the row where they can, and
# what is found through them, the packed entries, goes out of it.


class PgSchema:
    """Names and statements for one prefix; it is a plain identifier."""

    def __init__(self, prefix: str) -> None:
        """Makes the statements."""
        p = self.prefix = prefix
        self.entries = f"{p}_entries"
        self.graph_prefix = f"{p}_graph_"
        self.lock = "SELECT pg_advisory_xact_lock(%s)"
        self.shelves = (
            f"SELECT number, model, dimension, entry_count FROM {p}_shelves"
            " WHERE namespace = %s AND compatibility_key = %s"
        )
        self.add_shelf = (
            f"INSERT INTO {p}_shelves (namespace, compatibility_key, model, dimension, entry_count)"
            " VALUES (%s, %s, %s, %s, 0) RETURNING number"
        )
        self.count_shelf = (
            f"UPDATE {p}_shelves SET entry_count = entry_count + %s WHERE number = %s"
            " RETURNING entry_count"
        )
        self.drop_empty = f"DELETE FROM {p}_shelves WHERE number = ANY(%s) AND entry_count = 0"
        self.stored_shelves = (
            f"SELECT entry_id, shelf FROM {p}_entries"
            " WHERE namespace = %s AND compatibility_key = %s AND entry_id = ANY(%s)"
        )
        self.put = (
            f"INSERT INTO {p}_entries"
            " (namespace, compatibility_key, entry_id, shelf, packed, vector)"
            " VALUES (%s, %s, %s, %s, %b, %b)"
            " ON CONFLICT (namespace, entry_id, compatibility_key) DO UPDATE SET"
            " shelf = excluded.shelf, revision = excluded.revision,"
            " packed = excluded.packed, vector = excluded.vector"
        )
        self.find = (
            f"SELECT compatibility_key, packed, vector FROM {p}_entries"
            " WHERE namespace = %s AND entry_id = %s ORDER BY revision DESC LIMIT 1"
        )
        self.find_all = (
            f"SELECT compatibility_key, entry_id, packed, vector FROM {p}_entries"
            " WHERE namespace = %s AND entry_id = ANY(%s)"
        )
        # Of a sequence that nobody has used last_value is the first value that it will give.
        self.last_label = f"SELECT last_value FROM {p}_labels"
        self.page = (
            f"SELECT label, packed FROM {p}_entries"
            " WHERE namespace = %s AND label > %s AND label <= %s ORDER BY label LIMIT %s"
        )
        self.page_of_shelves = (
            f"SELECT label, packed FROM {p}_entries WHERE shelf = ANY("
            f"SELECT number FROM {p}_shelves WHERE namespace = %s AND compatibility_key = %s)"
            " AND label > %s AND label <= %s ORDER BY label LIMIT %s"
        )
        self.namespaces = f"SELECT DISTINCT namespace FROM {p}_shelves"
        self.keys_with = (
            f"SELECT DISTINCT compatibility_key FROM {p}_entries"
            " WHERE namespace = %s AND entry_id = ANY(%s)"
        )
        self.delete = (
            f"DELETE FROM {p}_entries WHERE namespace = %s AND entry_id = ANY(%s)"
            " AND compatibility_key = ANY(%s) RETURNING entry_id, shelf"
        )
        self.keys = f"SELECT DISTINCT compatibility_key FROM {p}_shelves WHERE namespace = %s"
        self.delete_shelves = (
            f"DELETE FROM {p}_shelves WHERE namespace = %s AND compatibility_key = ANY(%s)"
            " RETURNING number"
        )
        self.delete_of_shelves = f"DELETE FROM {p}_entries WHERE shelf = ANY(%s)"
        self.large_shelves = (
            f"SELECT number, dimension, entry_count FROM {p}_shelves WHERE entry_count > %s"
        )
        self.stats = (
            "SELECT coalesce(sum(entry_count), 0)::bigint, count(DISTINCT compatibility_key),"
            f" pg_total_relation_size('{p}_entries') FROM {p}_shelves WHERE namespace = %s"
        )
        self.count = f"SELECT coalesce(sum(entry_count), 0)::bigint FROM {p}_shelves"

    def create(self, connection: Connection) -> None:
        """Creates what is missing; several processes may do so at a time."""
        with connection.transaction():
            connection.execute(self.lock, (0x5C1B5701,))
            known = connection.execute("SELECT to_regclass(%s)", (self.entries,)).fetchone()
            if known == (None,):
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                connection.execute(_CREATE.format(p=self.prefix))

    def nearest(self, shelf: int, dimension: int, *, exact: bool) -> str:
        """Returns the statement that finds the rows of a shelf nearest to a vector.

        Its parameters are the vector and the number of rows. The shelf is written out, since the
        planner uses a graph only where it sees that the graph is of this shelf.
        """
        kind = "vector" if exact else graph_type(dimension) or "vector"
        order = f"vector::{kind}({dimension}) <#> %b::vector::{kind}({dimension})"
        tie = ", entry_id" if exact else ""
        return (
            f"(SELECT entry_id, packed, vector FROM {self.entries} WHERE shelf = {shelf:d}"
            f" ORDER BY {order}{tie} LIMIT %s)"
        )

    def create_graph(self, shelf: int, dimension: int, m: int, ef_construction: int) -> str:
        """Returns the statement that builds the graph of a shelf."""
        kind = graph_type(dimension)
        return (
            f"CREATE INDEX CONCURRENTLY {self.graph_prefix}{shelf:d} ON {self.entries}"
            f" USING hnsw ((vector::{kind}({dimension})) {kind}_ip_ops)"
            f" WITH (m = {m:d}, ef_construction = {ef_construction:d}) WHERE shelf = {shelf:d}"
        )

    def drop_graph(self, shelf: int) -> str:
        """Returns the statement that drops the graph of a shelf."""
        return f"DROP INDEX CONCURRENTLY IF EXISTS {self.graph_prefix}{shelf:d}"

    def graphs(self, connection: Connection) -> dict[int, bool]:
        """Returns the shelves with a graph, and whether it is whole."""
        rows: Sequence[tuple[str, bool]] = connection.execute(
            "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
            " WHERE indrelid = to_regclass(%s) AND starts_with(relname, %s)",
            (self.entries, self.graph_prefix),
        ).fetchall()
        return {int(name.removeprefix(self.graph_prefix)): valid for name, valid in rows}


def graph_type(dimension: int) -> str | None:
    """Returns the type in which vectors go into a graph; None where they are too long for one."""
    if dimension <= _LARGEST_VECTOR_GRAPH:
        return "vector"
    return "halfvec" if dimension <= _LARGEST_HALF_GRAPH else None
