"""What `PgvectorEngine` promises beyond the contract suite.

Graphs, many processes on one database, its end and its return.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import psycopg
import pytest
from tests.e2e.processes import wait_until
from tests.servers.postgres import INSTALL, PASSWORD, Postgres, is_installed, shared_postgres

from skipstone_shared.errors import FailedPrecondition, SkipstoneError, Unavailable
from skipstone_shared.index_entries import IndexEntry, Vector, VectorEntry
from skipstone_vector_index.engine import NewRow, OtherDimension, PartitionName
from skipstone_vector_index.engine_index import EngineIndex
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.pgvector_engine import PgvectorEngine
from skipstone_vector_index.vector_form import Matrix, Metric, VectorForm

KEY = "a1" * 16
HERE = PartitionName("default", KEY)


@pytest.fixture
def server() -> Postgres:
    return shared_postgres()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """One that tests may end, if they start it again."""
    if not is_installed():
        pytest.skip(INSTALL)
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def new_prefix() -> str:
    return f"t{uuid.uuid4().hex}"


def opened(
    stack: ExitStack, server: Postgres, prefix: str | None = None, limit: int = 4096
) -> PgvectorEngine:
    engine = PgvectorEngine(server.url, prefix or new_prefix(), exact_search_limit=limit)
    stack.callback(engine.close)
    return engine


def vectors(count: int, dimension: int = 16, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def items(rows: Matrix, first: int = 0) -> list[VectorEntry]:
    return [VectorEntry(IndexEntry(f"e{first + i}"), row) for i, row in enumerate(rows)]


def found(index: EngineIndex | FlatIndex, query: Vector, top_k: int = 10) -> list[str]:
    (hits,) = index.search_entries("", KEY, [query], top_k)
    return [hit.entry.entry_id for hit in hits]


def graphs(server: Postgres, prefix: str) -> list[str]:
    with psycopg.connect(server.url) as connection:
        rows = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE tablename = %s AND indexname LIKE %s",
            (f"{prefix}_entries", f"{prefix}_graph_%"),
        )
        return [row[0] for row in rows]


def test_a_large_partition_gets_a_graph_that_finds_what_exact_search_finds(
    server: Postgres, stack: ExitStack
) -> None:
    prefix = new_prefix()
    engine = opened(stack, server, prefix, limit=500)
    index, exact = EngineIndex(engine, VectorForm()), FlatIndex()
    rows = vectors(1000)
    for one in (index, exact):
        assert one.upsert_entries("", KEY, items(rows)) == [None] * 1000
    engine.wait_for_graphs()
    assert len(graphs(server, prefix)) == 1
    hits = [(found(index, q), found(exact, q)) for q in vectors(100, seed=1)]
    recall = np.mean([len(set(mine) & set(true)) / 10 for mine, true in hits])
    assert recall >= 0.99


def test_a_search_of_a_large_partition_uses_its_graph(server: Postgres, stack: ExitStack) -> None:
    prefix = new_prefix()
    engine = PgvectorEngine(server.url, prefix, exact_search_limit=500)
    index = EngineIndex(engine, VectorForm())
    stack.callback(index.close)
    index.upsert_entries("", KEY, items(vectors(1000)))
    engine.wait_for_graphs()
    found(index, vectors(1)[0])
    index.close()  # PostgreSQL counts what a connection did at its end

    def scans() -> int:
        with psycopg.connect(server.url) as connection:
            statement = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s"
            (row,) = connection.execute(statement, graphs(server, prefix)).fetchall()
            return int(row[0])

    wait_until(lambda: scans() == 1, "the search is counted")


def test_a_partition_that_shrinks_loses_its_graph(server: Postgres, stack: ExitStack) -> None:
    prefix = new_prefix()
    engine = opened(stack, server, prefix, limit=40)
    index = EngineIndex(engine, VectorForm())
    index.upsert_entries("", KEY, items(vectors(60)))
    engine.wait_for_graphs()
    assert len(graphs(server, prefix)) == 1
    index.delete_entries("", [f"e{i}" for i in range(30)])
    engine.wait_for_graphs()
    assert graphs(server, prefix) == []
    assert len(found(index, vectors(1)[0], 100)) == 30


def test_a_graph_whose_build_was_cut_off_is_built_anew(server: Postgres, stack: ExitStack) -> None:
    prefix = new_prefix()
    with ExitStack() as first:
        engine = opened(first, server, prefix, limit=40)
        EngineIndex(engine, VectorForm()).upsert_entries("", KEY, items(vectors(60)))
        engine.wait_for_graphs()
    with psycopg.connect(server.url) as connection:
        connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass",
            graphs(server, prefix),
        )
    engine = opened(stack, server, prefix, limit=40)
    engine.wait_for_graphs()
    with psycopg.connect(server.url) as connection:
        valid = connection.execute(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass",
            graphs(server, prefix),
        ).fetchall()
    assert valid == [(True,)]


@pytest.mark.parametrize(("dimension", "count"), [(2048, 1), (4096, 0)])
def test_long_vectors_are_found_exactly_in_a_graph_or_without(
    server: Postgres, stack: ExitStack, dimension: int, count: int
) -> None:
    """pgvector's graphs take 2,000 elements, or 4,000 as float16."""
    prefix = new_prefix()
    engine = opened(stack, server, prefix, limit=10)
    index = EngineIndex(engine, VectorForm())
    rows = vectors(30, dimension)
    assert index.upsert_entries("", KEY, items(rows)) == [None] * 30
    engine.wait_for_graphs()
    assert len(graphs(server, prefix)) == count
    (hits,) = index.search_entries("", KEY, [rows[7]], 3)
    assert (hits[0].entry.entry_id, hits[0].similarity) == ("e7", 1.0)


def test_inner_products_count_with_the_norms(server: Postgres, stack: ExitStack) -> None:
    index = EngineIndex(opened(stack, server), VectorForm(Metric.INNER_PRODUCT))
    index.upsert_entries("", KEY, items(np.array([[3, 0], [0, 1], [1, 1]], np.float32)))
    (hits,) = index.search_entries("", KEY, [np.array([2, 1], np.float32)], 10)
    assert [(hit.entry.entry_id, hit.similarity) for hit in hits] == [
        ("e0", 6.0),
        ("e2", 3.0),
        ("e1", 1.0),
    ]


def test_processes_that_share_a_database_see_each_others_writes_at_once(
    server: Postgres, stack: ExitStack
) -> None:
    prefix = new_prefix()
    one, two = (EngineIndex(opened(stack, server, prefix), VectorForm()) for _ in range(2))
    rows = vectors(4)
    one.upsert_entries("", KEY, items(rows[:2]))
    assert found(two, rows[0]) == found(one, rows[0])
    two.upsert_entries("", KEY, items(rows[2:], first=2))
    assert [e.entry_id for e in one.list_entries("").entries] == ["e0", "e1", "e2", "e3"]
    assert two.delete_entries("", ["e0"]) == [True]
    assert one.get_stats("").entry_count == 3
    assert one.delete_partition("") == 3
    assert two.list_namespaces().namespaces == ()


def test_writers_of_many_processes_leave_right_counts(server: Postgres, stack: ExitStack) -> None:
    """Each adds to, replaces in and deletes from the same two partitions."""
    prefix = new_prefix()
    indexes = [EngineIndex(opened(stack, server, prefix), VectorForm()) for _ in range(3)]
    rows = vectors(8)

    def write(worker: int) -> None:
        for round_ in range(10):
            key = ("one", "two")[(worker + round_) % 2]
            model = f"m{(worker + round_) % 3}"
            entries = [
                VectorEntry(IndexEntry(f"e{i}", embedding_model_id=model), row)
                for i, row in enumerate(rows)
            ]
            assert not any(indexes[worker].upsert_entries("", key, entries))
            indexes[worker].delete_entries("", [f"e{round_ % 8}", f"e{worker}"])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    listed = [
        e.entry_id for key in ("one", "two") for e in indexes[0].list_entries("", key).entries
    ]
    assert indexes[0].get_stats("").entry_count == len(listed)
    assert indexes[0].delete_partition("") == len(listed)
    assert indexes[0].get_stats("").partition_count == 0


def test_a_partition_never_gets_vectors_of_two_dimensions(
    server: Postgres, stack: ExitStack
) -> None:
    engine = opened(stack, server)
    engine.put(HERE, [NewRow("e1", b"", np.ones(3, np.float32), "m")])
    with pytest.raises(OtherDimension):
        engine.put(HERE, [NewRow("e2", b"", np.ones(2, np.float32), "m")])
    assert engine.find("default", "e2") is None


def test_a_database_that_ends_and_returns_is_used_again_with_all_that_was_acknowledged(
    own_server: Postgres, stack: ExitStack
) -> None:
    now = [100.0]
    index = EngineIndex(opened(stack, own_server), VectorForm(), monotonic=lambda: now[0])
    rows = vectors(5)
    index.upsert_entries("", KEY, items(rows))
    own_server.stop()
    with pytest.raises(Unavailable, match="connect"):
        index.search_entries("", KEY, [rows[0]], 3)
    with pytest.raises(Unavailable, match="just now"):
        index.get_stats("")
    own_server.start()
    now[0] += 1
    assert found(index, rows[0], 1) == ["e0"]
    assert index.get_stats("").entry_count == 5


def test_a_restart_between_two_calls_is_not_noticed(own_server: Postgres, stack: ExitStack) -> None:
    index = EngineIndex(opened(stack, own_server), VectorForm())
    index.upsert_entries("", KEY, items(vectors(5)))
    own_server.stop()
    own_server.start()
    assert index.get_stats("").entry_count == 5


def test_a_database_that_hangs_ends_a_call_with_unavailable(
    own_server: Postgres, stack: ExitStack
) -> None:
    engine = PgvectorEngine(own_server.url, new_prefix(), timeout_s=0.2)
    stack.callback(engine.close)
    index = EngineIndex(engine, VectorForm())
    index.upsert_entries("", KEY, items(vectors(5)))
    own_server.signal_all(signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable):
            index.get_stats("")
    finally:
        own_server.signal_all(signal.SIGCONT)


def test_no_error_shows_the_password(server: Postgres) -> None:
    wrong = server.url.replace(PASSWORD, "another-secret%21word")
    broken = server.url.replace(PASSWORD, "%zz-another-secret")
    for url, kind in ((wrong, Unavailable), (broken, FailedPrecondition)):
        with pytest.raises(SkipstoneError) as caught:
            PgvectorEngine(url, new_prefix())
        assert isinstance(caught.value, kind)
        told = f"{caught.value!r} {caught.value} {caught.value.__context__!r}"
        assert "another-secret" not in str(caught.value)
        assert kind is FailedPrecondition or "another-secret" not in told
