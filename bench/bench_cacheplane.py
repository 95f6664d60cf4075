"""What hits, misses and saves cost through latent_kv and vector_index, and beside what.

Runs both services as processes of their own and asks them over gRPC on loopback, as a request does.
CPU is that of the services and of this process together. In the same run: what nothing can beat
(LMDB, hnswlib, a bare gRPC stream of the same bytes, memcpy) and what people use (FAISS HNSW with
Redis or with a file per snapshot). All take turns, round by round.

    hit_cpu_ms, hit_wall_ms    a search, and a read of the donor's latents
    miss_cpu_ms                a search for what nothing is similar enough to
    save_cpu_ms                five snapshots one by one, a commit, and a vector
    read_ratio_to_echo         wall time of a read over that of the bare stream, round by round
    search_overhead_ms         a search less raw hnswlib, query by query
    recall_at_10               share of the 10 nearest that is found; p99: all but the worst 1 %
    startup_s                  from the start of both killed services to the first right hit

Every entry has five snapshots of about 1 kB; of `--measured` entries per size the first has that
size. Prints one JSON line per figure. `--keep DIRECTORY` keeps what was filled for the next run, so
that one can be measured in pieces; `--draw FILES` puts the lines of all of them into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch

from cacheplane.entries import DIMENSION, SHAPES, USUAL_MB, Sizes
from cacheplane.limits import Echo, RawLmdb
from cacheplane.measuring import Bench, measure_starts
from cacheplane.prepare import load_faiss, load_graph, prepare
from cacheplane.rivals import FaissIndex, rivals
from cacheplane.services import running
from cacheplane.tables import draw
from search.vectors import Matrix, clustered_split
from server_process import end_in_order_on_sigterm

PARTS = ("reads", "saves", "searches", "starts")


def main() -> None:
    """Measures what the arguments say."""
    arguments = parsed()
    if arguments.draw:
        texts = [path.read_text(encoding="utf-8") for path in arguments.draw]
        draw([json.loads(line) for text in texts for line in text.splitlines()])
        return
    torch.set_num_threads(1)
    end_in_order_on_sigterm()
    with ExitStack() as stack:
        root = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for count in arguments.entries:
            measured = min(arguments.measured, count // len(arguments.mb))
            sizes = Sizes(count, tuple(arguments.mb), measured)
            vectors, queries = clustered_split(count, arguments.queries, DIMENSION)
            directory = root / str(count)
            prepare(directory, sizes, vectors)
            if not arguments.prepare:
                measure(arguments, directory, sizes, vectors, queries)


def measure(
    arguments: argparse.Namespace, directory: Path, sizes: Sizes, vectors: Matrix, queries: Matrix
) -> None:
    """Measures one number of entries."""
    if "starts" in arguments.only:
        measure_starts(directory, sizes, vectors, arguments.starts)
    if not {"reads", "saves", "searches"} & set(arguments.only):
        return
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        raw = RawLmdb(scratch / "lmdb")
        stack.callback(raw.close)
        index = FaissIndex(load_faiss(directory), sizes.entries)
        bench = Bench(
            sizes,
            vectors,
            queries,
            stack.enter_context(running(directory)),
            stack.enter_context(Echo(scratch / "echo.log")),
            raw,
            stack.enter_context(rivals(index, scratch, sizes)),
        )
        if "searches" in arguments.only:
            bench.measure_searches(load_graph(directory))
        for mb in sizes.mbs:
            if "reads" in arguments.only:
                bench.measure_reads(mb, arguments.rounds)
            if "saves" in arguments.only:
                bench.measure_saves(mb, arguments.saves)


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--mb", type=float, nargs="+", choices=list(SHAPES), default=USUAL_MB)
    parser.add_argument("--rounds", type=int, default=200, help="hits, misses and reads")
    parser.add_argument("--saves", type=int, default=30, help="saves of five steps")
    parser.add_argument("--queries", type=int, default=500, help="searches")
    parser.add_argument("--starts", type=int, default=3, help="kills and starts")
    parser.add_argument("--measured", type=int, default=200, help="entries of each measured size")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--keep", type=Path, help="directory for what is filled")
    parser.add_argument("--prepare", action="store_true", help="only fill it")
    parser.add_argument(
        "--draw", type=Path, nargs="+", help="files of lines, for the page's tables"
    )
    parser.add_argument("--quick", action="store_true", help="about two minutes: fewer of all")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.entries, arguments.mb = [1_000, 10_000], [1.0, 9.7]
        arguments.rounds, arguments.saves, arguments.queries = 40, 10, 200
        arguments.starts, arguments.measured = 1, 40
    return arguments


if __name__ == "__main__":
    main()
