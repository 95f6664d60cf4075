"""64 callers at once while every service is killed again and again.

No Generate may fail, no answer may be wrong, and nothing may grow.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.e2e.faults.restartable import Restartable
from tests.e2e.faults.soak_callers import SoakCallers
from tests.e2e.processes import BY_TABLE, wait_until

from skipstone_client import DenoiseClient, OrchestratorClient
from skipstone_shared.orchestration import BreakerState, HitTier

pytestmark = pytest.mark.e2e

_log = logging.getLogger(__name__)

CALLERS = 64
BUSY = ("--max-queued-requests", "128", "--max-workers", "160")
"""Of an executor: all callers may wait at once."""
NO_AUDITS = ("--drift-audit-share", "0")
CACHE = ("embedding", "vector_index", "latent_kv")

SHORT_S = 60.0
LONG_S = 600.0
PAUSE_S = 3.0
"""Between a service that serves again and the kill of the next one."""

MAX_GROWTH = 1.1
MAX_NEW_FILES = 8
"""Connections to services come and go; leaks of the calls of a minute would be hundreds."""


@pytest.mark.timeout(SHORT_S + 300)
def test_a_minute_of_kills_fails_no_call_and_leaks_nothing(
    tiny_model: Path, tmp_path: Path, namespace: str
) -> None:
    with deployment(tiny_model, tmp_path) as (orchestrators, kills):
        soak(orchestrators, kills, namespace, SHORT_S, pause_s=1.0)


@pytest.mark.long
@pytest.mark.timeout(LONG_S + 600)
def test_ten_minutes_of_kills_fail_no_call_and_leak_nothing(
    tiny_model: Path, tmp_path: Path, namespace: str
) -> None:
    with deployment(tiny_model, tmp_path) as (orchestrators, kills):
        callers = soak(orchestrators, kills, namespace, LONG_S, PAUSE_S)
    # In a minute it may be that nobody rewords what is stored, and that no run is lost.
    assert callers.tiers[HitTier.APPROXIMATE] > 0
    assert any("RUN_LOST" in told for told in callers.fallbacks)


def soak(
    orchestrators: Sequence[Restartable],
    kills: Sequence[Restartable],
    namespace: str,
    seconds: float,
    pause_s: float,
) -> SoakCallers:
    """Generates and kills for so many seconds, and until each kind was killed; checks all of it."""
    steady = orchestrators[0]
    kinds = {service.name for service in kills}
    with ExitStack() as stack:
        clients = [stack.enter_context(OrchestratorClient(o.target)) for o in orchestrators]
        callers = SoakCallers(clients, CALLERS, namespace)
        callers.start()
        end = time.monotonic() + seconds
        memory: list[int] = []
        killed: set[str] = set()
        try:
            wait_until(lambda: callers.count > 2 * CALLERS, "all have begun", 120.0)
            files = steady.open_files
            for service in itertools.cycle(kills):
                if time.monotonic() > end and killed == kinds:
                    break
                service.kill()
                service.start()
                killed.add(service.name)
                goes_on(callers)
                memory.append(steady.rss_bytes)
                time.sleep(pause_s)  # the rate of kills is the test's own
                assert callers.failures == []
        finally:
            callers.stop()
        wait_until(lambda: all_closed(clients[0]), "all breakers are closed")
        _log.info(
            "%d answers, %d kills, tiers %s, asked again %d, fallbacks %s, MiB %s, files %d %d",
            callers.count,
            len(memory),
            dict(callers.tiers),
            callers.asked_again,
            dict(callers.fallbacks),
            [size >> 20 for size in memory],
            files,
            steady.open_files,
        )
    assert callers.failures == []
    assert callers.tiers[HitTier.EXACT] > 0
    assert callers.tiers[HitTier.MISS] > 0
    assert any(name in told for told in callers.fallbacks for name in CACHE)
    check_flat(memory)
    assert steady.open_files <= files + MAX_NEW_FILES
    return callers


def goes_on(callers: SoakCallers) -> None:
    """Waits for as many answers as there are callers."""
    count = callers.count
    wait_until(lambda: callers.count > count + CALLERS, "all go on")


def check_flat(memory: Sequence[int]) -> None:
    """The last quarter holds no more than the second: in the first, caches fill."""
    quarter = len(memory) // 4
    early = statistics.median(memory[quarter : 2 * quarter])
    late = statistics.median(memory[-quarter:])
    assert late <= MAX_GROWTH * early, [size >> 20 for size in memory]


def all_closed(client: OrchestratorClient) -> bool:
    return all(state.breaker is BreakerState.CLOSED for state in client.get_stats().services)


@contextmanager
def deployment(model: Path, folder: Path) -> Iterator[tuple[list[Restartable], list[Restartable]]]:
    """Two orchestrators and two executors over one of each cache service.

    Yields:
        The orchestrators, of which the first is never killed; and whom to kill, in turn. Between
        two kills of executors there are enough others for a run that lost one to be made again.
    """
    store = Restartable("latent_kv", folder, "--data-dir", str(folder / "kv"))
    index = Restartable("vector_index", folder, "--data-dir", str(folder / "index"))
    embedding = Restartable("embedding", folder)
    with ExitStack() as stack, ThreadPoolExecutor() as starters:

        def start(*services: Restartable) -> None:
            for service in services:
                stack.callback(service.kill)
            list(starters.map(Restartable.start, services))

        start(store, index, embedding)
        flags = ("--model", str(model), "--latent-kv-target", store.target, *BUSY)
        executors = [Restartable("denoise", folder, *flags) for _ in range(2)]
        start(*executors)
        targets = (
            f"--embedding-target={embedding.target}",
            f"--vector-index-target={index.target}",
            f"--latent-kv-target={store.target}",
            "--denoise-target=ipv4:" + ",".join(executor.target for executor in executors),
        )
        orchestrators = [
            Restartable("orchestrator", folder, *targets, *BY_TABLE, *NO_AUDITS) for _ in range(2)
        ]
        start(*orchestrators)
        for executor in executors:
            with DenoiseClient(executor.target) as client:
                assert client.get_capabilities().model_id
        with OrchestratorClient(orchestrators[0].target) as client:
            wait_until(lambda: client.get_capabilities().model_id != "", "it is connected")
        second = orchestrators[1]
        cache = [embedding, index, store]
        yield orchestrators, [*cache, executors[0], second, *cache, executors[1], second]
