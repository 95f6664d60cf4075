"""The sequence of a request through five real services."""

from __future__ import annotations

import pytest
from tests.e2e.generations import (
    LOOSELY_REWORDED,
    OFF,
    PROMPT,
    REWORDED,
    STEPS,
    UNRELATED,
    entry_count,
    generate,
    generate_saved,
    picture,
    wait_saved,
)
from tests.e2e.processes import Cluster

from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier, ReuseKind

pytestmark = pytest.mark.e2e

SIGMA_FLOOR = 0.5


def test_a_new_prompt_is_run_in_full_and_saved(cluster: Cluster, namespace: str) -> None:
    told = generate_saved(cluster, namespace).provenance
    assert (told.tier, told.reason) == (HitTier.MISS, "NO_CANDIDATE")
    assert (told.skip_steps, told.executed_steps) == (0, STEPS)
    assert not told.fallbacks
    assert not told.snapshot_failures
    entry = cluster.client.get_entry(told.saved_entry_id, namespace)
    assert (entry.prompt, entry.seed, entry.depth) == (PROMPT, 1, 0)
    assert entry.compatibility_key == told.compatibility_key
    assert [ref.step_index for ref in entry.snapshots] == [STEPS]


def test_the_same_request_again_is_the_same_picture_without_a_step(
    cluster: Cluster, namespace: str
) -> None:
    first = generate_saved(cluster, namespace)
    again = generate(cluster.client, namespace)
    told = again.provenance
    assert (told.tier, told.reason, told.executed_steps) == (HitTier.EXACT, "EXACT_HIT", 0)
    assert told.donor_entry_id == first.provenance.saved_entry_id
    assert picture(again) == picture(first)
    assert picture(first) == picture(generate(cluster.client, namespace, cache=OFF))


@pytest.mark.parametrize(("prompt", "skip_steps"), [(REWORDED, 9), (LOOSELY_REWORDED, 1)])
def test_a_reworded_prompt_skips_as_many_steps_as_the_table_says(
    cluster: Cluster, namespace: str, prompt: str, skip_steps: int
) -> None:
    """With 20 steps at shift 1, sigma is 0.526 at step 9 and 0.737 at step 5."""
    donor = generate_saved(cluster, namespace).provenance
    told = generate(cluster.client, namespace, prompt, seed=2).provenance
    assert (told.tier, told.reason) == (HitTier.APPROXIMATE, "DONOR_RESUMED")
    assert (told.donor_entry_id, told.donor_prompt) == (donor.saved_entry_id, PROMPT)
    assert told.skip_steps == skip_steps
    assert told.executed_steps == STEPS - skip_steps
    assert told.start_sigma is not None
    assert told.start_sigma >= SIGMA_FLOOR
    assert told.reuse_kind is ReuseKind.RENOISE
    assert told.similarity is not None
    assert 0.85 < told.similarity < 1.0


def test_a_prompt_with_another_meaning_is_run_in_full(cluster: Cluster, namespace: str) -> None:
    generate_saved(cluster, namespace)
    told = generate(cluster.client, namespace, UNRELATED).provenance
    assert (told.tier, told.reason) == (HitTier.MISS, "BELOW_MIN_SIMILARITY")
    assert told.executed_steps == STEPS


def test_a_prompt_without_a_seed_is_a_new_picture_every_time(
    cluster: Cluster, namespace: str
) -> None:
    first = generate_saved(cluster, namespace, seed=None)
    second = generate(cluster.client, namespace, seed=None)
    assert first.provenance.seed != second.provenance.seed
    assert picture(first) != picture(second)
    assert second.provenance.tier is HitTier.APPROXIMATE
    repeated = generate(cluster.client, namespace, seed=first.provenance.seed)
    assert repeated.provenance.tier is HitTier.EXACT
    assert picture(repeated) == picture(first)


@pytest.mark.parametrize("kind", ReuseKind)
def test_the_same_prompt_with_another_seed_is_another_picture(
    cluster: Cluster, namespace: str, kind: ReuseKind
) -> None:
    """A donor's trajectory ignores the seed: 1,500 seeds once gave one picture."""
    options = CacheOptions(reuse_kind=kind)
    pictures = {
        picture(generate_saved(cluster, namespace, seed=seed, cache=options)) for seed in range(4)
    }
    assert len(pictures) == 4


def test_a_trajectory_donor_gives_its_snapshot_at_the_step_it_was_stored_for(
    cluster: Cluster, namespace: str
) -> None:
    """And the result is the donor's own picture when prompt and seed are the same."""
    options = CacheOptions(reuse_kind=ReuseKind.TRAJECTORY, allow_exact=False)
    donor = generate_saved(cluster, namespace, cache=options)
    entry = cluster.client.get_entry(donor.provenance.saved_entry_id, namespace)
    steps = [ref.step_index for ref in entry.snapshots]
    assert steps[-1] == STEPS
    assert len(steps) == 6
    resumed = generate(cluster.client, namespace, cache=options)
    assert resumed.provenance.reuse_kind is ReuseKind.TRAJECTORY
    assert resumed.provenance.skip_steps == max(steps[:-1])
    assert picture(resumed) == picture(donor)


def test_a_resumed_run_does_not_donate(cluster: Cluster, namespace: str) -> None:
    """Else drift would chain from picture to picture."""
    donor = generate_saved(cluster, namespace).provenance
    resumed = generate_saved(cluster, namespace, REWORDED, seed=2)
    assert resumed.provenance.tier is HitTier.APPROXIMATE
    entry = cluster.client.get_entry(resumed.provenance.saved_entry_id, namespace)
    assert entry.depth == 1
    near = generate(cluster.client, namespace, REWORDED + ".", seed=3).provenance
    assert near.donor_entry_id == donor.saved_entry_id
    exact = generate(cluster.client, namespace, REWORDED, seed=2)
    assert exact.provenance.tier is HitTier.EXACT
    assert picture(exact) == picture(resumed)


def test_a_reproducible_request_takes_no_resumed_result(cluster: Cluster, namespace: str) -> None:
    generate_saved(cluster, namespace)
    resumed = generate_saved(cluster, namespace, REWORDED, seed=2)
    assert resumed.provenance.tier is HitTier.APPROXIMATE
    options = CacheOptions(reproducible=True)
    full = generate_saved(cluster, namespace, REWORDED, seed=2, cache=options)
    assert full.provenance.tier is HitTier.MISS
    off = generate(cluster.client, namespace, REWORDED, seed=2, cache=OFF)
    assert picture(full) == picture(off)
    again = generate(cluster.client, namespace, REWORDED, seed=2, cache=options)
    assert again.provenance.tier is HitTier.EXACT
    assert picture(again) == picture(off)


@pytest.mark.parametrize(
    ("mode", "tier", "saves"),
    [
        (CacheMode.READ_WRITE, HitTier.APPROXIMATE, True),
        (CacheMode.READ_ONLY, HitTier.APPROXIMATE, False),
        (CacheMode.WRITE_ONLY, HitTier.MISS, True),
        (CacheMode.OFF, HitTier.MISS, False),
    ],
)
def test_a_cache_mode_says_whether_a_request_looks_up_and_saves(
    cluster: Cluster, namespace: str, mode: CacheMode, tier: HitTier, saves: bool
) -> None:
    generate_saved(cluster, namespace)
    result = generate(cluster.client, namespace, REWORDED, cache=CacheOptions(mode=mode))
    told = result.provenance
    assert (told.cache_mode, told.tier) == (mode, tier)
    assert bool(told.saved_entry_id) == saves
    if saves:
        wait_saved(cluster, namespace, result)
    assert entry_count(cluster, namespace) == 1 + saves


def test_namespaces_see_nothing_of_each_other(cluster: Cluster, namespace: str) -> None:
    generate_saved(cluster, namespace)
    other = namespace + "-other"
    told = generate(cluster.client, other).provenance
    assert (told.tier, told.reason) == (HitTier.MISS, "NO_CANDIDATE")
    deleted = cluster.client.delete_entries([told.saved_entry_id], other)
    assert deleted == [True]
    assert generate(cluster.client, namespace).provenance.tier is HitTier.EXACT


def test_other_steps_or_guidance_are_not_even_candidates(cluster: Cluster, namespace: str) -> None:
    generate_saved(cluster, namespace)
    told = generate(cluster.client, namespace, steps=STEPS + 1).provenance
    assert (told.tier, told.reason) == (HitTier.MISS, "NO_CANDIDATE")


def test_a_deleted_entry_is_found_no_more(cluster: Cluster, namespace: str) -> None:
    entry_id = generate_saved(cluster, namespace).provenance.saved_entry_id
    assert cluster.client.delete_entries([entry_id, "x-unknown"], namespace) == [True, False]
    assert entry_count(cluster, namespace) == 0
    told = generate(cluster.client, namespace).provenance
    assert (told.tier, told.reason) == (HitTier.MISS, "NO_CANDIDATE")


def test_the_request_id_is_in_the_logs_of_all_services(cluster: Cluster, namespace: str) -> None:
    request_id = generate_saved(cluster, namespace).provenance.request_id
    for name in cluster.targets:
        lines = [line for line in cluster.log(name) if line.get("request_id") == request_id]
        assert lines, f"{name} says nothing of request {request_id}"
        assert {line["service"] for line in lines} == {name}


@pytest.mark.timeout(300)
def test_results_survive_a_restart_of_all_services(cluster: Cluster, namespace: str) -> None:
    first = generate_saved(cluster, namespace)
    cluster.restart(*cluster.targets)
    again = generate(cluster.client, namespace)
    assert again.provenance.tier is HitTier.EXACT
    assert picture(again) == picture(first)
    near = generate(cluster.client, namespace, REWORDED, seed=2).provenance
    assert near.donor_entry_id == first.provenance.saved_entry_id
