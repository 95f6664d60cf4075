"""The sequence of one request: build_query -> lookup -> resume -> denoise -> save.

Trouble in the cache never fails a request; each stage says in the journal what went wrong and the
request goes on without. Only bad input and a missing or failing executor reach the caller.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from skipstone_orchestrator.activity import Activity
from skipstone_orchestrator.audits import DriftAudits
from skipstone_orchestrator.backends import Denoiser
from skipstone_orchestrator.breaker import Clock
from skipstone_orchestrator.cache_options import (
    CacheDefaults,
    CacheUse,
    check_key_steps,
    resolve_options,
)
from skipstone_orchestrator.decision import Query
from skipstone_orchestrator.denoise_run import DenoiseRun
from skipstone_orchestrator.generation_calls import GenerationCall, planned_query
from skipstone_orchestrator.guard import Guard
from skipstone_orchestrator.joined_requests import joined, sharing_key, taken_over
from skipstone_orchestrator.journal import BUILD_QUERY, DENOISE, Journal
from skipstone_orchestrator.lookup import Lookup
from skipstone_orchestrator.plans import Planner
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_orchestrator.request_spans import describe_request
from skipstone_orchestrator.reuse_policy import ReusePolicy
from skipstone_orchestrator.saver import Saver
from skipstone_orchestrator.served_counts import ServedCounts
from skipstone_orchestrator.single_flight import Emit, SingleFlight
from skipstone_shared.denoise_runs import GenerationPlan
from skipstone_shared.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import (
    Fallback,
    GenerateAccepted,
    GenerateEvent,
    GenerateFinished,
    GenerateStarted,
    Provenance,
)
from skipstone_shared.request_context import current_request_id, new_request_id, request_scope

RunEvent = GenerateStarted | StepProgress | Artifact
"""What a run tells those who wait for it."""

RUN_LOST = "RUN_LOST"

_PASSED_ON = (
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
    DeadlineExceeded,
    Internal,
)


@dataclasses.dataclass(frozen=True, slots=True)
class PipelineSettings:
    """What the sequence is configured with.

    Attributes:
        defaults: What holds for requests that do not say.
        lease_s: Lease of snapshots until they are saved, in seconds.
        prompts: How prompts stand in what is saved.
        donor_frames: Frames of what a run makes by which it is found; 0: by its prompt.
    """

    defaults: CacheDefaults
    lease_s: float
    prompts: PromptKeys = dataclasses.field(default_factory=PromptKeys)
    donor_frames: int = 0


class GenerationPipeline:
    """Generates. Shared by all requests of a replica; keeps nothing of any but the running."""

    def __init__(
        self,
        *,
        planner: Planner,
        lookup: Lookup,
        denoiser: Denoiser,
        saver: Saver,
        store_guard: Guard,
        counts: ServedCounts,
        audits: DriftAudits,
        activity: Activity,
        policy: ReusePolicy,
        settings: PipelineSettings,
        clock: Clock,
        draw_seed: Callable[[], int],
    ) -> None:
        """Creates the pipeline.

        Args:
            planner: Checks parameters and plans runs.
            lookup: Decides where a run starts.
            denoiser: Runs.
            saver: Keeps what runs wrote.
            store_guard: Guard of latent_kv.
            counts: Where requests are counted.
            audits: Told of runs that may be audited.
            activity: Told of requests under way.
            policy: Reuse policy.
            settings: The rest.
            clock: Seconds.
            draw_seed: Gives the seed of a request that has none.
        """
        self._planner = planner
        self._lookup = lookup
        self._denoiser = denoiser
        self._saver = saver
        self._store_guard = store_guard
        self._counts = counts
        self._audits = audits
        self._activity = activity
        self._policy = policy
        self._settings = settings
        self._clock = clock
        self._draw_seed = draw_seed
        self._runs: SingleFlight[RunEvent, Provenance] = SingleFlight()

    async def generate(self, call: GenerationCall) -> AsyncGenerator[GenerateEvent, None]:
        """Runs one request; closing the generator stops it and nothing is saved.

        Raises:
            InvalidArgument: A parameter or option is out of range.
            ResourceExhausted: The executor's queue is full.
            Unavailable: No executor can be reached, or it is shutting down.
            DeadlineExceeded: The caller's deadline came first.
            Internal: The model failed.
        """
        namespace = checked_namespace(call.namespace)
        use = resolve_options(call.options, self._settings.defaults)
        journal = Journal(self._clock)
        try:
            with self._activity.request():
                async with aclosing(self._attempts(call, namespace, use, journal)) as events:
                    async for event in events:
                        yield event
        except _PASSED_ON:
            raise
        except Cancelled as error:
            # Not the caller, whose leaving closes this generator: the executor gave the run up.
            raise Unavailable(f"denoise: the run was ended: {error.message}") from error
        except SkipstoneError as error:
            # What a service says of its own data means nothing to the caller of a generation.
            raise Internal(f"denoise: {error.message}") from error

    async def _attempts(
        self, call: GenerationCall, namespace: str, use: CacheUse, journal: Journal
    ) -> AsyncGenerator[GenerateEvent, None]:
        """Plans and runs; once more when the executor was restarted with another model meanwhile.

        The parameters told in `accepted` are those of the first plan.
        """
        request_id = current_request_id() or new_request_id()
        params = call.params
        if params.seed is None:
            params = dataclasses.replace(params, seed=self._draw_seed())
        for attempt in range(2):
            with journal.stage(BUILD_QUERY):
                plan = await self._planner.plan(namespace, params)
            check_key_steps(use.key_steps, len(plan.sigmas) - 1)
            if attempt == 0:
                yield GenerateAccepted(request_id, plan.params)
            query = planned_query(call, namespace, use, plan, self._settings.prompts)
            run = functools.partial(self._run, query, plan, journal, request_id)
            place = self._runs.board(sharing_key(query, plan), request_id, run)
            has_started = False
            try:
                async with aclosing(place.events()) as events:
                    async for event in events:
                        has_started = True
                        yield event
            except FailedPrecondition:
                if has_started:
                    raise
                self._planner.forget()
                continue
            times = journal.times()
            if place.is_owner:
                provenance = taken_over(place.result, request_id, times)
            else:
                provenance = joined(place.result, place.owner_name, query, request_id, times)
            self._counts.count_request(provenance, namespace)
            describe_request(provenance)
            yield GenerateFinished(provenance)
            return
        raise Unavailable("the executor changed its model while the request was planned")

    async def _run(
        self,
        query: Query,
        plan: GenerationPlan,
        journal: Journal,
        request_id: str,
        emit: Emit[RunEvent],
    ) -> Provenance:
        """Looks up and runs, for all who wait; being cancelled stops it and nothing is saved.

        The deadline of the first caller is not that of the others: who has no more time leaves.
        """
        told = len(journal.fallbacks)
        try:
            with request_scope(request_id):
                run = await self._run_to_the_end(query, plan, journal, emit)
                for job in run.audit_jobs():
                    self._audits.consider(job)
                return run.provenance(request_id)
        finally:
            self._counts.count_fallbacks(journal.fallbacks[told:], query.namespace)

    async def _run_to_the_end(
        self, query: Query, plan: GenerationPlan, journal: Journal, emit: Emit[RunEvent]
    ) -> DenoiseRun:
        """Runs; once more when the executor was lost, since there may be another one.

        Not more often: a request that no executor survives must not end all of them.
        """
        started = self._clock()
        try:
            return await self._run_once(query, plan, journal, emit)
        except (Cancelled, Unavailable) as error:
            delay = self._clock() - started
            journal.add(Fallback(DENOISE, "denoise", RUN_LOST, error.message, delay))
        return await self._run_once(query, plan, journal, emit)

    async def _run_once(
        self, query: Query, plan: GenerationPlan, journal: Journal, emit: Emit[RunEvent]
    ) -> DenoiseRun:
        run = await self._prepared(query, plan, journal)
        async with aclosing(run.events()) as events:
            async for event in events:
                await emit(event)
        return run

    async def _prepared(self, query: Query, plan: GenerationPlan, journal: Journal) -> DenoiseRun:
        decision = await self._lookup.decide(query, journal)
        return DenoiseRun(
            denoiser=self._denoiser,
            saver=self._saver,
            store_guard=self._store_guard,
            policy=self._policy,
            lease_s=self._settings.lease_s,
            donor_frames=self._settings.donor_frames,
            plan=plan,
            query=query,
            decision=decision,
            journal=journal,
        )
