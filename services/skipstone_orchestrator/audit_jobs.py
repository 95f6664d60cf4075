"""What of a finished run may be audited."""

from __future__ import annotations

from skipstone_orchestrator.audits import AuditJob
from skipstone_orchestrator.decision import Decision, Query
from skipstone_orchestrator.drift_guard import ReuseTier
from skipstone_shared.denoise_runs import (
    DenoiseFinished,
    GenerationPlan,
    ResumeFrom,
    ResumeKind,
)
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import HitTier, ReuseKind

RESUME_KINDS = {
    ReuseKind.TRAJECTORY: ResumeKind.TRAJECTORY,
    ReuseKind.RENOISE: ResumeKind.RENOISE,
    None: ResumeKind.DECODE,
}


def audit_jobs(
    query: Query, plan: GenerationPlan, decision: Decision, finished: DenoiseFinished
) -> list[AuditJob]:
    """The audits of a run: of the hit it was, and of what a closed tier would have made of it.

    Args:
        query: The request.
        plan: Plan of its run, with the seed.
        decision: Where the run was to start.
        finished: What it did; it stored its clean latent, or the audit has to make it again.
    """
    steps = query.schedule.num_inference_steps
    clean = next((ref for ref in finished.snapshots if ref.step_index == steps), None)
    was_resumed = 0 < finished.skip_steps < steps
    jobs = []
    if was_resumed and decision.tier is HitTier.APPROXIMATE and decision.reuse_tier is not None:
        assert decision.donor is not None, "an approximate hit has a donor"
        resume = ResumeFrom(decision.donor, decision.skip_steps, RESUME_KINDS[decision.kind])
        jobs.append(_job(query, plan, decision.reuse_tier, resume, was_served=True, resumed=clean))
    closed = decision.closed_reuse
    if closed is not None:
        resume = ResumeFrom(closed.donor, closed.skip_steps, RESUME_KINDS[closed.kind])
        full = clean if finished.skip_steps == 0 else None
        jobs.append(_job(query, plan, closed.tier, resume, was_served=False, full=full))
    return jobs


def _job(
    query: Query,
    plan: GenerationPlan,
    tier: ReuseTier,
    resume: ResumeFrom,
    *,
    was_served: bool,
    resumed: LatentRef | None = None,
    full: LatentRef | None = None,
) -> AuditJob:
    return AuditJob(
        query.namespace,
        plan.params,
        plan.compatibility_key,
        tier,
        resume,
        was_served,
        resumed,
        full,
    )
