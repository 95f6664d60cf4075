"""Equal requests at the same time: the executor runs once, whoever leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.e2e.generations import OFF, PROMPT, entry_count, generate, picture
from tests.e2e.processes import Cluster, wait_until

from skipstone_shared.generation import GenerationParams, StepProgress
from skipstone_shared.orchestration import GenerateResult, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 400
"""Long enough for the second request to come while the first one runs."""


def is_idle(cluster: Cluster) -> bool:
    stats = cluster.denoise.get_stats()
    return stats.running_count == stats.queued_count == 0


def test_two_equal_requests_at_once_run_the_executor_once(cluster: Cluster, namespace: str) -> None:
    wait_until(lambda: is_idle(cluster), "the executor is idle")
    before = cluster.denoise.get_stats()

    def ask(_: int) -> GenerateResult:
        return generate(cluster.client, namespace, steps=STEPS)

    with ThreadPoolExecutor(4) as callers:
        results = list(callers.map(ask, range(4)))
    after = cluster.denoise.get_stats()
    assert after.executed_steps - before.executed_steps == STEPS
    assert len({picture(result) for result in results}) == 1
    (run,) = (r.provenance for r in results if r.provenance.tier is HitTier.MISS)
    for told in (r.provenance for r in results if r.provenance is not run):
        # Who came when the run had just ended is served from the store.
        assert (told.tier, told.executed_steps) == (HitTier.EXACT, 0)
        assert told.reason in ("SINGLE_FLIGHT", "EXACT_HIT")
        assert told.joined_request_id in (run.request_id, "")
    assert any(r.provenance.reason == "SINGLE_FLIGHT" for r in results)
    assert cluster.client.get_stats().joined_requests >= 1


def test_when_the_first_caller_leaves_the_second_gets_the_picture(
    cluster: Cluster, namespace: str
) -> None:
    wait_until(lambda: is_idle(cluster), "the executor is idle")
    before = cluster.denoise.get_stats()
    params = GenerationParams(PROMPT, num_inference_steps=STEPS, seed=1)
    first = cluster.client.generate_stream(params, None, namespace, timeout_s=120.0)
    with closing(first), ThreadPoolExecutor(1) as callers:
        next(event for event in first if isinstance(event, StepProgress))
        started = cluster.client.generate_stream(params, None, namespace, timeout_s=120.0)
        with closing(started):
            step = next(event for event in started if isinstance(event, StepProgress))
            assert step.step_index == 0, "who comes late is told all of the progress"
            # The third gives up its stream for a plain call, so that somebody always waits.
            waiting = callers.submit(generate, cluster.client, namespace, steps=STEPS)
            wait_until(lambda: not waiting.done(), "the third waits too")
            first.close()
            events = list(started)
        result = waiting.result(60.0)
    after = cluster.denoise.get_stats()
    assert after.cancelled_count == before.cancelled_count
    assert after.executed_steps - before.executed_steps == STEPS
    assert events[-1].provenance.executed_steps == STEPS, "the run counts for the second now"
    full = generate(cluster.client, namespace, steps=STEPS, cache=OFF)
    assert picture(result) == picture(full)
    wait_until(lambda: entry_count(cluster, namespace) == 1, "it is saved once")
