"""Which requests are one and the same, and what those are told that joined another's run.

Requests share a run when every parameter (defaults filled in), the seed and all cache options in
force are equal, and only when the exact tier might answer them: whoever gives no seed wants a
picture of its own, and whoever may not read from the cache gets nothing of another's run. This
holds within one replica; equal requests at two replicas run twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

from skipstone_orchestrator.decision import Query
from skipstone_shared.denoise_runs import GenerationPlan
from skipstone_shared.orchestration import HitTier, Provenance

SINGLE_FLIGHT = "SINGLE_FLIGHT"


def sharing_key(query: Query, plan: GenerationPlan) -> Hashable | None:
    """Equal for requests that may share a run; None for one that runs alone.

    The parameters are part of the key beside the compatibility key, since some change what is told
    and not the picture.
    """
    use = query.use
    if not (use.mode.reads and use.allow_exact and query.exact_wanted):
        return None
    return (query.namespace, query.compatibility_key, plan.params, use)


def taken_over(run: Provenance, request_id: str, times: Mapping[str, float]) -> Provenance:
    """Provenance of the request a run counts for: the first one that was told all of it."""
    if run.request_id == request_id:
        return run
    return dataclasses.replace(
        run, request_id=request_id, stage_times_s={**run.stage_times_s, **times}
    )


def joined(
    run: Provenance, owner_id: str, query: Query, request_id: str, times: Mapping[str, float]
) -> Provenance:
    """Provenance of a request that got the result of another's run, which counts for the owner."""
    entry_id = run.donor_entry_id if run.tier is HitTier.EXACT else run.saved_entry_id
    return Provenance(
        request_id=request_id,
        tier=HitTier.EXACT,
        reason=SINGLE_FLIGHT,
        executed_steps=0,
        num_inference_steps=run.num_inference_steps,
        seed=run.seed,
        cache_mode=run.cache_mode,
        policy_version=run.policy_version,
        skip_steps=run.num_inference_steps,
        donor_entry_id=entry_id,
        donor_prompt=query.prompt if entry_id else "",
        start_sigma=query.schedule.sigmas[-1],
        stage_times_s=times,
        compatibility_key=run.compatibility_key,
        joined_request_id=owner_id,
    )
