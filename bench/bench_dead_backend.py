"""What a dead cache service adds to a request, once its breaker is open.

All five services run as processes, with the default deadlines and the bundled model at one step.
Beside their orchestrator run others over the same services, each with one of these dead in one of
two ways: `refused`, its target is a port where nobody listens, and `hung`, a process of its own
that served and was stopped (SIGSTOP), so that connections stay open and nothing is answered. A
prompt that nothing resembles is asked for again and again, every time with another seed, in turn
from the healthy orchestrator, from the one that misses a service, and without the cache, so that
what else the machine does hits all of them.

    p50               median of (one service dead - all alive), of neighbours, over the stages that
                      the cache takes by the orchestrator's own clock (build_query, lookup, rerank,
                      resume); below 0 where calls to others fall away with it
    p99               as p50, but the 99th percentile: a breaker lets one request try again now and
                      then, which waits for what hangs
    over_no_cache_ms  these stages themselves: a request without the cache has none of them
    told_ms           the delays of the fallbacks in the provenance
    wall_ms           as p50, of the whole call on the wall; its noise is that of the steps

The bar is 5 ms at p50; exits with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from server_process import ServerProcess, end_in_order_on_sigterm, python, wait_until
from skipstone_client import OrchestratorClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import BreakerState, CacheMode, CacheOptions, GenerateResult

BACKENDS: Final = ("embedding", "vector_index", "latent_kv")
WAYS: Final = ("refused", "hung")
BAR_MS: Final = 5.0
_PROMPT: Final = "a tiny black plus at the left on a tan background"
_READ_ONLY: Final = CacheOptions(mode=CacheMode.READ_ONLY)
_OFF: Final = CacheOptions(mode=CacheMode.OFF)
_WARM_UP: Final = 10
_STAGES: Final = ("build_query", "lookup", "rerank", "resume")
# Audits would run beside what is measured.
_FLAGS: Final = ("--drift-audit-share", "0")


def main() -> int:
    """Measures each backend dead in each way, a JSON line for each; returns the exit code."""
    end_in_order_on_sigterm()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=200, help="of each kind for each figure")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    arguments = parser.parse_args()
    added = []
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(folder, free_ports=True, flags={"orchestrator": _FLAGS}) as cluster,
        OrchestratorClient(cluster.targets["orchestrator"]) as healthy,
    ):
        seeds = itertools.count()
        for way, backend in itertools.product(arguments.ways, arguments.backends):
            place = Path(folder) / f"{way}-{backend}"
            place.mkdir()
            with _missing(backend, way, cluster.targets, place, seeds) as missing:
                line = _measured(healthy, missing, seeds, arguments.requests)
            added.append(line["p50"])
            told = {"figure": "dead_backend_added_ms", "backend": backend, "way": way}
            print(json.dumps(told | line), flush=True)
    return int(max(added) > BAR_MS)


@contextmanager
def _missing(
    backend: str, way: str, targets: Mapping[str, str], place: Path, seeds: itertools.count[int]
) -> Iterator[OrchestratorClient]:
    """Runs an orchestrator one of whose services is dead; yields once its breaker is open."""
    if way == "refused":
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            dead = f"127.0.0.1:{unused.getsockname()[1]}"
        with _orchestrator({**targets, backend: dead}, place) as client:
            wait_until(
                functools.partial(_has, client, backend, BreakerState.OPEN, seeds),
                f"the breaker of {backend} opens",
            )
            yield client
        return
    data = () if backend == "embedding" else ("--data-dir", str(place / "data"))
    flags = ("--port", "0", "--log-format", "json", *data)
    service = ServerProcess(python("-m", f"skipstone_{backend}", *flags), place / "service.log")
    try:
        with _orchestrator({**targets, backend: service.address()}, place) as client:
            has = functools.partial(_has, client, backend, seeds=seeds)
            wait_until(lambda: has(BreakerState.CLOSED), f"{backend} works")
            os.kill(service.pid, signal.SIGSTOP)
            wait_until(lambda: has(BreakerState.OPEN), f"the breaker of {backend} opens")
            yield client
    finally:
        service.end(kill=True)


@contextmanager
def _orchestrator(targets: Mapping[str, str], place: Path) -> Iterator[OrchestratorClient]:
    found = {name: target for name, target in targets.items() if name != "orchestrator"}
    to = [f"--{name.replace('_', '-')}-target={target}" for name, target in found.items()]
    command = python("-m", "skipstone_orchestrator", "--port", "0", *to, *_FLAGS)
    server = ServerProcess(command, place / "orchestrator.log")
    try:
        with OrchestratorClient(server.address()) as client:
            yield client
    finally:
        server.end()


def _measured(
    healthy: OrchestratorClient, missing: OrchestratorClient, seeds: itertools.count[int], n: int
) -> dict[str, float]:
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
    return {
        "p50": _difference(stages["dead"], stages["alive"]),
        "p99": _difference(stages["dead"], stages["alive"], 99),
        "over_no_cache_ms": _difference(stages["dead"], stages["off"]),
        "wall_ms": _difference(walls["dead"], walls["alive"]),
        "told_ms": round(float(np.median(told)), 3),
        "told_p99_ms": round(float(np.percentile(told, 99)), 3),
        "bar": BAR_MS,
        "n": n,
    }


def _difference(ones: list[float], others: list[float], percentile: float = 50) -> float:
    return round(float(np.percentile(np.subtract(ones, others), percentile)), 2)


def _timed(
    client: OrchestratorClient, cache: CacheOptions, seed: int
) -> tuple[float, GenerateResult]:
    params = GenerationParams(_PROMPT, num_inference_steps=1, seed=seed)
    start = time.perf_counter()
    result = client.generate(params, cache)
    return time.perf_counter() - start, result


def _has(
    client: OrchestratorClient, backend: str, state: BreakerState, seeds: itertools.count[int]
) -> bool:
    """Whether a request was served and left the breaker of a backend in this state."""
    if client.get_capabilities().model_id == "":
        return False  # it is not connected to the executor yet
    _timed(client, _READ_ONLY, next(seeds))
    states = {told.service: told.breaker for told in client.get_stats().services}
    return states[backend] is state


if __name__ == "__main__":
    sys.exit(main())
