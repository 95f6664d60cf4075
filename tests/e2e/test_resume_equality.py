"""A run resumed from its own snapshot is the uninterrupted run, through real services."""

from __future__ import annotations

import hashlib

import pytest
from tests.e2e.generations import PROMPT
from tests.e2e.processes import Cluster

from skipstone_shared.denoise_runs import (
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    ResumeFrom,
    ResumeKind,
    SnapshotPlan,
)
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.latents import LatentRef

pytestmark = pytest.mark.e2e

STEPS = 8


def run(
    cluster: Cluster,
    namespace: str,
    entry_id: str,
    resume: ResumeFrom | None = None,
    *,
    seed: int = 5,
) -> tuple[str, DenoiseFinished, list[int]]:
    """Runs the executor; returns a digest of the picture, what was stored, and the steps run."""
    request = DenoiseRequest(
        namespace,
        GenerationParams(PROMPT, num_inference_steps=STEPS, seed=seed),
        resume=resume,
        snapshots=SnapshotPlan(entry_id, tuple(range(1, STEPS))),
    )
    digest, steps = "", []
    for event in cluster.denoise.run(request, timeout_s=60.0):
        if isinstance(event, DenoiseStarted):
            assert not event.refusal_reason, event.refusal_message
        elif isinstance(event, StepProgress):
            steps.append(event.step_index)
        elif isinstance(event, Artifact):
            digest = hashlib.sha256(event.data).hexdigest()
    assert isinstance(event, DenoiseFinished)
    return digest, event, steps


def checksums(snapshots: tuple[LatentRef, ...]) -> dict[int, int]:
    return {ref.step_index: ref.xxh3_64 for ref in snapshots}


def test_resuming_at_every_step_gives_the_latents_of_the_whole_run_bit_for_bit(
    cluster: Cluster, namespace: str
) -> None:
    picture, whole, _ = run(cluster, namespace, "whole")
    stored = checksums(whole.snapshots)
    assert list(stored) == list(range(1, STEPS + 1))
    for k in range(1, STEPS):
        donor = next(ref for ref in whole.snapshots if ref.step_index == k)
        resume = ResumeFrom(donor, k, ResumeKind.TRAJECTORY)
        resumed_picture, resumed, steps = run(cluster, namespace, f"resumed-{k}", resume)
        assert steps == list(range(k, STEPS))
        assert (resumed.executed_steps, resumed.skip_steps) == (STEPS - k, k)
        assert checksums(resumed.snapshots) == {i: c for i, c in stored.items() if i > k}
        assert resumed_picture == picture


def test_decoding_the_clean_latent_gives_the_picture_of_the_whole_run(
    cluster: Cluster, namespace: str
) -> None:
    picture, whole, _ = run(cluster, namespace, "whole")
    clean = ResumeFrom(whole.snapshots[-1], STEPS, ResumeKind.DECODE)
    decoded_picture, decoded, steps = run(cluster, namespace, "decoded", clean)
    assert decoded_picture == picture
    assert (decoded.executed_steps, steps) == (0, [])


def test_renoising_with_the_own_seed_is_deterministic_and_follows_the_seed(
    cluster: Cluster, namespace: str
) -> None:
    _, whole, _ = run(cluster, namespace, "whole")
    clean = ResumeFrom(whole.snapshots[-1], 3, ResumeKind.RENOISE)
    first, _, steps = run(cluster, namespace, "first", clean, seed=9)
    again, _, _ = run(cluster, namespace, "again", clean, seed=9)
    other, _, _ = run(cluster, namespace, "other", clean, seed=10)
    assert steps == list(range(3, STEPS))
    assert first == again
    assert first != other
