"""What a dead cache service adds to a request, once its breaker is open.

All five services run as processes, with the default deadlines and the bundled model at one step. A
prompt that nothing resembles is asked for again and again, every time with another seed: with the
cache, and with `mode = off`, which asks no cache service at all. The two alternate, so that what
else the machine does hits both, and what counts is the median of the differences of neighbours.

    all alive         what the whole cache costs a request that finds nothing, for comparison
    embedding, ...    that service killed with SIGKILL, asked after its breaker has opened

The figure of a dead service is all that the cache costs then: the calls to the services that are
still alive are in it. What the dead one itself cost, by the orchestrator's own clock, is `told_ms`:
the delays of the fallbacks in the provenance. The bar is 5 ms.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import tempfile
import time
from typing import Final

import numpy as np

from server_process import wait_until
from skipstone_client import OrchestratorClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import BreakerState, CacheMode, CacheOptions, GenerateResult

BACKENDS: Final = ("embedding", "vector_index", "latent_kv")
ALL_ALIVE: Final = "all alive"
BAR_MS: Final = 5.0
_PROMPT: Final = "a tiny black plus at the left on a tan background"
_READ_ONLY: Final = CacheOptions(mode=CacheMode.READ_ONLY)
_OFF: Final = CacheOptions(mode=CacheMode.OFF)
_WARM_UP: Final = 5
# Audits would run beside what is measured.
_FLAGS: Final = {"orchestrator": ["--drift-audit-share", "0"]}


def main() -> None:
    """Measures each backend; prints one JSON line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=200, help="pairs for each figure")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(folder, free_ports=True, flags=_FLAGS) as cluster,
        OrchestratorClient(cluster.targets["orchestrator"]) as client,
    ):
        seeds = itertools.count()
        _report(ALL_ALIVE, client, seeds, arguments.requests)
        for backend in BACKENDS:
            cluster.kill(backend)
            opens = functools.partial(_opens, client, seeds, backend)
            wait_until(opens, f"the breaker of {backend} opens")
            _report(backend, client, seeds, arguments.requests)
            cluster.restart(backend)
            wait_until(lambda: _all_closed(client), "all breakers are closed")


def _report(backend: str, client: OrchestratorClient, seeds: itertools.count[int], n: int) -> None:
    added, told = [], []
    for number in range(_WARM_UP + n):
        first_off = number % 2 == 0
        runs = {
            cache.mode: _timed(client, next(seeds), cache)
            for cache in ((_OFF, _READ_ONLY) if first_off else (_READ_ONLY, _OFF))
        }
        cached_s, result = runs[CacheMode.READ_ONLY]
        if number >= _WARM_UP:
            added.append(1e3 * (cached_s - runs[CacheMode.OFF][0]))
            told.append(1e3 * sum(f.delay_s for f in result.provenance.fallbacks))
    p50, p90 = np.percentile(added, [50, 90])
    line = {
        "figure": "dead_backend_added_ms",
        "backend": backend,
        "p50": round(float(p50), 2),
        "p90": round(float(p90), 2),
        "told_ms": round(float(np.median(told)), 3),
        "told_ms_max": round(float(np.max(told)), 3),
        "bar": BAR_MS,
        "n": n,
    }
    print(json.dumps(line), flush=True)


def _timed(
    client: OrchestratorClient, seed: int, cache: CacheOptions
) -> tuple[float, GenerateResult]:
    params = GenerationParams(_PROMPT, num_inference_steps=1, seed=seed)
    start = time.perf_counter()
    result = client.generate(params, cache)
    return time.perf_counter() - start, result


def _opens(client: OrchestratorClient, seeds: itertools.count[int], backend: str) -> bool:
    _timed(client, next(seeds), _READ_ONLY)
    states = {state.service: state.breaker for state in client.get_stats().services}
    return states[backend] is BreakerState.OPEN


def _all_closed(client: OrchestratorClient) -> bool:
    return all(state.breaker is BreakerState.CLOSED for state in client.get_stats().services)


if __name__ == "__main__":
    main()
