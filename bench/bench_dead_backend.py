"""What a dead cache service adds to a request, once its breaker is open.

All five services run as processes, with the default deadlines and the bundled model at one step.
Beside their orchestrator run others over the same services, each with one of these dead: its target
is a port where nobody listens. A prompt that nothing resembles is asked for again and again, every
time with another seed, in turn from the healthy orchestrator, from the one that misses a service,
and without the cache, so that what else the machine does hits all of them.

    p50               median of (one service dead - all alive), of neighbours, over the stages that
                      the cache takes by the orchestrator's own clock (build_query, lookup, rerank,
                      resume); below 0 where calls to others fall away with it
    over_no_cache_ms  these stages themselves: a request without the cache has none of them
    told_ms           the delays of the fallbacks in the provenance
    wall_ms           as p50, of the whole call on the wall; its noise is that of the steps

The bar is 5 ms at p50.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from server_process import ServerProcess, wait_until
from skipstone_client import OrchestratorClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import BreakerState, CacheMode, CacheOptions, GenerateResult

BACKENDS: Final = ("embedding", "vector_index", "latent_kv")
BAR_MS: Final = 5.0
_PROMPT: Final = "a tiny black plus at the left on a tan background"
_READ_ONLY: Final = CacheOptions(mode=CacheMode.READ_ONLY)
_OFF: Final = CacheOptions(mode=CacheMode.OFF)
_WARM_UP: Final = 10
_STAGES: Final = ("build_query", "lookup", "rerank", "resume")
# Audits would run beside what is measured.
_FLAGS: Final = ("--drift-audit-share", "0")


def main() -> None:
    """Measures each backend; prints one JSON line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=200, help="of each kind for each figure")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(folder, free_ports=True, flags={"orchestrator": _FLAGS}) as cluster,
        OrchestratorClient(cluster.targets["orchestrator"]) as healthy,
    ):
        seeds = itertools.count()
        for backend in BACKENDS:
            log = Path(folder) / f"without-{backend}.log"
            server = ServerProcess(_without(backend, cluster.targets), log)
            try:
                with OrchestratorClient(server.address()) as missing:
                    opens = functools.partial(_is_open, missing, backend, seeds)
                    wait_until(opens, f"the breaker of {backend} opens")
                    _report(backend, healthy, missing, seeds, arguments.requests)
            finally:
                server.end()


def _without(backend: str, targets: Mapping[str, str]) -> list[str]:
    """The command of an orchestrator one of whose services is dead."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{unused.getsockname()[1]}"
    found = {name: t for name, t in targets.items() if name != "orchestrator"} | {backend: dead}
    flags = [f"--{name.replace('_', '-')}-target={target}" for name, target in found.items()]
    return [sys.executable, "-m", "skipstone_orchestrator", "--port", "0", *flags, *_FLAGS]


def _report(
    backend: str,
    healthy: OrchestratorClient,
    missing: OrchestratorClient,
    seeds: itertools.count[int],
    n: int,
) -> None:
    ways = {"alive": (healthy, _READ_ONLY), "dead": (missing, _READ_ONLY), "off": (missing, _OFF)}
    walls: dict[str, list[float]] = {way: [] for way in ways}
    stages: dict[str, list[float]] = {way: [] for way in ways}
    told = []
    for number in range(_WARM_UP + n):
        order = list(ways)[number % 3 :] + list(ways)[: number % 3]
        for way in order:
            seconds, result = _timed(*ways[way], next(seeds))
            if number >= _WARM_UP:
                found = result.provenance.stage_times_s
                walls[way].append(1e3 * seconds)
                stages[way].append(1e3 * sum(found.get(stage, 0.0) for stage in _STAGES))
                if way == "dead":
                    told.append(1e3 * sum(f.delay_s for f in result.provenance.fallbacks))
    line = {
        "figure": "dead_backend_added_ms",
        "backend": backend,
        "p50": _median_difference(stages["dead"], stages["alive"]),
        "over_no_cache_ms": _median_difference(stages["dead"], stages["off"]),
        "wall_ms": _median_difference(walls["dead"], walls["alive"]),
        "told_ms": round(float(np.median(told)), 3),
        "told_p99_ms": round(float(np.percentile(told, 99)), 3),
        "bar": BAR_MS,
        "n": n,
    }
    print(json.dumps(line), flush=True)


def _median_difference(ones: list[float], others: list[float]) -> float:
    return round(float(np.median(np.subtract(ones, others))), 2)


def _timed(
    client: OrchestratorClient, cache: CacheOptions, seed: int
) -> tuple[float, GenerateResult]:
    params = GenerationParams(_PROMPT, num_inference_steps=1, seed=seed)
    start = time.perf_counter()
    result = client.generate(params, cache)
    return time.perf_counter() - start, result


def _is_open(client: OrchestratorClient, backend: str, seeds: itertools.count[int]) -> bool:
    if client.get_capabilities().model_id == "":
        return False  # it is not connected to the executor yet
    _timed(client, _READ_ONLY, next(seeds))
    states = {state.service: state.breaker for state in client.get_stats().services}
    return states[backend] is BreakerState.OPEN


if __name__ == "__main__":
    main()
