"""What a search of vector_index costs and finds, beside raw hnswlib and exact search.

Runs the service as a process of its own and asks it over gRPC on loopback, one query at a time,
with the payload of a real entry (a prompt and five references). The limits in the same run: hnswlib
in this process with the same vectors and parameters, and a comparison with every vector. Service
and hnswlib take turns, query by query, so that noise of the machine hits both alike.

Vectors are clustered as prompts are (many around few topics), or MiniLM's of the prompts in a file.

    recall_at_10        share of the 10 nearest that is found; p99: the worst but 1 % of the queries
    search_ms           one search through the service; with its CPU and that of this process
    search_overhead_ms  the same less raw hnswlib, query by query
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

from search.service import IndexProcess, rows_of
from search.vectors import Ids, Matrix, clustered_split, nearest_exactly, prompt_split
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
            print_figure(
                "search_ms",
                len(vectors),
                [1000 * seconds for _, seconds in answers],
                rival="hnswlib",
                build_s=round(build_s, 2),
                graph_mb=round(graph.index_file_size() / 1e6, 1),
                **parameters,
            )


def measure_searches(
    args: argparse.Namespace,
    service: IndexProcess,
    graph: hnswlib.Index,
    vectors: Matrix,
    queries: Matrix,
) -> float:
    """Asks service and hnswlib in turns; returns the median of a search in seconds."""
    exact = nearest_exactly(vectors, queries, TOP_K)
    for query in queries[:20]:  # connections, caches
        service.search(query, TOP_K)
        ask_raw(graph, query)
    ours, raw, own_rows, raw_rows = [], [], [], []
    own_cpu, service_cpu = 0.0, service.cpu_s()
    for query in queries:
        cpu, start = time.process_time(), time.perf_counter()
        hits = service.search(query, TOP_K)
        ours.append(time.perf_counter() - start)
        own_cpu += time.process_time() - cpu
        own_rows.append(rows_of(hits))
        rows, seconds = ask_raw(graph, query)
        raw.append(seconds)
        raw_rows.append(rows)
    cpu_ms = 1000 * (own_cpu + service.cpu_s() - service_cpu) / len(queries)
    count, told = len(vectors), {"data": args.data}
    print_figure("recall_at_10", count, recalls(own_rows, exact), **told)
    print_figure("recall_at_10", count, recalls(raw_rows, exact), rival="hnswlib", **told)
    print_figure("search_ms", count, [1000 * s for s in ours], cpu_ms=round(cpu_ms, 3), **told)
    print_figure("search_ms", count, [1000 * s for s in raw], rival="hnswlib", **told)
    differences = [1000 * (a - b) for a, b in zip(ours, raw, strict=True)]
    print_figure("search_overhead_ms", count, differences, **told)
    return float(np.median(ours))


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
    settings = VectorIndexSettings()
    if len(vectors) <= settings.exact_search_limit * 5 // 4:
        raise SystemExit("too few entries: the service would search them exactly")
    with tempfile.TemporaryDirectory() as directory:
        service = IndexProcess(Path(directory))
        try:
            service.fill(vectors)
            graph = raw_graph(vectors, settings.hnsw_m, settings.hnsw_ef_construction)
            graph.set_ef(settings.hnsw_ef_search)
            service.wait_for_graph()
            median_s = measure_searches(args, service, graph, vectors, queries)
            measure_starts(args, service, vectors, median_s)
        finally:
            service.kill()


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    numbers: dict[str, Any] = {"type": int, "nargs": "+"}
    parser.add_argument("--entries", default=[10_000], **numbers)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--prompts", type=Path, nargs="+", help="tables with a column `prompt`")
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
