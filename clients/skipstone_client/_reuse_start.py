"""From a decision to a donor that is there and fits the run."""

from __future__ import annotations

from skipstone_client._reuse_calls import ReuseCalls
from skipstone_client._reuse_flows import LARGE_BYTES, Flow, Work
from skipstone_client.donor_checks import (
    DonorNeeds,
    DonorRefused,
    check_donor_key,
    checked_arrays,
)
from skipstone_client.engine_runs import Donor, EngineRun, SolverState
from skipstone_shared.latents import LATENTS_PART
from skipstone_shared.orchestration import HitTier, LookupDecision, ReuseKind


def read_donor(
    calls: ReuseCalls, run: EngineRun, compatibility_key: str, decision: LookupDecision
) -> Flow[Donor | None]:
    """Reads and checks the donor of a decision; None on a miss.

    Raises:
        DonorRefused: it cannot be used.
    """
    ref, steps = decision.donor, run.num_inference_steps
    if ref is None or decision.tier is HitTier.MISS:
        return None
    exact = decision.tier is HitTier.EXACT
    start = steps if exact else decision.skip_steps
    if not 0 < start < steps + exact:
        raise DonorRefused("SPEC_MISMATCH", f"step {start} lies outside a run of {steps}")
    kind = None if exact else decision.reuse_kind or ReuseKind.RENOISE
    wanted = start if kind is ReuseKind.TRAJECTORY else steps
    if ref.step_index != wanted:
        raise DonorRefused("SPEC_MISMATCH", f"the donor is not that of step {wanted}")
    needs = DonorNeeds(compatibility_key, steps, run.latents)
    check_donor_key(ref.compatibility_key, needs)
    snapshot = yield from calls.read(ref)
    large = len(snapshot.data) >= LARGE_BYTES
    arrays = yield Work(lambda: checked_arrays(snapshot, ref, needs), blocks=large)
    parts = {name: array for name, array in arrays.items() if name != LATENTS_PART}
    metadata = snapshot.metadata
    solver = SolverState(parts, metadata.scheduler_state_json)
    return Donor(kind, start, arrays[LATENTS_PART], solver, metadata.depth)
