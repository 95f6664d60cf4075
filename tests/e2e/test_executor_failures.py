"""The executor dies, and services are asked to end while they work."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.e2e.generations import OFF, PROMPT, all_entries, generate, generate_saved, picture
from tests.e2e.processes import Cluster, wait_until

from skipstone_shared.errors import Unavailable
from skipstone_shared.generation import GenerationParams, StepProgress
from skipstone_shared.orchestration import GenerateResult, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 100


def generate_and(
    act: Callable[[], None], cluster: Cluster, namespace: str, *, steps: int = STEPS
) -> GenerateResult:
    """Sends a request and does something after its first step."""
    done = threading.Event()

    def act_once(_: StepProgress) -> None:
        if not done.is_set():
            done.set()
            act()

    params = GenerationParams(PROMPT, num_inference_steps=steps, seed=1)
    return cluster.client.generate(params, namespace=namespace, on_step=act_once, timeout_s=120.0)


def test_an_executor_that_dies_is_told_and_its_return_is_noticed(
    cluster: Cluster, namespace: str
) -> None:
    first = generate_saved(cluster, namespace)
    with pytest.raises(Unavailable, match="denoise at"):
        generate_and(lambda: cluster.kill("denoise"), cluster, namespace, steps=1000)
    for _ in range(2):
        with pytest.raises(Unavailable, match="denoise"):
            generate(cluster.client, namespace)
    entries = [first.provenance.saved_entry_id]
    wait_until(
        lambda: [e.entry_id for e in all_entries(cluster, namespace)] == entries,
        "what the dead one wrote is discarded",
    )
    cluster.heal()
    again = generate(cluster.client, namespace)
    assert again.provenance.tier is HitTier.EXACT
    assert picture(again) == picture(first)
    assert generate(cluster.client, namespace, steps=30).provenance.tier is HitTier.MISS


@pytest.mark.parametrize(
    "service",
    [
        "orchestrator",
        "denoise",
        "latent_kv",
        # Have no part in a run that is under way.
        pytest.param("vector_index", marks=pytest.mark.long),
        pytest.param("embedding", marks=pytest.mark.long),
    ],
)
def test_a_service_that_is_asked_to_end_finishes_the_request(
    cluster: Cluster, namespace: str, service: str
) -> None:
    """A roll-out must not cost a caller their picture."""
    full_run = picture(generate(cluster.client, namespace, steps=STEPS, cache=OFF))
    result = generate_and(lambda: cluster.terminate(service), cluster, namespace)
    assert picture(result) == full_run
    assert result.provenance.executed_steps == STEPS
    wait_until(lambda: not cluster.is_running(service), f"{service} ends", 60.0)
    assert cluster.log(service)[-1]["event"] == "stopped"
