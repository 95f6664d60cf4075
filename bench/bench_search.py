"""What a search of vector_index costs and finds, beside raw hnswlib and exact search.

Runs the service as a process of its own and asks it over gRPC on loopback, one query at a time,
with the payload of a real entry (a prompt and five references). The limits in the same run: hnswlib
in this process with the same vectors and parameters, a bare gRPC call with answers of the same
size, and a comparison with every vector. They take turns, query by query, so that noise of the
machine hits all alike.

Vectors are clustered as prompts are (many around few topics), or MiniLM's of the prompts in files
(`--prompts bench/data/request_log.csv bench/data/parti_prompts.tsv`), with mixtures of neighbours
where more are wanted. `--exact-limit` has the service use a graph for fewer.

    recall_at_10        share of the 10 nearest that is found; p99: the worst but 1 % of the queries
    search_ms           one search through the service; with its CPU and that of this process
    search_overhead_ms  the same less raw hnswlib, query by query; rival `grpc` is the bare call
    startup_s           from the start of a killed service to its first right answer
    startup_fast_s      ... to a search no slower than twice the median before the kill

`--sweep` compares parameters of raw graphs instead: recall, milliseconds, build seconds and MB for
every combination of `--m`, `--ef-construction` and `--ef`.

Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import hnswlib
import numpy as np

from search.echo import EchoProcess
from search.service import IndexProcess, answer_bytes, rows_of
from search.vectors import Ids, Matrix, clustered_split, nearest_exactly, prompt_split
from server_process import end_in_order_on_sigterm
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions
from skipstone_vector_index.config import VectorIndexSettings

TOP_K = 10
_SEED = 100


def raw_graph(vectors: Matrix, m: int, ef_construction: int) -> hnswlib.Index:
    """A graph of hnswlib, built as the service builds it."""
    graph = hnswlib.Index(space="ip", dim=vectors.shape[1])
    graph.init_index(len(vectors), M=m, ef_construction=ef_construction, random_seed=_SEED)
    graph.add_items(vectors, num_threads=1)
    return graph


def ask_raw(graph: hnswlib.Index, query: Matrix) -> tuple[list[int], float]:
    """What hnswlib finds for one query, and the seconds it took."""
    start = time.perf_counter()
    (found,), _ = graph.knn_query(query[None], k=TOP_K, num_threads=1)
    seconds = time.perf_counter() - start
    return found.tolist(), seconds


def recalls(found: list[list[int]], exact: Ids) -> list[float]:
    """Share of the exact answer in each answer."""
    pairs = zip(found, exact.tolist(), strict=True)
    return [len(set(mine) & set(true)) / TOP_K for mine, true in pairs]


def print_figure(figure: str, entries: int, samples: list[float], **more: Any) -> None:
    """One JSON line; for a recall the 99th percentile is that of its worst queries."""
    tail = 1 if figure.startswith("recall") else 99
    line = {
        "figure": figure,
        "entries": entries,
        "mb": 0.0,  # no snapshot is moved
        "p50": round(float(np.percentile(samples, 50)), 4),
        "p99": round(float(np.percentile(samples, tail)), 4),
        "mean": round(float(np.mean(samples)), 4),
        "n": len(samples),
        **more,
    }
    print(json.dumps(line), flush=True)


def print_ms(figure: str, entries: int, seconds: list[float], **more: Any) -> None:
    """One JSON line of times."""
    print_figure(figure, entries, [1000 * value for value in seconds], **more)


def sweep(args: argparse.Namespace, vectors: Matrix, queries: Matrix) -> None:
    """Compares parameters of raw graphs."""
    exact = nearest_exactly(vectors, queries, TOP_K)
    for m, ef_construction in itertools.product(args.m, args.ef_construction):
        start = time.perf_counter()
        graph = raw_graph(vectors, m, ef_construction)
        build_s = time.perf_counter() - start
        for ef in args.ef:
            graph.set_ef(ef)
            answers = [ask_raw(graph, query) for query in queries]
            parameters = {"m": m, "ef_construction": ef_construction, "ef": ef, "data": args.data}
            found = recalls([rows for rows, _ in answers], exact)
            print_figure("recall_at_10", len(vectors), found, rival="hnswlib", **parameters)
            print_ms(
                "search_ms",
                len(vectors),
                [seconds for _, seconds in answers],
                rival="hnswlib",
                build_s=round(build_s, 2),
                graph_mb=round(graph.index_file_size() / 1e6, 1),
                **parameters,
            )


class Rounds:
    """Service, hnswlib and a bare call asked in turns."""

    def __init__(self, service: IndexProcess, graph: hnswlib.Index, echo: EchoProcess) -> None:
        """Takes what is asked."""
        self._service, self._graph, self._echo = service, graph, echo
        self.ours_s: list[float] = []
        self.raw_s: list[float] = []
        self.echo_s: list[float] = []
        self.our_rows: list[list[int]] = []
        self.raw_rows: list[list[int]] = []
        self.client_cpu_s = 0.0

    def ask(self, query: Matrix) -> None:
        """Asks all of them once."""
        cpu, start = time.process_time(), time.perf_counter()
        hits = self._service.search(query, TOP_K)
        self.ours_s.append(time.perf_counter() - start)
        self.client_cpu_s += time.process_time() - cpu
        self.our_rows.append(rows_of(hits))
        rows, seconds = ask_raw(self._graph, query)
        self.raw_s.append(seconds)
        self.raw_rows.append(rows)
        start = time.perf_counter()
        self._echo.ask(query.tobytes())
        self.echo_s.append(time.perf_counter() - start)


def measure_searches(
    args: argparse.Namespace,
    service: IndexProcess,
    graph: hnswlib.Index,
    vectors: Matrix,
    queries: Matrix,
) -> float:
    """Asks service and limits in turns; returns the median of a search in seconds."""
    exact = nearest_exactly(vectors, queries, TOP_K)
    echo = EchoProcess(answer_bytes(service.search(queries[0], TOP_K)))
    try:
        warm_up = Rounds(service, graph, echo)
        for query in queries[:20]:  # connections, caches
            warm_up.ask(query)
        rounds, service_cpu = Rounds(service, graph, echo), service.cpu_s()
        for query in queries:
            rounds.ask(query)
        service_cpu = service.cpu_s() - service_cpu
    finally:
        echo.close()
    cpu_ms = 1000 * (rounds.client_cpu_s + service_cpu) / len(queries)
    count, told = len(vectors), {"data": args.data}
    print_figure("recall_at_10", count, recalls(rounds.our_rows, exact), **told)
    raw_recalls = recalls(rounds.raw_rows, exact)
    print_figure("recall_at_10", count, raw_recalls, rival="hnswlib", **told)
    print_ms("search_ms", count, rounds.ours_s, cpu_ms=round(cpu_ms, 3), **told)
    print_ms("search_ms", count, rounds.raw_s, rival="hnswlib", **told)
    over = [a - b for a, b in zip(rounds.ours_s, rounds.raw_s, strict=True)]
    print_ms("search_overhead_ms", count, over, **told)
    print_ms("search_overhead_ms", count, rounds.echo_s, rival="grpc", **told)
    return float(np.median(rounds.ours_s))


def measure_starts(
    args: argparse.Namespace, service: IndexProcess, vectors: Matrix, median_s: float
) -> None:
    """Kills the service and times its return."""
    right, fast = [], []
    for row in range(args.starts):
        service.kill_and_restart()
        found = rows_of(service.search(vectors[row], 1))
        right.append(time.perf_counter() - service.started)
        if found != [row]:
            raise SystemExit(f"a wrong answer after a start: {found} for {row}")
        took = float("inf")
        while took > 2 * median_s:
            start = time.perf_counter()
            service.search(vectors[row], TOP_K)
            took = time.perf_counter() - start
        fast.append(time.perf_counter() - service.started)
    print_figure("startup_s", len(vectors), right, data=args.data)
    print_figure("startup_fast_s", len(vectors), fast, data=args.data)


def measure_service(args: argparse.Namespace, vectors: Matrix, queries: Matrix) -> None:
    """Fills a service, asks it and restarts it."""
    settings = VectorIndexSettings(exact_search_limit=args.exact_limit)
    options = AdaptiveOptions(exact_search_limit=settings.exact_search_limit)
    with tempfile.TemporaryDirectory() as directory:
        service = IndexProcess(Path(directory), ["--exact-search-limit", str(args.exact_limit)])
        try:
            service.fill(vectors)
            graph = raw_graph(vectors, settings.hnsw_m, settings.hnsw_ef_construction)
            graph.set_ef(settings.hnsw_ef_search)
            if len(vectors) > options.graph_from:
                service.wait_for_graph()
            median_s = measure_searches(args, service, graph, vectors, queries)
            measure_starts(args, service, vectors, median_s)
        finally:
            service.kill()


def main() -> None:
    """Measures what the arguments say."""
    end_in_order_on_sigterm()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    numbers: dict[str, Any] = {"type": int, "nargs": "+"}
    parser.add_argument("--entries", default=[1_000, 10_000], **numbers)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--prompts", type=Path, nargs="+", help="tables with a column `prompt`")
    limit = VectorIndexSettings().exact_search_limit
    parser.add_argument("--exact-limit", type=int, default=limit, help="of the service")
    parser.add_argument("--sweep", action="store_true", help="parameters of raw graphs instead")
    parser.add_argument("--m", default=[8, 16, 32], **numbers)
    parser.add_argument("--ef-construction", default=[100, 200], **numbers)
    parser.add_argument("--ef", default=[32, 64, 128, 256], **numbers)
    args = parser.parse_args()
    args.data = "prompts" if args.prompts else "clustered"
    for count in args.entries:
        if args.prompts:
            vectors, queries = prompt_split(args.prompts, count, args.queries)
        else:
            vectors, queries = clustered_split(count, args.queries, args.dimension)
        (sweep if args.sweep else measure_service)(args, vectors, queries)


if __name__ == "__main__":
    main()
