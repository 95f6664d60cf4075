"""The caller goes away: the executor stops, and nothing half-saved is ever served."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing

import pytest
from tests.e2e.generations import OFF, PROMPT, entry_count, generate, picture
from tests.e2e.processes import Cluster, service_environment, wait_until

from skipstone_shared.errors import DeadlineExceeded
from skipstone_shared.generation import GenerationParams, StepProgress
from skipstone_shared.orchestration import (
    CacheOptions,
    GenerateAccepted,
    GenerateEvent,
    HitTier,
    ReuseKind,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 120
NEWS_S = 0.5
"""What the news of a caller's end may take from process to process on a busy machine; with steps
of milliseconds that is several steps. That the executor itself stops within one step is tested in
its own tests, where no wire lies between."""

# Trajectory snapshots are written while the steps run, so that there is something half done.
OPTIONS = CacheOptions(reuse_kind=ReuseKind.TRAJECTORY, key_steps=(1, 2, 20, 60))


def start(cluster: Cluster, namespace: str) -> Generator[GenerateEvent, None, None]:
    params = GenerationParams(PROMPT, num_inference_steps=STEPS, seed=1)
    return cluster.client.generate_stream(params, OPTIONS, namespace, timeout_s=120.0)


def is_idle(cluster: Cluster) -> bool:
    stats = cluster.denoise.get_stats()
    return stats.running_count == stats.queued_count == 0


def assert_nothing_served(cluster: Cluster, namespace: str) -> None:
    """The abandoned run's snapshots go away, and the same request is run in full."""
    wait_until(lambda: entry_count(cluster, namespace) == 0, "what was written is discarded")
    again = generate(cluster.client, namespace, steps=STEPS, cache=OPTIONS)
    assert (again.provenance.tier, again.provenance.reason) == (HitTier.MISS, "NO_CANDIDATE")
    assert picture(again) == picture(generate(cluster.client, namespace, steps=STEPS, cache=OFF))


@pytest.mark.parametrize("last_step", [0, 1, 60])
def test_a_caller_that_leaves_after_a_step_stops_the_run(
    cluster: Cluster, namespace: str, last_step: int
) -> None:
    wait_until(lambda: is_idle(cluster), "the executor is idle")
    before = cluster.denoise.get_stats()
    times = []
    with closing(start(cluster, namespace)) as events:
        for event in events:
            if isinstance(event, StepProgress):
                times.append(event.step_time_s)
                if event.step_index == last_step:
                    break
    wait_until(lambda: is_idle(cluster), "the executor has stopped")
    after = cluster.denoise.get_stats()
    assert after.cancelled_count == before.cancelled_count + 1
    assert after.finished_count == before.finished_count
    ran_on = after.executed_steps - before.executed_steps - (last_step + 1)
    assert ran_on <= 1 + math.ceil(NEWS_S / (sum(times) / len(times)))
    assert after.executed_steps - before.executed_steps < STEPS
    assert_nothing_served(cluster, namespace)


def test_a_caller_that_leaves_at_once_starts_nothing_that_lasts(
    cluster: Cluster, namespace: str
) -> None:
    with closing(start(cluster, namespace)) as events:
        assert isinstance(next(events), GenerateAccepted)
    wait_until(lambda: is_idle(cluster), "the executor has stopped")
    assert_nothing_served(cluster, namespace)


def test_callers_that_leave_while_they_wait_in_the_queue_free_their_places(
    cluster: Cluster, namespace: str
) -> None:
    running = [start(cluster, f"{namespace}-{number}") for number in range(8)]
    wait_until(lambda: cluster.denoise.get_stats().queued_count == 6, "six requests wait")
    for events in running:
        events.close()
    wait_until(lambda: is_idle(cluster), "the queue is empty")
    namespaces = [f"{namespace}-{number}" for number in range(8)]
    wait_until(
        lambda: not any(entry_count(cluster, name) for name in namespaces),
        "what was written is discarded",
    )
    assert_nothing_served(cluster, namespace)


def test_a_caller_that_is_killed_stops_the_run(cluster: Cluster, namespace: str) -> None:
    """No good-bye is sent: the connection just ends."""
    before = cluster.denoise.get_stats()
    command = [sys.executable, "-m", "skipstone_client", "generate", PROMPT, "--seed", "1"]
    with subprocess.Popen(
        [
            *command,
            *("--steps", "1000", "--namespace", namespace),
            *("--target", cluster.targets["orchestrator"], "--out", str(cluster.folder / "x.png")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=service_environment(),
    ) as caller:
        wait_until(lambda: cluster.denoise.get_stats().running_count == 1, "the run begins", 60.0)
        caller.send_signal(signal.SIGKILL)
    wait_until(lambda: is_idle(cluster), "the executor has stopped")
    after = cluster.denoise.get_stats()
    assert after.cancelled_count == before.cancelled_count + 1
    assert after.executed_steps - before.executed_steps < 1000
    wait_until(lambda: entry_count(cluster, namespace) == 0, "what was written is discarded")


def test_a_deadline_that_ends_in_the_middle_stops_the_run(cluster: Cluster, namespace: str) -> None:
    before = cluster.denoise.get_stats()
    params = GenerationParams(PROMPT, num_inference_steps=1000, seed=1)
    with pytest.raises(DeadlineExceeded):
        cluster.client.generate(params, OPTIONS, namespace, timeout_s=1.0)
    wait_until(lambda: is_idle(cluster), "the executor has stopped")
    after = cluster.denoise.get_stats()
    assert after.executed_steps - before.executed_steps < 1000
    wait_until(lambda: entry_count(cluster, namespace) == 0, "what was written is discarded")
