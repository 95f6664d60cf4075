"""What a search costs through vector_index, by the engine beneath it, and what it finds.

Each engine is served by a vector_index of its own and asked over gRPC on loopback from this
process, one query at a time, ten hits with the payload of a real entry; the engines take turns.
CPU is that of this process, the service and the engine's processes together. Vectors have 384
dimensions and are clustered as prompts are. PostgreSQL keeps its default settings but for fsync,
which no search needs. Milvus Lite and Qdrant's local mode show that the path works, and say nothing
of the speed of a Milvus or a Qdrant. A Milvus is measured where `SKIPSTONE_TEST_MILVUS_URL` names
one; its own CPU does not count then.

Prints one JSON line per engine and size; the recall is a mean:

    {"figure": "search_ms", "backend": ..., "size": entries, "p50": ..., "p99": ...,
     "cpu_ms": median, "n": ..., "recall_at_10": ..., "fill_per_s": entries}
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

import numpy as np
import psutil
import psycopg

from backends import milvus_lite_process as milvus_lite
from backends import postgres_process as postgres
from backends.figures import print_figure
from cacheplane.cpu import Cost, measured
from search.service import IndexProcess, rows_of
from search.vectors import Matrix, clustered_split, nearest_exactly
from server_process import wait_until

TOP_K = 10
_DIMENSION = 384
_WARM_UP = 10
_MILVUS = "SKIPSTONE_TEST_MILVUS_URL"

Flags = Sequence[str]
Started = tuple[Flags, int | None, Callable[[], bool] | None]
"""Flags of vector_index, process id of the engine, and whether the graph is there."""


@contextmanager
def _hnswlib(directory: Path) -> Iterator[Started]:
    graphs = directory / "data" / "graphs"
    yield [], None, lambda: any(graphs.glob("*.graph"))


@contextmanager
def _pgvector(directory: Path) -> Iterator[Started]:
    server = postgres.Postgres()

    def has_graph() -> bool:
        statement = (
            "SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
            " WHERE indisvalid AND relname LIKE 'skipstone_cosine_graph_%'"
        )
        with psycopg.connect(server.url) as connection:
            return connection.execute(statement).fetchone() is not None

    try:
        # A password in a flag is refused: every list of processes would show it.
        directory.mkdir(parents=True, exist_ok=True)
        settings = directory / "engine.toml"
        settings.write_text(f'[vector_index]\nurl = "{server.url}"\n', encoding="utf-8")
        yield ["--engine", "pgvector", "--config", str(settings)], server.pid, has_graph
    finally:
        server.remove()


@contextmanager
def _milvus_lite(directory: Path) -> Iterator[Started]:
    server = milvus_lite.MilvusLite()
    try:
        yield ["--engine", "milvus", "--url", server.url], server.process.pid, None
    finally:
        server.remove()


@contextmanager
def _qdrant_local(directory: Path) -> Iterator[Started]:
    yield ["--engine", "qdrant", "--url", "file://"], None, None  # in memory


@contextmanager
def _milvus(directory: Path) -> Iterator[Started]:
    url = os.environ[_MILVUS]
    prefix = f"bench_{uuid.uuid4().hex[:8]}"
    yield ["--engine", "milvus", "--url", url, "--collection", prefix], None, None


BACKENDS = {
    "hnswlib": _hnswlib,
    "pgvector": _pgvector,
    "milvus": _milvus,
    "milvus-lite": _milvus_lite,
    "qdrant-local": _qdrant_local,
}


def installed(names: Sequence[str]) -> list[str]:
    """Those whose engines are there; says how to install the others."""
    missing = {
        "pgvector": "" if postgres.is_installed() else postgres.INSTALL,
        "milvus-lite": "" if milvus_lite.is_installed() else milvus_lite.INSTALL,
        "milvus": "" if _MILVUS in os.environ else f"{_MILVUS} names no Milvus",
    }
    for name in names:
        if missing.get(name):
            print(f"{name} is not measured: {missing[name]}", file=sys.stderr)
    return [name for name in names if not missing.get(name)]


class Served:
    """One engine behind its vector_index, filled."""

    def __init__(self, name: str, directory: Path, stack: ExitStack, vectors: Matrix) -> None:
        """Starts both and stores vectors.

        Args:
            name: Which of BACKENDS.
            directory: For their data and logs.
            stack: Ends them.
            vectors: What to store.
        """
        self.name = name
        directory.mkdir(parents=True)
        flags, engine, has_graph = stack.enter_context(BACKENDS[name](directory))
        self._engine = engine
        self.service = IndexProcess(directory, [*flags, "--engine-timeout-s", "120"])
        stack.callback(self.service.kill)
        start = perf_counter()
        self.service.fill(vectors)
        self.fill_per_s = len(vectors) / (perf_counter() - start)
        exact_limit = 4096 * 5 // 4
        if has_graph is not None and len(vectors) > exact_limit:
            wait_until(has_graph, f"{name} has a graph")
        self._pids: list[int] = []

    def look_for_processes(self) -> None:
        """Notes who takes part, once connections are open."""
        self._pids = [self.service.pid]
        if self._engine is not None:
            engine = psutil.Process(self._engine)
            self._pids += [p.pid for p in [engine, *engine.children(recursive=True)]]

    def search(self, query: Matrix) -> tuple[list[int], Cost]:
        """The rows found for a query, and what it cost."""
        found: list[list[int]] = []
        cost = measured(
            lambda: found.append(rows_of(self.service.search(query, TOP_K))), self._pids
        )
        return found[0], cost


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=list(BACKENDS))
    parser.add_argument("--entries", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    arguments.backends = installed(arguments.backends)
    # Else the servers would outlive a run that is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    for count in arguments.entries:
        vectors, queries = clustered_split(count, arguments.queries + _WARM_UP, _DIMENSION)
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            served = [Served(name, root / name, stack, vectors) for name in arguments.backends]
            measure(served, vectors, queries)


def measure(served: Sequence[Served], vectors: Matrix, queries: Matrix) -> None:
    """Asks all engines in turns."""
    exact = nearest_exactly(vectors, queries, TOP_K)
    costs: dict[str, list[Cost]] = {one.name: [] for one in served}
    recalls: dict[str, list[float]] = {one.name: [] for one in served}
    for turn, (query, true) in enumerate(zip(queries, exact.tolist(), strict=True)):
        for one in served:
            if turn == _WARM_UP:
                one.look_for_processes()
            found, cost = one.search(query)
            if turn >= _WARM_UP:
                costs[one.name].append(cost)
                recalls[one.name].append(len(set(found) & set(true)) / TOP_K)
    for one in served:
        of = costs[one.name]
        wall_ms, cpu_ms = [cost.wall_ms for cost in of], [cost.cpu_ms for cost in of]
        more = {
            "recall_at_10": round(float(np.mean(recalls[one.name])), 4),
            "fill_per_s": round(one.fill_per_s, 1),
        }
        print_figure("search_ms", one.name, len(vectors), wall_ms, cpu_ms, **more)


if __name__ == "__main__":
    main()
