"""An explanation tells what a generation would get, and leaves no trace in any service."""

from __future__ import annotations

import pytest
from tests.e2e.generations import (
    PROMPT,
    REWORDED,
    STEPS,
    UNRELATED,
    all_entries,
    generate,
    generate_saved,
)
from tests.e2e.processes import Cluster

from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import Explanation, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def explain(cluster: Cluster, namespace: str, prompt: str, seed: int) -> Explanation:
    params = GenerationParams(prompt, num_inference_steps=STEPS, seed=seed)
    return cluster.client.explain(params, namespace=namespace)


def test_an_explanation_changes_nothing(cluster: Cluster, namespace: str) -> None:
    generate_saved(cluster, namespace)
    entries = all_entries(cluster, namespace)
    stats = cluster.client.get_stats(namespace)
    steps = cluster.denoise.get_stats().executed_steps
    exact = explain(cluster, namespace, PROMPT, 1)
    near = explain(cluster, namespace, REWORDED, 2)
    far = explain(cluster, namespace, UNRELATED, 3)
    tiers = [told.decision.tier for told in (exact, near, far)]
    assert tiers == [HitTier.EXACT, HitTier.APPROXIMATE, HitTier.MISS]
    for told in (exact, near, far):
        (candidate,) = told.decision.candidates
        assert candidate.explanation
        assert told.explanation
    assert all_entries(cluster, namespace) == entries, "use counts and access times too"
    assert cluster.client.get_stats(namespace) == stats
    assert cluster.denoise.get_stats().executed_steps == steps


def test_the_generation_then_does_what_was_explained(cluster: Cluster, namespace: str) -> None:
    generate_saved(cluster, namespace)
    told = explain(cluster, namespace, REWORDED, 2)
    done = generate(cluster.client, namespace, REWORDED, seed=2).provenance
    decision = told.decision
    assert (decision.tier, decision.reason) == (done.tier, done.reason)
    assert (decision.skip_steps, told.start_sigma) == (done.skip_steps, done.start_sigma)
    assert decision.donor is not None
    assert decision.donor.entry_id == done.donor_entry_id
    assert decision.rerank_score == done.rerank_score
    assert decision.compatibility_key == done.compatibility_key
