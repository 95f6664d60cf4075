"""Block caching of a request, through the orchestrator and five real services."""

from __future__ import annotations

import pytest
from tests.e2e.generations import PROMPT, STEPS, is_saved, picture, wait_saved
from tests.e2e.processes import Cluster

from skipstone_shared.block_cache_json import block_cache_from_text
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import BlockCacheConfig, GenerationParams
from skipstone_shared.orchestration import GenerateResult, HitTier

pytestmark = pytest.mark.e2e

EVERY_OTHER = (
    '{"Fn_compute_blocks": 1, "residual_diff_threshold": 1.0, "max_continuous_cached_steps": 1}'
)


def generate(
    cluster: Cluster, namespace: str, block_cache: BlockCacheConfig | None
) -> GenerateResult:
    params = GenerationParams(PROMPT, num_inference_steps=STEPS, seed=1, block_cache=block_cache)
    return cluster.client.generate(params, None, namespace, timeout_s=60.0)


def test_a_request_chooses_its_block_caching_and_learns_what_it_did(
    cluster: Cluster, namespace: str
) -> None:
    """And neither settings nor picture are taken for those of a request that chose otherwise."""
    config = block_cache_from_text(EVERY_OTHER)
    first = generate(cluster, namespace, config)
    report = first.provenance.block_cache
    assert report is not None
    # Four steps of warm-up, then every other one.
    reused = tuple(range(4, STEPS, 2))
    assert {branch.branch: branch.reused_steps for branch in report.branches} == {
        "cond": reused,
        "uncond": reused,
    }
    assert report.block_calls == report.block_calls_full - 2 * len(reused)
    wait_saved(cluster, namespace, first)

    plain = generate(cluster, namespace, None)
    assert (plain.provenance.tier, plain.provenance.block_cache) == (HitTier.MISS, None)
    assert plain.provenance.compatibility_key != first.provenance.compatibility_key
    assert picture(plain) != picture(first)
    assert is_saved(cluster, namespace, first.provenance.saved_entry_id)

    again = generate(cluster, namespace, config)
    assert (again.provenance.tier, again.provenance.block_cache) == (HitTier.EXACT, None)
    assert picture(again) == picture(first)

    with pytest.raises(InvalidArgument, match="fn_compute_blocks"):
        generate(cluster, namespace, BlockCacheConfig(fn_compute_blocks=9))
