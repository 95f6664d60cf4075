"""Decisions in words, with the numbers that decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from skipstone_orchestrator import calibration
from skipstone_orchestrator import decision as made
from skipstone_orchestrator import reuse_policy as judged
from skipstone_orchestrator.decision import Decision, Query
from skipstone_orchestrator.drift_guard import QUARANTINED, TIER_CLOSED
from skipstone_orchestrator.reuse_policy import ReusePolicy, kinds_in_order
from skipstone_shared.orchestration import Candidate, ReuseKind

_Explain = Callable[[ReusePolicy, Query, Candidate], str]


def explain_decision(policy: ReusePolicy, query: Query, decision: Decision) -> str:
    """Why a request gets what it gets."""
    if decision.reason == made.NO_CANDIDATE and not query.use.allow_approximate:
        return "runs in full: the request takes only the result of a full run of it; none is stored"
    known = _DECISIONS.get(decision.reason)
    if known is not None:
        return known
    if decision.donor is not None:
        return _resumed(query, decision)
    best = next(iter(decision.candidates), None)
    if best is None:
        return f"runs in full: {decision.reason}"
    why = explain_candidate(policy, query, decision, best)
    return f"runs in full; of {len(decision.candidates)} candidates, the best: {why}"


def explain_candidate(
    policy: ReusePolicy, query: Query, decision: Decision, candidate: Candidate
) -> str:
    """Why a candidate is taken or refused, and why not deeper."""
    explain = _CANDIDATES.get(candidate.reason)
    text = candidate.reason if explain is None else explain(policy, query, candidate)
    passed = decision.passed.get(candidate.entry.entry_id)
    if passed is not None:
        text += f"; not deeper: {_PASSED.get(passed, passed)}"
    if decision.reason == made.EXACT_HIT and _is_donor(decision, candidate):
        return f"the result of this very request, which is decoded; as a donor: {text}"
    return text


def _is_donor(decision: Decision, candidate: Candidate) -> bool:
    return decision.donor is not None and decision.donor.entry_id == candidate.entry.entry_id


def _resumed(query: Query, decision: Decision) -> str:
    schedule, skipped = query.schedule, decision.skip_steps
    text = (
        f"skips {skipped} of {schedule.num_inference_steps} steps: starts at noise level "
        f"{schedule.levels[skipped]:.3f}"
    )
    if decision.choices > 1:
        text += f"; this donor was drawn among the best {decision.choices}"
    donor = decision.donor
    passed = decision.passed.get(donor.entry_id) if donor is not None else None
    return text if passed is None else f"{text}; not deeper: {_PASSED.get(passed, passed)}"


def _score(candidate: Candidate) -> tuple[str, float]:
    if candidate.rerank_score is None:
        return "similarity", candidate.similarity
    return "gate score", candidate.rerank_score


def _taken(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    name, score = _score(candidate)
    skipped = candidate.skip_steps
    level = query.schedule.levels[skipped]
    text = (
        f"{name} {score:.3f} earns tier {candidate.reuse_tier}: {skipped} steps, "
        f"to noise level {level:.3f}"
    )
    limit = query.use.limits.max_skip_steps
    return f"{text}; the request allows {limit}" if skipped == limit else text


def _below_lowest_tier(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    name, score = _score(candidate)
    wanted = query.use.limits.kind
    same_seed = query.seed is not None and candidate.entry.seed == query.seed
    rows = [
        row
        for kind in ([wanted] if wanted is not None else ReuseKind)
        for row in policy.tables.rows(kind, same_seed)
    ]
    lowest = min((row.above for row in rows), default=1.0)
    return f"{name} {score:.3f} earns no tier; the lowest begins above {lowest:g}"


def _below_min_similarity(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    asked = query.use.limits.min_similarity
    least = policy.min_similarity if asked is None else max(asked, policy.min_similarity)
    return f"similarity {candidate.similarity:.3f} is below {least:g}"


def _donor_depth(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return (
        f"it was itself resumed (depth {candidate.entry.depth}); "
        f"donors have at most {policy.max_donor_depth}"
    )


def _kind_unsupported(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    wanted = query.use.limits.kind
    kinds = [wanted] if wanted is not None else kinds_in_order(policy)
    possible = ", ".join(sorted(kind.value for kind in query.schedule.kinds)) or "nothing"
    return f"wanted is {' or '.join(k.value for k in kinds)}; this schedule allows {possible}"


def _sigma_floor(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    name, score = _score(candidate)
    second = query.schedule.levels[1]
    return (
        f"{name} {score:.3f} allows no step of this schedule but the first: the second enters at "
        f"noise level {second:.3f}, and nothing goes below {policy.sigma_floor:g}"
    )


def _max_skip_steps(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return f"the request allows {query.use.limits.max_skip_steps} skipped steps, fewer than any"


def _no_snapshot(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    name, score = _score(candidate)
    stored = ", ".join(str(ref.step_index) for ref in candidate.entry.snapshots) or "none"
    return f"it has no snapshot at a step that {name} {score:.3f} allows (stored: {stored})"


def _seed_ignored(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return "same prompt, other seed: its trajectory would give its own picture again"


def _tiers_closed(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return "no tier is open for donors used in this way; the calibration file says why"


def _fewer_steps_win(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return (
        "plain runs of as many steps as a resumed run would execute are measured to do better, or, "
        "where that many were not measured, are taken to be as near as can be: ask for fewer steps "
        "instead"
    )


def _seed_diversity(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return _SEED_DIVERSITY


def _no_calibration(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return (
        "no calibration was made with this encoder, reranker and model, so that nobody knows what "
        "a score is worth: make one with `skipstone calibrate`"
    )


def _stale_donor(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return "latent_kv does not have its latents as the index describes them"


def _gate_unavailable(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return "the gate failed or there is none, so that nobody knows whether it means the same"


def _tier_closed(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    name, score = _score(candidate)
    return f"every tier that {name} {score:.3f} has earned is closed: audits found too much drift"


def _quarantined(policy: ReusePolicy, query: Query, candidate: Candidate) -> str:
    return "set aside: an audit found that its reuse drifts too far"


_CANDIDATES: Mapping[str, _Explain] = MappingProxyType(
    {
        judged.DONOR_RESUMED: _taken,
        judged.BELOW_LOWEST_TIER: _below_lowest_tier,
        judged.BELOW_MIN_SIMILARITY: _below_min_similarity,
        judged.DONOR_DEPTH: _donor_depth,
        judged.KIND_UNSUPPORTED: _kind_unsupported,
        judged.SIGMA_FLOOR: _sigma_floor,
        judged.MAX_SKIP_STEPS: _max_skip_steps,
        judged.NO_SNAPSHOT: _no_snapshot,
        judged.SEED_IGNORED: _seed_ignored,
        judged.TIERS_CLOSED: _tiers_closed,
        judged.FEWER_STEPS_WIN: _fewer_steps_win,
        judged.SEED_DIVERSITY: _seed_diversity,
        calibration.CALIBRATION_MISMATCH: _no_calibration,
        calibration.NO_CALIBRATION: _no_calibration,
        made.STALE_DONOR: _stale_donor,
        made.GATE_UNAVAILABLE: _gate_unavailable,
        TIER_CLOSED: _tier_closed,
        QUARANTINED: _quarantined,
    }
)

_SEED_DIVERSITY = (
    "the prompt was answered with another seed before, and with this donor's latents the pictures "
    "of all seeds are too much alike"
)

_PASSED: Mapping[str, str] = MappingProxyType(
    {
        judged.SEED_DIVERSITY: _SEED_DIVERSITY,
        judged.FEWER_STEPS_WIN: "there, plain runs of as many steps are measured to do better",
        judged.NO_SNAPSHOT: "it has no snapshot there",
        TIER_CLOSED: "it is closed: audits found too much drift",
    }
)
"""Why a deeper tier that a score has earned was passed over."""

_DECISIONS: Mapping[str, str] = MappingProxyType(
    {
        made.EXACT_HIT: "this very request is stored: its result is decoded, no step is run",
        made.CACHE_OFF: "runs in full: the cache mode is off",
        made.WRITE_ONLY: "runs in full: the cache mode is write_only, nothing is looked up",
        made.NOT_ALLOWED: "runs in full: the request allows no tier that could answer it",
        made.NO_CANDIDATE: "runs in full: nothing is stored in this namespace under this key",
        made.LOOKUP_FAILED: "runs in full: a service of the lookup failed, see the fallbacks",
        made.GATE_UNAVAILABLE: "runs in full: the gate failed or there is none, see the fallbacks",
    }
)
