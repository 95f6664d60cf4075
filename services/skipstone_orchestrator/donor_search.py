"""The approximate tier: search, gate and policy, candidate by candidate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from skipstone_orchestrator.backends import EntryIndex
from skipstone_orchestrator.calibration import Policies
from skipstone_orchestrator.candidates import (
    CandidateJudge,
    Ranked,
    approximate_hit,
    ranked_hits,
    resume_step,
    told_candidate,
)
from skipstone_orchestrator.deadlines import Budget, LookupLimits
from skipstone_orchestrator.deciding_services import DecidingServices
from skipstone_orchestrator.decision import (
    GATE_UNAVAILABLE,
    LOOKUP_FAILED,
    NO_CANDIDATE,
    STALE_DONOR,
    Decision,
    Query,
    miss,
)
from skipstone_orchestrator.donor_vectors import DonorVectors
from skipstone_orchestrator.entry_reader import EntryReader, find_snapshot
from skipstone_orchestrator.gate import Gate
from skipstone_orchestrator.guard import Guard, within
from skipstone_orchestrator.journal import LOOKUP, RERANK, Journal
from skipstone_orchestrator.reuse_policy import (
    BELOW_MIN_SIMILARITY,
    SEED_DIVERSITY,
    ReusePolicy,
    Verdict,
    is_near,
)
from skipstone_shared.calibration import ServiceIds
from skipstone_shared.embeddings import Embedding, RerankScores
from skipstone_shared.errors import Internal
from skipstone_shared.index_entries import IndexEntry, SearchHit
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Candidate
from skipstone_shared.tracing import stage_span, traced


class DonorSearch:
    """Finds a donor for a vector. Shared by all requests; keeps nothing of any."""

    def __init__(
        self,
        *,
        index: EntryIndex,
        index_guard: Guard,
        vectors: DonorVectors,
        services: DecidingServices,
        services_guard: Guard,
        reader: EntryReader,
        gate: Gate,
        policies: Policies,
        limits: LookupLimits,
        repair: Callable[[str, str], None],
        judge: CandidateJudge,
    ) -> None:
        """Creates the search.

        Args:
            index: Finds candidates.
            index_guard: Its guard.
            vectors: Knows by what donors are found.
            services: Know who decides.
            services_guard: Guard of the embedding service.
            reader: Knows which latents are really there.
            gate: Scores candidates.
            policies: Decide on donor and depth.
            limits: Deadlines.
            repair: Takes namespace and id of an entry whose latents are gone; must not wait.
            judge: Applies the policy to candidates.
        """
        self._index = index
        self._index_guard = index_guard
        self._vectors = vectors
        self._services = services
        self._services_guard = services_guard
        self._reader = reader
        self._gate = gate
        self._policies = policies
        self._limits = limits
        self._repair = repair
        self._judge = judge

    async def check(self, journal: Journal) -> bool:
        """Whether the index would be asked: without it the prompt need not be encoded."""
        with journal.fall_back(LOOKUP, self._index_guard.service) as index:
            await self._index_guard.check()
        return not index.failed

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
        with journal.fall_back(LOOKUP, self._index_guard.service), stage_span("search"):
            hits = await budget.call(
                self._index_guard,
                lambda: self._search(query, embedding),
                self._limits.index_s,
            )
        if hits is None:
            return miss(LOOKUP_FAILED)
        if not hits:
            return miss(NO_CANDIDATE)
        near: list[SearchHit] = []
        far: list[SearchHit] = []
        for hit in hits:
            # Whatever the gate says of those that are far, no policy takes them: it is not asked.
            is_donor = is_near(self._policies.base, hit.similarity, query.use.limits)
            (near if is_donor else far).append(hit)
        found = miss(BELOW_MIN_SIMILARITY, similarity=hits[0].similarity)
        if near:
            found = await self._among(query, near, embedding.model_id, journal, budget)
        return dataclasses.replace(
            found,
            candidates=(*found.candidates, *_refused(query, far, BELOW_MIN_SIMILARITY)),
        )

    async def _among(
        self,
        query: Query,
        hits: Sequence[SearchHit],
        embedder_id: str,
        journal: Journal,
        budget: Budget,
    ) -> Decision:
        """Asks the gate and the policy about hits that are similar enough."""
        scores: _Scores | None = None
        with journal.fall_back(RERANK, self._gate.service):
            scores = await self._scores(query, hits, budget)
        if scores is None:
            unknown = miss(GATE_UNAVAILABLE, similarity=hits[0].similarity)
            refused = _refused(query, hits, GATE_UNAVAILABLE)
            return dataclasses.replace(unknown, candidates=refused)
        policy = self._policies.in_force(
            ServiceIds(
                embedder_id=embedder_id,
                reranker_id=scores.reranker_id,
                model_hash=query.model_hash,
            )
        )
        ranked = ranked_hits(hits, scores.values)
        found = await self._first_usable(query, policy, ranked, journal, budget)
        version = self._judge.opened(policy).version
        return dataclasses.replace(found, policy=policy, result_version=version)

    async def result_version(self, query: Query, budget: Budget) -> str:
        """Version whose resumed results answer a request: of the policy that would decide now.

        Raises:
            SkipstoneError: The embedding service was not reached since the start.
        """
        services = self._services.ids(query.model_hash)
        if services is None:
            await budget.call(
                self._services_guard, self._services.refresh, self._limits.embedding_s
            )
            services = self._services.ids(query.model_hash)
            assert services is not None, "the service has just told it"
        return self._judge.opened(self._policies.in_force(services)).version

    async def _search(self, query: Query, embedding: Embedding) -> list[SearchHit]:
        found = await self._index.search_entries(
            query.namespace,
            query.compatibility_key,
            [embedding.vector],
            query.use.top_k,
            embedding_model_id=self._vectors.searched(embedding),
        )
        return found[0]

    @traced("gate")
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
        ranked: Sequence[Ranked],
        journal: Journal,
        budget: Budget,
    ) -> Decision:
        """Tries every candidate in order before it declares a miss."""
        verdicts = self._judge.verdicts(query, policy, ranked)
        closed = self._judge.closed_reuse(query, policy, ranked, verdicts)
        drawn = self._judge.drawn_first(query, ranked, verdicts)
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
                continue
            # While the store was asked, another seed of the prompt may have been answered.
            verdict = self._judge.verdict_now(query, policy, ranked, place)
            if verdict != verdicts[place]:
                late = Verdict(SEED_DIVERSITY, tier=verdict.tier)
                verdicts[place] = late if verdict.taken else verdict
            elif taken is None:
                taken = approximate_hit(query, hit, score, verdict, ref, drawn.choices)
                if not query.explains:
                    self._judge.note_taken(query)
        tried = tuple(
            told_candidate(query, hit, score, verdict)
            for (hit, score), verdict in zip(ranked, verdicts, strict=True)
        )
        if taken is None:
            best = tried[0]
            taken = miss(best.reason, similarity=best.similarity, score=best.rerank_score)
        passed = {
            hit.entry.entry_id: verdict.passed
            for (hit, _), verdict in zip(ranked, verdicts, strict=True)
            if verdict.passed
        }
        return dataclasses.replace(taken, candidates=tried, passed=passed, closed_reuse=closed)

    @traced("verify")
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
        step = resume_step(query, verdict)
        found = find_snapshot(stored, step)
        if found is None or not stored.committed:
            return None
        told = next((ref for ref in entry.snapshots if ref.step_index == step), None)
        if told is None or told.xxh3_64 != found.ref.xxh3_64:
            return None
        same_key = found.metadata.compatibility_key == query.compatibility_key
        shallow = found.metadata.depth <= self._policies.base.max_donor_depth
        return found.ref if same_key and shallow else None


def _refused(query: Query, hits: Sequence[SearchHit], reason: str) -> tuple[Candidate, ...]:
    """Candidates that no policy was asked about."""
    return tuple(told_candidate(query, hit, None, Verdict(reason)) for hit in hits)


# Scores of a gate that does not say whose they are: no calibration is of this reranker.
_UNNAMED = "unnamed"


@dataclasses.dataclass(frozen=True, slots=True)
class _Scores:
    """Scores in the order of the hits, and whose they are; empty where similarity decides."""

    values: Sequence[float | None]
    reranker_id: str
