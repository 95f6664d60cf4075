"""A donor is not what it was, or not what the index says: it is not resumed from.

The executor is held back between lookup and resume where something must change just then.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from tests.e2e.generations import (
    OFF,
    PROMPT,
    REWORDED,
    STEPS,
    UNRELATED,
    generate,
    generate_saved,
    picture,
    wait_saved,
)
from tests.e2e.processes import Cluster, wait_until

from skipstone_shared.errors import Unavailable
from skipstone_shared.generation import GenerationParams, StepProgress
from skipstone_shared.index_entries import VectorEntry
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import CacheOptions, GenerateResult, HitTier, ReuseKind

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def ask_and_meanwhile(
    cluster: Cluster, namespace: str, act: Callable[[], object], *, prompt: str, seed: int
) -> GenerateResult:
    """Sends a request and does something after its lookup, before the executor sees it."""
    results: list[GenerateResult] = []
    cluster.hang("denoise")
    thread = threading.Thread(
        target=lambda: results.append(generate(cluster.client, namespace, prompt, seed=seed))
    )
    thread.start()
    time.sleep(0.8)
    act()
    cluster.resume("denoise")
    thread.join(60.0)
    return results[0]


def clean_ref(cluster: Cluster, namespace: str, result: GenerateResult) -> LatentRef:
    """The clean latent that an answer was saved with."""
    entry = cluster.client.get_entry(result.provenance.saved_entry_id, namespace)
    return entry.snapshots[-1]


@pytest.mark.parametrize(("prompt", "seed"), [(PROMPT, 1), (REWORDED, 2)])
def test_a_donor_that_is_evicted_after_the_lookup_is_not_waited_for(
    cluster: Cluster, namespace: str, prompt: str, seed: int
) -> None:
    donor = generate_saved(cluster, namespace)
    full_run = generate(cluster.client, namespace, prompt, seed=seed, cache=OFF)
    entry_id = donor.provenance.saved_entry_id
    result = ask_and_meanwhile(
        cluster,
        namespace,
        lambda: cluster.store.delete_entries(namespace, [entry_id]),
        prompt=prompt,
        seed=seed,
    )
    assert picture(result) == picture(full_run)
    assert (result.provenance.tier, result.provenance.reason) == (HitTier.MISS, "RESUME_REFUSED")
    assert [f.reason for f in result.provenance.fallbacks] == ["LATENT_NOT_FOUND"]


@pytest.mark.parametrize(("prompt", "seed"), [(PROMPT, 1), (REWORDED, 2)])
def test_a_donor_that_is_overwritten_after_the_lookup_is_refused(
    cluster: Cluster, namespace: str, prompt: str, seed: int
) -> None:
    donor = clean_ref(cluster, namespace, generate_saved(cluster, namespace))
    full_run = generate(cluster.client, namespace, prompt, seed=seed, cache=OFF)
    metadata, arrays = cluster.store.read_arrays(namespace, donor)
    changed = {name: array + 1 for name, array in arrays.items()}
    result = ask_and_meanwhile(
        cluster,
        namespace,
        lambda: cluster.store.write_arrays(namespace, metadata, changed),
        prompt=prompt,
        seed=seed,
    )
    assert picture(result) == picture(full_run)
    assert (result.provenance.tier, result.provenance.reason) == (HitTier.MISS, "RESUME_REFUSED")


@pytest.mark.parametrize("kind", ReuseKind)
def test_an_index_that_offers_the_latents_of_other_parameters_is_not_believed(
    cluster: Cluster, namespace: str, kind: ReuseKind
) -> None:
    """Same steps, same shape, another guidance scale: only the store's own metadata tells."""
    options = CacheOptions(reuse_kind=kind)
    key = generate_saved(cluster, namespace, UNRELATED, cache=options).provenance.compatibility_key
    params = GenerationParams(PROMPT, num_inference_steps=STEPS, seed=1, guidance_scale=2.0)
    other = cluster.client.generate(params, options, namespace)
    wait_saved(cluster, namespace, other)
    true = cluster.index.get_entry(namespace, other.provenance.saved_entry_id).entry
    refs = [dataclasses.replace(ref, compatibility_key=key) for ref in true.snapshots]
    lie = dataclasses.replace(true, snapshots=tuple(refs))
    vector = cluster.embedding.embed_text(PROMPT).vector
    assert cluster.index.upsert_entries(namespace, key, [VectorEntry(lie, vector)]) == [None]
    full_run = generate(cluster.client, namespace, REWORDED, seed=2, cache=OFF)
    result = generate(cluster.client, namespace, REWORDED, seed=2, cache=options)
    assert picture(result) == picture(full_run)
    assert (result.provenance.tier, result.provenance.reason) == (HitTier.MISS, "STALE_DONOR")
    assert result.provenance.similarity == pytest.approx(0.97, abs=0.01)


def test_what_an_orchestrator_killed_in_the_middle_left_is_not_served(
    cluster: Cluster, namespace: str
) -> None:
    """Nobody is there to discard it: it stays uncommitted until its lease ends."""
    options = CacheOptions(reuse_kind=ReuseKind.TRAJECTORY, key_steps=(1, 2, 3))
    steps = 100
    params = GenerationParams(PROMPT, num_inference_steps=steps, seed=1)

    def kill_at(progress: StepProgress) -> None:
        if progress.step_index == 10:
            os.kill(cluster.pid("orchestrator"), signal.SIGKILL)

    with pytest.raises(Unavailable):
        cluster.client.generate(params, options, namespace, on_step=kill_at)
    stats = cluster.denoise.get_stats
    wait_until(lambda: stats().running_count == 0, "the executor has stopped")
    assert cluster.store.get_stats(namespace).uncommitted_count == 1
    cluster.heal()
    again = generate(cluster.client, namespace, steps=steps, cache=options)
    assert (again.provenance.tier, again.provenance.reason) == (HitTier.MISS, "NO_CANDIDATE")
    full_run = generate(cluster.client, namespace, steps=steps, cache=OFF)
    assert picture(again) == picture(full_run)

    def is_exact() -> bool:
        result = generate(cluster.client, namespace, steps=steps, cache=options)
        return result.provenance.tier is HitTier.EXACT and picture(result) == picture(full_run)

    wait_until(is_exact, "the entry is saved")
    assert cluster.store.get_stats(namespace).uncommitted_count == 0
