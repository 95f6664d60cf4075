"""The lookup of one request: the exact key first, then the nearest donors.

Nothing in here can fail a request: what goes wrong becomes a fallback in the journal, and what is
left is a miss with its reason. All stages together take at most the lookup's budget.
"""

from __future__ import annotations

import dataclasses

from skipstone_orchestrator.backends import Embedder
from skipstone_orchestrator.breaker import Clock
from skipstone_orchestrator.compatibility import exact_entry_id, resumed_entry_id
from skipstone_orchestrator.deadlines import Budget, LookupLimits
from skipstone_orchestrator.decision import (
    CACHE_OFF,
    EXACT_HIT,
    LOOKUP_FAILED,
    NO_CANDIDATE,
    NOT_ALLOWED,
    WRITE_ONLY,
    Decision,
    Query,
    miss,
)
from skipstone_orchestrator.donor_search import DonorSearch
from skipstone_orchestrator.entry_reader import EntryReader, find_snapshot
from skipstone_orchestrator.guard import Guard
from skipstone_orchestrator.journal import BUILD_QUERY, LOOKUP, Journal
from skipstone_shared.embeddings import Embedding
from skipstone_shared.orchestration import Entry, HitTier
from skipstone_shared.stored_entries import StoredEntry
from skipstone_shared.tracing import stage_span, traced


class Lookup:
    """Decides from where a request starts. Shared by all requests; keeps nothing of any."""

    def __init__(
        self,
        *,
        embedder: Embedder,
        embedder_guard: Guard,
        reader: EntryReader,
        donors: DonorSearch,
        limits: LookupLimits,
        clock: Clock,
    ) -> None:
        """Creates the lookup.

        Args:
            embedder: Turns the prompt into a vector.
            embedder_guard: Its guard.
            reader: Reads entries of the store.
            donors: Finds a donor for a vector.
            limits: Deadlines.
            clock: Seconds.
        """
        self._embedder = embedder
        self._embedder_guard = embedder_guard
        self._reader = reader
        self._donors = donors
        self._limits = limits
        self._clock = clock

    @traced(LOOKUP)
    async def decide(self, query: Query, journal: Journal) -> Decision:
        """Decides on one request. Raises nothing but cancellation."""
        use = query.use
        if not use.mode.reads:
            # What is stored of this request was not looked at, and a save may have to move it.
            return miss(WRITE_ONLY if use.mode.writes else CACHE_OFF, replaces=True)
        with journal.fall_back(LOOKUP, self._reader.service) as store:
            await self._reader.check()
        if store.failed:
            return miss(LOOKUP_FAILED)
        budget = Budget(self._limits.total_s, self._clock)
        found = miss(NOT_ALLOWED)
        if use.allow_exact and query.exact_wanted and query.decodable:
            with journal.stage(LOOKUP):
                found = await self._exact(query, journal, budget)
            # Without the store no donor's latent can be read: to look for one costs only time.
            if found.tier is HitTier.EXACT or found.reason == LOOKUP_FAILED:
                return found
        if not use.allow_approximate:
            return found
        near = await self._approximate(query, journal, budget)
        return dataclasses.replace(near, replaces=found.replaces)

    @traced("exact")
    async def _exact(self, query: Query, journal: Journal, budget: Budget) -> Decision:
        assert query.seed is not None, "an exact request has a seed"
        request = query.compatibility_key, query.exact_prompt, query.seed
        full = await self._stored(query, exact_entry_id(*request), 0, journal, budget)
        if full.reason != NO_CANDIDATE or query.use.full_runs_only:
            return full
        version = ""
        with journal.fall_back(LOOKUP, self._embedder_guard.service):
            version = await self._donors.result_version(query, budget)
        if not version:
            return full
        entry_id = resumed_entry_id(*request, version)
        resumed = await self._stored(query, entry_id, None, journal, budget)
        return dataclasses.replace(resumed, replaces=full.replaces or resumed.replaces)

    async def _stored(
        self,
        query: Query,
        entry_id: str,
        max_depth: int | None,
        journal: Journal,
        budget: Budget,
    ) -> Decision:
        """The result that is stored under an id, if it is the request's and not too deep."""
        stored: StoredEntry | None = None
        with journal.fall_back(LOOKUP, self._reader.service) as reading:
            stored = await self._reader.read(query.namespace, entry_id, budget)
        if stored is None:
            return miss(LOOKUP_FAILED if reading.failed else NO_CANDIDATE)
        steps = query.schedule.num_inference_steps
        clean = find_snapshot(stored, steps)
        if clean is None or not stored.committed:
            return miss(NO_CANDIDATE, replaces=stored.committed)
        if clean.metadata.compatibility_key != query.compatibility_key:
            return miss(NO_CANDIDATE, replaces=True)
        depth = clean.metadata.depth
        if max_depth is not None and depth > max_depth:
            return miss(NO_CANDIDATE, replaces=True)
        return Decision(
            HitTier.EXACT,
            EXACT_HIT,
            donor=clean.ref,
            donor_entry=Entry(
                entry_id,
                query.prompt,
                query.seed or 0,
                query.compatibility_key,
                (clean.ref,),
                depth,
            ),
            donor_depth=depth,
            skip_steps=steps,
            replaces=True,
        )

    async def _approximate(self, query: Query, journal: Journal, budget: Budget) -> Decision:
        if not await self._donors.check(journal):
            return miss(LOOKUP_FAILED)
        embedding: Embedding | None = None
        with (
            journal.stage(BUILD_QUERY),
            journal.fall_back(BUILD_QUERY, self._embedder_guard.service),
            stage_span("embed"),
        ):
            embedding = await budget.call(
                self._embedder_guard,
                lambda: self._embedder.embed_text(query.prompt, namespace=query.namespace),
                self._limits.embedding_s,
            )
        if embedding is None:
            return miss(LOOKUP_FAILED)
        with journal.stage(LOOKUP):
            decision = await self._donors.find(query, embedding, journal, budget)
        return dataclasses.replace(decision, embedding=embedding)
