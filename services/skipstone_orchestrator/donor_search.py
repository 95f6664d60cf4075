"""The approximate tier: search, gate and policy, candidate by candidate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from skipstone_orchestrator.backends import EntryIndex
from skipstone_orchestrator.calibration import Policies
from skipstone_orchestrator.compatibility import same_prompt
from skipstone_orchestrator.deadlines import Budget, LookupLimits
from skipstone_orchestrator.decision import (
    GATE_UNAVAILABLE,
    LOOKUP_FAILED,
    NO_CANDIDATE,
    STALE_DONOR,
    ClosedReuse,
    Decision,
    Query,
    miss,
)
from skipstone_orchestrator.drift_guard import (
    QUARANTINED,
    TIER_CLOSED,
    DriftGuard,
    ReuseTier,
)
from skipstone_orchestrator.entry_reader import EntryReader, find_snapshot
from skipstone_orchestrator.gate import Gate
from skipstone_orchestrator.guard import Guard, within
from skipstone_orchestrator.journal import LOOKUP, RERANK, Journal
from skipstone_orchestrator.reuse_policy import Donor, ReusePolicy, Verdict, judge
from skipstone_shared.calibration import ServiceIds
from skipstone_shared.embeddings import Embedding, RerankScores
from skipstone_shared.errors import Internal
from skipstone_shared.index_entries import IndexEntry, SearchHit
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Candidate, Entry, HitTier, ReuseKind


class DonorSearch:
    """Finds a donor for a vector. Shared by all requests; keeps nothing of any."""

    def __init__(
        self,
        *,
        index: EntryIndex,
        index_guard: Guard,
        reader: EntryReader,
        gate: Gate,
        policies: Policies,
        limits: LookupLimits,
        repair: Callable[[str, str], None],
        draw_index: Callable[[int], int],
        drift: DriftGuard,
    ) -> None:
        """Creates the search.

        Args:
            index: Finds candidates.
            index_guard: Its guard.
            reader: Knows which latents are really there.
            gate: Scores candidates.
            policies: Decide on donor and depth.
            limits: Deadlines.
            repair: Takes namespace and id of an entry whose latents are gone; must not wait.
            draw_index: Gives one of 0 to n - 1 by lot.
            drift: Knows which tiers are closed and which donors are set aside.
        """
        self._index = index
        self._index_guard = index_guard
        self._reader = reader
        self._gate = gate
        self._policies = policies
        self._limits = limits
        self._repair = repair
        self._draw_index = draw_index
        self._drift = drift

    async def find(
        self, query: Query, embedding: Embedding, journal: Journal, budget: Budget
    ) -> Decision:
        """The first candidate that may donate, or a miss with the reason of the best one.

        Args:
            query: What is looked for.
            embedding: Vector of its prompt.
            journal: Record of the request.
            budget: Time that is left.
        """
        hits: list[SearchHit] | None = None
        with journal.fall_back(LOOKUP, self._index_guard.service):
            hits = await budget.call(
                self._index_guard,
                lambda: self._search(query, embedding),
                self._limits.index_s,
            )
        if hits is None:
            return miss(LOOKUP_FAILED)
        if not hits:
            return miss(NO_CANDIDATE)
        scores: _Scores | None = None
        with journal.fall_back(RERANK, self._gate.service):
            scores = await self._scores(query, hits, budget)
        if scores is None:
            return miss(GATE_UNAVAILABLE, similarity=hits[0].similarity)
        policy = self._policies.in_force(
            ServiceIds(
                embedder_id=embedding.model_id,
                reranker_id=scores.reranker_id,
                model_hash=query.model_hash,
            )
        )
        ranked = _ranked(hits, scores.values)
        found = await self._first_usable(query, policy, ranked, journal, budget)
        return dataclasses.replace(found, policy=policy)

    async def _search(self, query: Query, embedding: Embedding) -> list[SearchHit]:
        found = await self._index.search_entries(
            query.namespace,
            query.compatibility_key,
            [embedding.vector],
            query.use.top_k,
            embedding_model_id=embedding.model_id,
        )
        return found[0]

    async def _scores(self, query: Query, hits: Sequence[SearchHit], budget: Budget) -> _Scores:
        service = self._gate.service
        scores = await within(
            lambda: self._gate.score(query.namespace, query.prompt, hits),
            budget.limit(self._limits.gate_s, service),
            service,
        )
        if scores is None:
            return _Scores([None] * len(hits), "")
        if len(scores) != len(hits) or not all(math.isfinite(score) for score in scores):
            raise Internal(f"{service} gave {len(scores)} scores for {len(hits)} candidates")
        return _Scores(scores, scores.reranker_id if isinstance(scores, RerankScores) else _UNNAMED)

    async def _first_usable(
        self,
        query: Query,
        policy: ReusePolicy,
        ranked: Sequence[_Ranked],
        journal: Journal,
        budget: Budget,
    ) -> Decision:
        """Tries every candidate in order before it declares a miss."""
        verdicts = [self._judge(query, policy, hit, score) for hit, score in ranked]
        closed = self._closed_reuse(query, policy, ranked, verdicts)
        drawn = self._drawn_first(query, ranked, verdicts)
        taken: Decision | None = None
        for place in drawn.order:
            if taken is not None and not query.explains:
                break
            hit, score = ranked[place]
            ref: LatentRef | None = None
            with journal.fall_back(LOOKUP, self._reader.service) as reading:
                ref = await self._verified(query, hit.entry, verdicts[place], budget)
            if reading.failed:
                # Without the store no donor's latent can be read: asking on costs only time.
                taken = taken or miss(LOOKUP_FAILED, similarity=hit.similarity, score=score)
                break
            if ref is None:
                verdicts[place] = Verdict(STALE_DONOR)
            elif taken is None:
                taken = _approximate_hit(query, hit, score, verdicts[place], ref, drawn.choices)
        tried = tuple(
            _candidate(query, hit, score, verdict)
            for (hit, score), verdict in zip(ranked, verdicts, strict=True)
        )
        if taken is None:
            best = tried[0]
            taken = miss(best.reason, similarity=best.similarity, score=best.rerank_score)
        return dataclasses.replace(taken, candidates=tried, closed_reuse=closed)

    def _judge(
        self, query: Query, policy: ReusePolicy, hit: SearchHit, score: float | None
    ) -> Verdict:
        """What the policy says with the tiers that drift has left open."""
        if self._drift.is_quarantined(query.namespace, hit.entry.entry_id):
            return Verdict(QUARANTINED)
        opened = self._drift.opened(policy)
        verdict = _verdict(opened, query, hit, score)
        if verdict.taken or opened is policy:
            return verdict
        asked = _verdict(policy, query, hit, score)
        return Verdict(TIER_CLOSED, tier=asked.tier) if asked.taken else verdict

    def _closed_reuse(
        self,
        query: Query,
        policy: ReusePolicy,
        ranked: Sequence[_Ranked],
        verdicts: Sequence[Verdict],
    ) -> ClosedReuse | None:
        """What the best candidate would get if no tier were closed; None when that is the same."""
        if self._drift.opened(policy) is policy:
            return None
        for (hit, score), verdict in zip(ranked, verdicts, strict=True):
            asked = _verdict(policy, query, hit, score)
            tier = ReuseTier.of(asked)
            if verdict.reason == QUARANTINED or not asked.taken or tier is None:
                continue
            if tier == ReuseTier.of(verdict) or asked.kind is None:
                return None
            step = _resume_step(query, asked)
            donor = next((ref for ref in hit.entry.snapshots if ref.step_index == step), None)
            return None if donor is None else ClosedReuse(tier, donor, asked.skip_steps, asked.kind)
        return None

    def _drawn_first(
        self, query: Query, ranked: Sequence[_Ranked], verdicts: Sequence[Verdict]
    ) -> _Order:
        """Places of the candidates that the policy takes, in the order in which they are tried.

        One of the best within the margin is drawn by lot where the request wants that; the others
        follow by rank.
        """
        taken = [place for place, verdict in enumerate(verdicts) if verdict.taken]
        if not taken:
            return _Order([], 0)
        least = _rank(ranked[taken[0]]) - query.use.donor_margin
        near = [place for place in taken if _rank(ranked[place]) >= least]
        choices = min(len(near), query.use.donor_choices)
        first = near[self._draw_index(choices)] if choices > 1 else taken[0]
        return _Order([first, *(place for place in taken if place != first)], choices)

    async def _verified(
        self, query: Query, entry: IndexEntry, verdict: Verdict, budget: Budget
    ) -> LatentRef | None:
        """The donor's snapshot as the store has it, None when it is not what the index says.

        An entry that is gone is reported for repair. The reference comes from the store, so that a
        stale or wrong payload of the index can never be resumed from.
        """
        stored = await self._reader.read(query.namespace, entry.entry_id, budget)
        if stored is None:
            if not query.explains:
                self._repair(query.namespace, entry.entry_id)
            return None
        step = _resume_step(query, verdict)
        found = find_snapshot(stored, step)
        if found is None or not stored.committed:
            return None
        told = next((ref for ref in entry.snapshots if ref.step_index == step), None)
        if told is None or told.xxh3_64 != found.ref.xxh3_64:
            return None
        same_key = found.metadata.compatibility_key == query.compatibility_key
        shallow = found.metadata.depth <= self._policies.base.max_donor_depth
        return found.ref if same_key and shallow else None


_Ranked = tuple[SearchHit, float | None]

# Scores of a gate that does not say whose they are: no calibration is of this reranker.
_UNNAMED = "unnamed"


@dataclasses.dataclass(frozen=True, slots=True)
class _Scores:
    """Scores in the order of the hits, and whose they are; empty where similarity decides."""

    values: Sequence[float | None]
    reranker_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Order:
    """In which order candidates are tried, and among how many the first was drawn."""

    order: Sequence[int]
    choices: int


def _ranked(hits: Sequence[SearchHit], scores: Sequence[float | None]) -> list[_Ranked]:
    """Hits with their scores, best first; the search's own order among equals."""
    return sorted(zip(hits, scores, strict=True), key=lambda pair: -_rank(pair))


def _verdict(policy: ReusePolicy, query: Query, hit: SearchHit, score: float | None) -> Verdict:
    return judge(policy, query.schedule, _donor(query, hit, score), query.use.limits)


def _resume_step(query: Query, verdict: Verdict) -> int:
    """The step whose snapshot a verdict wants: N, the clean latent, when donors are renoised."""
    renoise = verdict.kind is ReuseKind.RENOISE
    return query.schedule.num_inference_steps if renoise else verdict.skip_steps


def _rank(candidate: _Ranked) -> float:
    hit, score = candidate
    return hit.similarity if score is None else score


def _donor(query: Query, hit: SearchHit, score: float | None) -> Donor:
    return Donor(
        similarity=hit.similarity,
        score=score,
        depth=hit.entry.depth,
        steps={ref.step_index for ref in hit.entry.snapshots},
        same_prompt=same_prompt(hit.entry, query.prompt),
        same_seed=query.seed is not None and hit.entry.seed == query.seed,
    )


def _approximate_hit(
    query: Query,
    hit: SearchHit,
    score: float | None,
    verdict: Verdict,
    ref: LatentRef,
    choices: int,
) -> Decision:
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


def _candidate(query: Query, hit: SearchHit, score: float | None, verdict: Verdict) -> Candidate:
    return Candidate(
        _entry(hit.entry, query.compatibility_key),
        hit.similarity,
        verdict.skip_steps,
        verdict.reason,
        score,
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
