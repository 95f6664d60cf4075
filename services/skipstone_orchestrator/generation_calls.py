"""One request as its caller gave it, and what is looked for once its run is planned."""

from __future__ import annotations

import dataclasses

from skipstone_orchestrator.cache_options import CacheUse
from skipstone_orchestrator.decision import Query
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_shared.calibration import model_hash
from skipstone_shared.denoise_runs import GenerationPlan, ResumeKind
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheOptions, ReuseKind

_REUSE_KINDS = {
    ResumeKind.TRAJECTORY: ReuseKind.TRAJECTORY,
    ResumeKind.RENOISE: ReuseKind.RENOISE,
}


@dataclasses.dataclass(frozen=True, slots=True)
class GenerationCall:
    """One request as the caller gave it."""

    namespace: str
    params: GenerationParams
    options: CacheOptions = dataclasses.field(default_factory=CacheOptions)


def planned_query(
    call: GenerationCall,
    namespace: str,
    use: CacheUse,
    plan: GenerationPlan,
    prompts: PromptKeys,
) -> Query:
    """What is looked for: the call, its options in force, and what its run would be."""
    kinds = [_REUSE_KINDS[kind] for kind in plan.resume_kinds if kind in _REUSE_KINDS]
    return Query(
        namespace=namespace,
        prompt=plan.params.prompt,
        seed=plan.params.seed,
        # Who gives no seed wants a new picture, not a stored one.
        exact_wanted=call.params.seed is not None,
        decodable=ResumeKind.DECODE in plan.resume_kinds,
        compatibility_key=plan.compatibility_key,
        model_hash=model_hash(plan.fingerprint),
        schedule=Schedule.of(
            plan.sigmas, plan.fingerprint.prediction_type, kinds, plan.resumable_steps
        ),
        use=use,
        prompts=prompts,
    )
