"""The bundled gate between real services with their default settings."""

from __future__ import annotations

from tests.e2e.generations import PROMPT, REWORDED, generate, generate_saved
from tests.e2e.processes import Cluster

from skipstone_shared.orchestration import HitTier

SWAPPED = "a small blue circle on a red background"


def test_a_swap_of_colours_runs_in_full_where_a_rewording_is_reused(
    cluster: Cluster, namespace: str
) -> None:
    """Their cosines are alike; only the gate tells them apart."""
    assert cluster.embedding.get_capabilities().reranker_id.startswith("skipstone-gate/")
    donor = generate_saved(cluster, namespace, PROMPT, seed=1).provenance
    swapped = generate(cluster.client, namespace, SWAPPED, seed=2).provenance
    assert swapped.tier is HitTier.MISS
    assert swapped.rerank_score == 0.0
    assert swapped.similarity is not None
    assert swapped.similarity > 0.9
    reworded = generate(cluster.client, namespace, REWORDED, seed=3).provenance
    assert (reworded.tier, reworded.donor_entry_id) == (HitTier.APPROXIMATE, donor.saved_entry_id)
