"""Checks the parts of a request that are not generation parameters."""

from __future__ import annotations

import itertools

from skipstone_shared.denoise_runs import DenoiseRequest, ResumeFrom, ResumeKind, SnapshotPlan
from skipstone_shared.errors import CompatibilityMismatch, InvalidArgument
from skipstone_shared.frame_samples import MAX_FRAMES
from skipstone_shared.latents import checked_entry_id
from skipstone_shared.stored_entries import MAX_LEASE_S, MIN_LEASE_S


def check_request(request: DenoiseRequest, num_inference_steps: int, key: str) -> None:
    """Checks a request against its plan.

    Args:
        request: The request.
        num_inference_steps: Steps of its schedule.
        key: Compatibility key of its run.

    Raises:
        InvalidArgument: a field is out of range.
        CompatibilityMismatch: the caller planned for another key.
    """
    if request.params.seed is None:
        raise InvalidArgument(
            "params.seed is not set", field="params.seed", allowed="0 to 2^63 - 1"
        )
    if request.resume is not None:
        _check_resume(request.resume, num_inference_steps)
    if request.snapshots is not None:
        _check_snapshots(request.snapshots, num_inference_steps)
    if not 0 <= request.sample_frames <= MAX_FRAMES:
        raise InvalidArgument(
            f"sample_frames is {request.sample_frames}",
            field="sample_frames",
            allowed=f"0 to {MAX_FRAMES}",
        )
    expected = request.expected_compatibility_key
    if expected and expected != key:
        raise CompatibilityMismatch(
            f"the run has compatibility key {key}, expected was {expected[:80]}; plan again",
            field="expected_compatibility_key",
        )


def _check_resume(resume: ResumeFrom, steps: int) -> None:
    decode = resume.kind is ResumeKind.DECODE
    lowest, highest = (steps, steps) if decode else (1, steps - 1)
    if not lowest <= resume.skip_steps <= highest:
        allowed = f"{steps}" if decode else f"1 to {highest}" if highest else "none: one step only"
        raise InvalidArgument(
            f"resume.skip_steps is {resume.skip_steps}", field="resume.skip_steps", allowed=allowed
        )
    wanted = resume.skip_steps if resume.kind is ResumeKind.TRAJECTORY else steps
    if resume.donor.step_index != wanted:
        raise InvalidArgument(
            f"resume.donor.step_index is {resume.donor.step_index}",
            field="resume.donor.step_index",
            allowed=f"{wanted} for {resume.kind.value}",
        )


def _check_snapshots(snapshots: SnapshotPlan, steps: int) -> None:
    checked_entry_id(snapshots.entry_id)
    ascending = all(a < b for a, b in itertools.pairwise(snapshots.key_steps))
    if not ascending or not all(1 <= step <= steps - 1 for step in snapshots.key_steps):
        raise InvalidArgument(
            f"snapshots.key_steps is {list(snapshots.key_steps[:20])}",
            field="snapshots.key_steps",
            allowed=f"ascending steps from 1 to {steps - 1}",
        )
    if not MIN_LEASE_S <= snapshots.lease_s <= MAX_LEASE_S:
        raise InvalidArgument(
            f"snapshots.lease is {snapshots.lease_s} s",
            field="snapshots.lease",
            allowed=f"{MIN_LEASE_S:g} to {MAX_LEASE_S:g} s",
        )
