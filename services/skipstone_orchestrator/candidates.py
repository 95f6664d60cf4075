"""What the policy says of each candidate, and in which order those it takes are tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from skipstone_orchestrator.decision import ClosedReuse, Decision, Query
from skipstone_orchestrator.drift_guard import (
    QUARANTINED,
    TIER_CLOSED,
    DriftGuard,
    ReuseTier,
)
from skipstone_orchestrator.reuse_policy import Donor, ReusePolicy, Verdict, judge
from skipstone_orchestrator.served_prompts import ServedPrompts
from skipstone_shared.index_entries import IndexEntry, SearchHit
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Candidate, Entry, HitTier, ReuseKind

Ranked = tuple[SearchHit, float | None]
"""A candidate and the gate's score; None where similarity decides."""


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """In which order candidates are tried, and among how many the first was drawn."""

    order: Sequence[int]
    choices: int


class CandidateJudge:
    """Judges candidates. Shared by all requests; remembers which prompts were answered."""

    def __init__(self, drift: DriftGuard, draw_index: Callable[[int], int]) -> None:
        """Creates the judge.

        Args:
            drift: Knows which tiers are closed and which donors are set aside.
            draw_index: Gives one of 0 to n - 1 at random.
        """
        self._drift = drift
        self._draw_index = draw_index
        self._served = ServedPrompts()

    def opened(self, policy: ReusePolicy) -> ReusePolicy:
        """A policy without the tiers that drift has closed."""
        return self._drift.opened(policy)

    def note_taken(self, query: Query) -> None:
        """Notes that a candidate answers a request: other seeds of its prompt must differ."""
        self._served.note(query)

    def verdicts(
        self, query: Query, policy: ReusePolicy, candidates: Sequence[Ranked]
    ) -> list[Verdict]:
        """What becomes of each, with the tiers that drift has left open."""
        seen = self._was_seen(query, candidates)
        return [self._judge(query, policy, candidate, seen) for candidate in candidates]

    def verdict_now(
        self, query: Query, policy: ReusePolicy, candidates: Sequence[Ranked], place: int
    ) -> Verdict:
        """What becomes of one of them now: another seed may have been answered meanwhile."""
        seen = self._was_seen(query, candidates)
        return self._judge(query, policy, candidates[place], seen)

    def _was_seen(self, query: Query, candidates: Sequence[Ranked]) -> bool:
        """Whether the prompt was answered with another seed, here or by what became a donor."""
        return self._served.had_another_seed(query) or any(
            query.prompts.is_of(hit.entry, query.prompt) and hit.entry.seed != query.seed
            for hit, _ in candidates
        )

    def _judge(self, query: Query, policy: ReusePolicy, candidate: Ranked, seen: bool) -> Verdict:
        """What the policy says with the tiers that drift has left open."""
        hit, _ = candidate
        if self._drift.is_quarantined(query.namespace, hit.entry.entry_id):
            return Verdict(QUARANTINED)
        opened = self._drift.opened(policy)
        verdict = _verdict(opened, query, candidate, seen)
        if opened is policy:
            return verdict
        asked = _verdict(policy, query, candidate, seen)
        if not verdict.taken:
            return Verdict(TIER_CLOSED, tier=asked.tier) if asked.taken else verdict
        if ReuseTier.of(asked) == ReuseTier.of(verdict):
            return verdict
        return dataclasses.replace(verdict, passed=TIER_CLOSED)

    def closed_reuse(
        self,
        query: Query,
        policy: ReusePolicy,
        ranked: Sequence[Ranked],
        verdicts: Sequence[Verdict],
    ) -> ClosedReuse | None:
        """What the best candidate would get if no tier were closed; None when that is the same."""
        if self._drift.opened(policy) is policy:
            return None
        seen = self._was_seen(query, ranked)
        for candidate, verdict in zip(ranked, verdicts, strict=True):
            hit, _ = candidate
            asked = _verdict(policy, query, candidate, seen)
            tier = ReuseTier.of(asked)
            if verdict.reason == QUARANTINED or not asked.taken or tier is None:
                continue
            if tier == ReuseTier.of(verdict) or asked.kind is None:
                return None
            step = resume_step(query, asked)
            donor = next((ref for ref in hit.entry.snapshots if ref.step_index == step), None)
            return None if donor is None else ClosedReuse(tier, donor, asked.skip_steps, asked.kind)
        return None

    def drawn_first(
        self, query: Query, ranked: Sequence[Ranked], verdicts: Sequence[Verdict]
    ) -> Order:
        """Places of the candidates that the policy takes, in the order in which they are tried.

        Where the request wants it, one of the best within the margin is drawn at random; the others
        follow by rank.
        """
        taken = [place for place, verdict in enumerate(verdicts) if verdict.taken]
        if not taken:
            return Order([], 0)
        least = rank(ranked[taken[0]]) - query.use.donor_margin
        near = [place for place in taken if rank(ranked[place]) >= least]
        choices = min(len(near), query.use.donor_choices)
        first = near[self._draw_index(choices)] if choices > 1 else taken[0]
        return Order([first, *(place for place in taken if place != first)], choices)


def ranked_hits(hits: Sequence[SearchHit], scores: Sequence[float | None]) -> list[Ranked]:
    """Hits with their scores, best first; the search's own order among equals."""
    return sorted(zip(hits, scores, strict=True), key=lambda pair: -rank(pair))


def _verdict(policy: ReusePolicy, query: Query, candidate: Ranked, seen: bool) -> Verdict:
    return judge(policy, query.schedule, _donor(query, candidate, seen), query.use.limits)


def resume_step(query: Query, verdict: Verdict) -> int:
    """The step whose snapshot a verdict wants: N, the clean latent, when donors are renoised."""
    renoise = verdict.kind is ReuseKind.RENOISE
    return query.schedule.num_inference_steps if renoise else verdict.skip_steps


def rank(candidate: Ranked) -> float:
    """What candidates are ranked by: the gate's score, where it gave one."""
    hit, score = candidate
    return hit.similarity if score is None else score


def _donor(query: Query, candidate: Ranked, seen: bool) -> Donor:
    hit, score = candidate
    return Donor(
        similarity=hit.similarity,
        score=score,
        depth=hit.entry.depth,
        steps={ref.step_index for ref in hit.entry.snapshots},
        same_prompt=query.prompts.is_of(hit.entry, query.prompt),
        same_seed=query.seed is not None and hit.entry.seed == query.seed,
        prompt_seen=seen,
    )


def approximate_hit(
    query: Query,
    hit: SearchHit,
    score: float | None,
    verdict: Verdict,
    ref: LatentRef,
    choices: int,
) -> Decision:
    """The decision that takes a donor whose snapshot was found in the store."""
    return Decision(
        HitTier.APPROXIMATE,
        verdict.reason,
        donor=ref,
        donor_entry=_entry(hit.entry, query.compatibility_key),
        donor_depth=hit.entry.depth,
        skip_steps=verdict.skip_steps,
        kind=verdict.kind,
        similarity=hit.similarity,
        score=score,
        choices=choices,
        reuse_tier=ReuseTier.of(verdict),
    )


def told_candidate(
    query: Query, hit: SearchHit, score: float | None, verdict: Verdict
) -> Candidate:
    """A candidate as it is told, with its fate."""
    tier = ReuseTier.of(verdict)
    return Candidate(
        _entry(hit.entry, query.compatibility_key),
        hit.similarity,
        verdict.skip_steps,
        verdict.reason,
        score,
        reuse_tier=tier.name if tier is not None and verdict.taken else "",
    )


def _entry(entry: IndexEntry, compatibility_key: str) -> Entry:
    return Entry(
        entry.entry_id,
        entry.prompt,
        entry.seed,
        compatibility_key,
        entry.snapshots,
        entry.depth,
        entry.create_time,
    )
