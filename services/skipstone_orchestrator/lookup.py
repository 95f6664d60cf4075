"""The lookup of one request: exact key first, then search, gate and policy, candidate by candidate.

Nothing in here can fail a request: what goes wrong becomes a fallback in the journal, and what is
left is a miss with its reason. All stages together take at most the lookup's budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from skipstone_orchestrator.backends import Embedder, EntryIndex, LatentEntries
from skipstone_orchestrator.breaker import Clock
from skipstone_orchestrator.cache_options import CacheUse
from skipstone_orchestrator.compatibility import exact_entry_id, same_prompt
from skipstone_orchestrator.gate import Gate
from skipstone_orchestrator.guard import Guard, within
from skipstone_orchestrator.journal import BUILD_QUERY, LOOKUP, RERANK, Journal
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.reuse_policy import Donor, ReusePolicy, Verdict, judge
from skipstone_shared.embeddings import Embedding
from skipstone_shared.errors import DeadlineExceeded, EntryNotFound
from skipstone_shared.index_entries import IndexEntry, SearchHit
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Candidate, Entry, HitTier, ReuseKind
from skipstone_shared.stored_entries import StoredEntry, StoredSnapshot

T = TypeVar("T")

EXACT_HIT = "EXACT_HIT"
CACHE_OFF = "CACHE_OFF"
WRITE_ONLY = "WRITE_ONLY"
NOT_ALLOWED = "NOT_ALLOWED"
NO_CANDIDATE = "NO_CANDIDATE"
STALE_DONOR = "STALE_DONOR"
LOOKUP_FAILED = "LOOKUP_FAILED"


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Attributes:
        namespace: Partition of all stores.
        prompt: Prompt as given.
        seed: Seed of the run, None when it is not known yet.
        exact_wanted: Whether the caller chose the seed and so asks for this very picture.
        decodable: Whether a stored clean latent can be turned into the result.
        compatibility_key: Key of the run.
        schedule: Noise levels of the run.
        use: Options in force.
    """

    namespace: str
    prompt: str
    seed: int | None
    exact_wanted: bool
    decodable: bool
    compatibility_key: str
    schedule: Schedule
    use: CacheUse


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What the lookup found.

    Attributes:
        tier: Tier of the request unless the executor refuses the donor.
        reason: Why.
        donor: Snapshot to start from; None on a miss.
        donor_entry: Entry it belongs to, as the index or the store has it.
        donor_depth: Resumed runs between it and noise.
        skip_steps: Steps to skip.
        kind: How the donor's latent is used; None for the exact tier.
        similarity: Of the donor, or of the best candidate of a miss.
        score: The gate's, of the same candidate.
        embedding: Vector of the prompt, for the save; None when it was not computed.
        candidates: All that were considered, best first.
        replaces: Whether an entry of this very request is stored that could not be used.
    """

    tier: HitTier
    reason: str
    donor: LatentRef | None = None
    donor_entry: Entry | None = None
    donor_depth: int = 0
    skip_steps: int = 0
    kind: ReuseKind | None = None
    similarity: float | None = None
    score: float | None = None
    embedding: Embedding | None = None
    candidates: tuple[Candidate, ...] = ()
    replaces: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LookupLimits:
    """Deadlines of the lookup, in seconds: of each stage, and of all together."""

    embedding_s: float
    index_s: float
    store_s: float
    gate_s: float
    total_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Guards:
    """Guards of the services that a lookup asks."""

    embedding: Guard
    index: Guard
    store: Guard


class Budget:
    """Time that is left to all stages of one lookup together."""

    def __init__(self, total_s: float, clock: Clock) -> None:
        """Starts with all of it."""
        self._clock = clock
        self._end = clock() + total_s

    async def call(self, guard: Guard, make: Callable[[], Awaitable[T]], limit_s: float) -> T:
        """Makes a call within the stage's deadline and what is left.

        Raises:
            DeadlineExceeded: Nothing is left, or the call took too long.
        """
        return await guard.call(make, self.limit(limit_s, guard.service))

    def limit(self, limit_s: float, service: str) -> float:
        """The lower of a stage's deadline and what is left, in seconds.

        Raises:
            DeadlineExceeded: Nothing is left.
        """
        left = self._end - self._clock()
        if left <= 0:
            raise DeadlineExceeded(f"no time left to ask {service}")
        return min(limit_s, left)


class Lookup:
    """Decides from where a request starts. Shared by all requests; keeps nothing of any."""

    def __init__(
        self,
        *,
        embedder: Embedder,
        index: EntryIndex,
        store: LatentEntries,
        gate: Gate,
        guards: Guards,
        policy: ReusePolicy,
        limits: LookupLimits,
        repair: Callable[[str, str], None],
        clock: Clock,
    ) -> None:
        """Creates the lookup.

        Args:
            embedder: Turns the prompt into a vector.
            index: Finds candidates.
            store: Knows which latents are really there.
            gate: Scores candidates.
            guards: Guards of the services.
            policy: Decides on donor and depth.
            limits: Deadlines.
            repair: Takes namespace and id of an entry whose latents are gone; must not wait.
            clock: Seconds.
        """
        self._embedder = embedder
        self._index = index
        self._store = store
        self._gate = gate
        self._guards = guards
        self._policy = policy
        self._limits = limits
        self._repair = repair
        self._clock = clock

    async def decide(self, query: Query, journal: Journal) -> Decision:
        """Decides on one request. Raises nothing but cancellation."""
        use = query.use
        if not use.mode.reads:
            return _miss(WRITE_ONLY if use.mode.writes else CACHE_OFF)
        budget = Budget(self._limits.total_s, self._clock)
        found = _miss(NOT_ALLOWED)
        if use.allow_exact and query.exact_wanted and query.decodable:
            with journal.stage(LOOKUP):
                found = await self._exact(query, journal, budget)
            if found.tier is HitTier.EXACT:
                return found
        if not use.allow_approximate:
            return found
        near = await self._approximate(query, journal, budget)
        return dataclasses.replace(near, replaces=found.replaces)

    async def _exact(self, query: Query, journal: Journal, budget: Budget) -> Decision:
        assert query.seed is not None, "an exact request has a seed"
        entry_id = exact_entry_id(query.compatibility_key, query.prompt, query.seed)
        stored: StoredEntry | None = None
        with journal.fall_back(LOOKUP, self._guards.store.service) as reading:
            stored = await self._read_entry(query.namespace, entry_id, budget)
        if stored is None:
            return _miss(LOOKUP_FAILED if reading.failed else NO_CANDIDATE)
        steps = query.schedule.num_inference_steps
        clean = find_snapshot(stored, steps)
        if clean is None or not stored.committed:
            return _miss(NO_CANDIDATE, replaces=stored.committed)
        depth = clean.metadata.depth
        if query.use.full_runs_only and depth > 0:
            return _miss(NO_CANDIDATE, replaces=True)
        return Decision(
            HitTier.EXACT,
            EXACT_HIT,
            donor=clean.ref,
            donor_entry=Entry(
                entry_id, query.prompt, query.seed, query.compatibility_key, (clean.ref,), depth
            ),
            donor_depth=depth,
            skip_steps=steps,
        )

    async def _approximate(self, query: Query, journal: Journal, budget: Budget) -> Decision:
        embedding: Embedding | None = None
        with (
            journal.stage(BUILD_QUERY),
            journal.fall_back(BUILD_QUERY, self._guards.embedding.service),
        ):
            embedding = await budget.call(
                self._guards.embedding,
                lambda: self._embedder.embed_text(query.prompt, namespace=query.namespace),
                self._limits.embedding_s,
            )
        if embedding is None:
            return _miss(LOOKUP_FAILED)
        with journal.stage(LOOKUP):
            decision = await self._nearest(query, embedding, journal, budget)
        return dataclasses.replace(decision, embedding=embedding)

    async def _nearest(
        self, query: Query, embedding: Embedding, journal: Journal, budget: Budget
    ) -> Decision:
        hits: list[SearchHit] | None = None
        with journal.fall_back(LOOKUP, self._guards.index.service):
            found = await budget.call(
                self._guards.index,
                lambda: self._index.search_entries(
                    query.namespace,
                    query.compatibility_key,
                    [embedding.vector],
                    query.use.top_k,
                    embedding_model_id=embedding.model_id,
                ),
                self._limits.index_s,
            )
            hits = found[0]
        if hits is None:
            return _miss(LOOKUP_FAILED)
        if not hits:
            return _miss(NO_CANDIDATE)
        scores: Sequence[float | None] | None = None
        with journal.fall_back(RERANK, self._gate.service):
            scores = await self._scores(query, hits, budget)
        if scores is None:
            return _miss(LOOKUP_FAILED, similarity=hits[0].similarity)
        return await self._first_usable(query, _ranked(hits, scores), journal, budget)

    async def _scores(
        self, query: Query, hits: Sequence[SearchHit], budget: Budget
    ) -> Sequence[float | None]:
        service = self._gate.service
        scores = await within(
            lambda: self._gate.score(query.namespace, query.prompt, hits),
            budget.limit(self._limits.gate_s, service),
            service,
        )
        return [None] * len(hits) if scores is None else scores

    async def _first_usable(
        self, query: Query, ranked: Sequence[_Ranked], journal: Journal, budget: Budget
    ) -> Decision:
        """Tries every candidate in order before it declares a miss."""
        tried: list[Candidate] = []
        taken: Decision | None = None
        for hit, score in ranked:
            verdict = judge(
                self._policy, query.schedule, _donor(query, hit, score), query.use.limits
            )
            ref: LatentRef | None = None
            if verdict.taken and taken is None:
                with journal.fall_back(LOOKUP, self._guards.store.service) as reading:
                    ref = await self._verified(query, hit.entry, verdict, budget)
                if reading.failed:
                    # Without the store no donor's latent can be read: asking on costs only time.
                    return _miss(LOOKUP_FAILED, similarity=hit.similarity, score=score)
                if ref is None:
                    verdict = Verdict(STALE_DONOR)
            tried.append(
                Candidate(
                    _entry(hit.entry, query.compatibility_key),
                    hit.similarity,
                    verdict.skip_steps,
                    verdict.reason,
                    score,
                )
            )
            if ref is not None:
                taken = _approximate_hit(query, hit, score, verdict, ref)
        if taken is None:
            best = tried[0]
            taken = _miss(best.reason, similarity=best.similarity, score=best.rerank_score)
        return dataclasses.replace(taken, candidates=tuple(tried))

    async def _verified(
        self, query: Query, entry: IndexEntry, verdict: Verdict, budget: Budget
    ) -> LatentRef | None:
        """The donor's snapshot as the store has it, None when it is not what the index says.

        An entry that is gone is reported for repair. The reference comes from the store, so that a
        stale or wrong payload of the index can never be resumed from.
        """
        stored = await self._read_entry(query.namespace, entry.entry_id, budget)
        if stored is None:
            self._repair(query.namespace, entry.entry_id)
            return None
        renoise = verdict.kind is ReuseKind.RENOISE
        step = query.schedule.num_inference_steps if renoise else verdict.skip_steps
        found = find_snapshot(stored, step)
        if found is None or not stored.committed:
            return None
        told = next((ref for ref in entry.snapshots if ref.step_index == step), None)
        if told is None or told.xxh3_64 != found.ref.xxh3_64:
            return None
        same_key = found.metadata.compatibility_key == query.compatibility_key
        shallow = found.metadata.depth <= self._policy.max_donor_depth
        return found.ref if same_key and shallow else None

    async def _read_entry(
        self, namespace: str, entry_id: str, budget: Budget
    ) -> StoredEntry | None:
        """An entry of the store, None when it is not there."""
        try:
            return await budget.call(
                self._guards.store,
                lambda: self._store.get_entry(namespace, entry_id),
                self._limits.store_s,
            )
        except EntryNotFound:
            return None


_Ranked = tuple[SearchHit, float | None]


def _ranked(hits: Sequence[SearchHit], scores: Sequence[float | None]) -> list[_Ranked]:
    """Hits with their scores, best first; the search's own order among equals."""
    pairs = list(zip(hits, scores, strict=True))
    return sorted(pairs, key=lambda pair: -(pair[0].similarity if pair[1] is None else pair[1]))


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
    query: Query, hit: SearchHit, score: float | None, verdict: Verdict, ref: LatentRef
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
    )


def _miss(
    reason: str,
    *,
    similarity: float | None = None,
    score: float | None = None,
    replaces: bool = False,
) -> Decision:
    return Decision(HitTier.MISS, reason, similarity=similarity, score=score, replaces=replaces)


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


def find_snapshot(stored: StoredEntry, step_index: int) -> StoredSnapshot | None:
    """The snapshot of a step, None when the entry has none."""
    return next((s for s in stored.snapshots if s.ref.step_index == step_index), None)
