"""One run of the executor for one request: what it is asked, what it tells, what is kept of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from skipstone_orchestrator.audit_jobs import RESUME_KINDS, audit_jobs
from skipstone_orchestrator.audits import AuditJob
from skipstone_orchestrator.backends import Denoiser
from skipstone_orchestrator.compatibility import exact_entry_id, resumed_entry_id
from skipstone_orchestrator.decision import Decision, Query
from skipstone_orchestrator.guard import Guard
from skipstone_orchestrator.journal import DECODE, DENOISE, RESUME, SAVE, SNAPSHOT, Journal
from skipstone_orchestrator.request_spans import run_spans
from skipstone_orchestrator.reuse_policy import ReusePolicy, default_key_steps
from skipstone_orchestrator.saver import SaveJob, Saver
from skipstone_shared.denoise_runs import (
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    GenerationPlan,
    ResumeFrom,
    SnapshotPlan,
    SnapshotWritten,
)
from skipstone_shared.errors import Internal, QueueFull
from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.orchestration import (
    Fallback,
    GenerateStarted,
    HitTier,
    Provenance,
)

RESUME_REFUSED = "RESUME_REFUSED"

_DATA_REASONS = ("LATENT_", "NOT_FINITE", "SPEC_MISMATCH")
_STORE_REASONS = (*_DATA_REASONS, "STORE_")


class DenoiseRun:
    """Runs the executor once, by the decision of the lookup."""

    def __init__(
        self,
        *,
        denoiser: Denoiser,
        saver: Saver,
        store_guard: Guard,
        policy: ReusePolicy,
        lease_s: float,
        donor_frames: int,
        plan: GenerationPlan,
        query: Query,
        decision: Decision,
        journal: Journal,
    ) -> None:
        """Prepares the run.

        Args:
            denoiser: The executor.
            saver: Takes what the run wrote.
            store_guard: Guard of latent_kv, asked whether snapshots have a chance.
            policy: Says which steps are stored.
            lease_s: Lease of what is written, in seconds.
            donor_frames: Frames of what it makes that a save needs; 0: none.
            plan: Plan of the run; its parameters have a seed.
            query: The request.
            decision: Where the run starts.
            journal: Record of the request.
        """
        self._denoiser = denoiser
        self._saver = saver
        self._store_guard = store_guard
        self._policy = policy
        self._lease_s = lease_s
        self._donor_frames = donor_frames
        self._plan = plan
        self._query = query
        self._decision = decision
        self._journal = journal
        self._entry_id = ""
        self._saved_entry_id = ""
        self._started: DenoiseStarted | None = None
        self._finished: DenoiseFinished | None = None

    @property
    def has_started(self) -> bool:
        """Whether the executor has begun; before that nothing was told to the caller."""
        return self._started is not None

    async def events(self) -> AsyncGenerator[GenerateStarted | StepProgress | Artifact, None]:
        """What the caller is told, up to the finished picture.

        Closing the generator at any point stops the executor and keeps nothing of the run.
        """
        request = await self._request()
        try:
            with run_spans(resumes=request.resume is not None) as resuming:
                async with aclosing(self._denoiser.run(request)) as events:
                    async for event in events:
                        if isinstance(event, DenoiseStarted):
                            resuming.end(event.refusal_reason)
                            yield self._note_started(event)
                        elif isinstance(event, DenoiseFinished):
                            self._finished = event
                        elif not isinstance(event, SnapshotWritten):
                            yield event
            if self._started is None or self._finished is None:
                raise Internal("the executor ended a run without saying how it went")
            self._note_finished(self._finished)
        finally:
            self._hand_over()

    def provenance(self, request_id: str) -> Provenance:
        """Where the result comes from; after `events` has ended."""
        assert self._started is not None, "the run has not started"
        assert self._finished is not None, "the run is not finished"
        decision, query = self._decision, self._query
        skip_steps = self._started.skip_steps
        reused = skip_steps > 0
        donor = decision.donor_entry if reused else None
        return Provenance(
            request_id=request_id,
            tier=self._tier,
            reason=RESUME_REFUSED if self._refused else decision.reason,
            executed_steps=self._finished.executed_steps,
            num_inference_steps=query.schedule.num_inference_steps,
            seed=query.seed or 0,
            cache_mode=query.use.mode,
            policy_version=decision.policy_version(self._policy),
            skip_steps=skip_steps,
            donor_entry_id=donor.entry_id if donor else "",
            donor_prompt=donor.prompt if donor else "",
            similarity=decision.similarity,
            rerank_score=decision.score,
            start_sigma=query.schedule.sigmas[skip_steps] if reused else None,
            reuse_kind=decision.kind if reused else None,
            block_cache=self._finished.block_cache,
            stage_times_s=self._journal.times(),
            fallbacks=self._journal.fallbacks,
            saved_entry_id=self._saved_entry_id,
            compatibility_key=query.compatibility_key,
            snapshot_failures={f.step_index: f.reason for f in self._finished.snapshot_failures},
            donor_choices=decision.choices if reused else 0,
            reuse_tier=decision.reuse_tier.name if reused and decision.reuse_tier else "",
            passed_over=decision.passed.get(donor.entry_id, "") if donor else "",
        )

    def audit_jobs(self) -> list[AuditJob]:
        """What of the run may be audited; after `events` has ended."""
        assert self._finished is not None, "the run is not finished"
        return audit_jobs(self._query, self._plan, self._decision, self._finished)

    @property
    def _refused(self) -> bool:
        asked = self._decision.donor is not None
        return asked and self._started is not None and self._started.skip_steps == 0

    @property
    def _tier(self) -> HitTier:
        return HitTier.MISS if self._refused else self._decision.tier

    @property
    def _would_spoil_its_own_entry(self) -> bool:
        """Whether a resumed run might write over another result of the same request.

        That happens when the caller chose the seed and did not let the exact tier look.
        """
        resumed = self._decision.tier is HitTier.APPROXIMATE
        return resumed and self._query.exact_wanted and not self._query.use.allow_exact

    async def _request(self) -> DenoiseRequest:
        decision = self._decision
        resume = None
        if decision.donor is not None:
            kind = RESUME_KINDS[decision.kind]
            resume = ResumeFrom(decision.donor, decision.skip_steps, kind)
        snapshots = await self._snapshot_plan()
        return DenoiseRequest(
            self._query.namespace,
            self._plan.params,
            resume=resume,
            snapshots=snapshots,
            sample_frames=self._donor_frames if snapshots is not None else 0,
            expected_compatibility_key=self._plan.compatibility_key,
        )

    async def _snapshot_plan(self) -> SnapshotPlan | None:
        """What to store; None when nothing may be, or when it would only cost the caller time."""
        query = self._query
        if not query.use.mode.writes or query.seed is None or self._would_spoil_its_own_entry:
            return None
        store = self._store_guard
        if any(f.service == store.service for f in self._journal.fallbacks):
            message = "nothing is stored, since the store failed this request before"
            self._journal.add(Fallback(SNAPSHOT, store.service, "UNAVAILABLE", message))
            return None
        with self._journal.fall_back(SNAPSHOT, store.service) as checked:
            await store.check()
        if checked.failed:
            return None
        entry_id = self._own_entry_id(query.seed)
        if not self._saver.claim(query.namespace, entry_id):
            return None  # the same request is running beside this one and will be saved
        self._entry_id = entry_id
        wanted = query.use.limits.kind
        steps = query.use.key_steps or default_key_steps(self._policy, query.schedule, wanted)
        return SnapshotPlan(entry_id, steps, store_clean=True, lease_s=self._lease_s)

    def _own_entry_id(self, seed: int) -> str:
        """Where the exact tier will look for what this run gives."""
        request = self._query.compatibility_key, self._query.exact_prompt, seed
        if self._decision.tier is HitTier.APPROXIMATE:
            return resumed_entry_id(*request, self._decision.result_version)
        return exact_entry_id(*request)

    def _note_started(self, started: DenoiseStarted) -> GenerateStarted:
        self._started = started
        self._journal.add_time(RESUME, started.resume_read_time_s)
        if self._refused:
            self._note_refusal(started)
        steps = self._query.schedule.num_inference_steps
        return GenerateStarted(self._tier, started.skip_steps, steps)

    def _note_refusal(self, started: DenoiseStarted) -> None:
        """The executor found the donor unusable and runs from noise."""
        reason = started.refusal_reason or RESUME_REFUSED
        from_store = reason.startswith(_STORE_REASONS)
        service = self._store_guard.service if from_store else "denoise"
        message, delay = started.refusal_message, started.resume_read_time_s
        self._journal.add(Fallback(RESUME, service, reason, message, delay))
        donor = self._decision.donor
        if donor is not None and reason.startswith(_DATA_REASONS):
            self._saver.repair(self._query.namespace, donor.entry_id)

    def _note_finished(self, finished: DenoiseFinished) -> None:
        self._journal.add_time(DENOISE, finished.denoise_time_s)
        self._journal.add_time(DECODE, finished.decode_time_s)
        told: set[str] = set()
        for failure in finished.snapshot_failures:
            if failure.reason not in told:
                told.add(failure.reason)
                delay = finished.snapshot_time_s if len(told) == 1 else 0.0
                self._journal.add(
                    Fallback(
                        SNAPSHOT, self._store_guard.service, failure.reason, failure.message, delay
                    )
                )

    def _hand_over(self) -> None:
        """Gives what was written to the saver: to be saved after success, else to be discarded."""
        if not self._entry_id:
            return
        query, decision = self._query, self._decision
        if self._started is not None and self._tier is HitTier.EXACT:
            self._saver.release(query.namespace, self._entry_id)
            return
        if self._finished is None or not self._finished.snapshots:
            self._saver.discard(query.namespace, self._entry_id)
            return
        resumed = self._started is not None and self._started.skip_steps > 0
        job = SaveJob(
            namespace=query.namespace,
            entry_id=self._entry_id,
            prompt=query.prompt,
            seed=query.seed or 0,
            compatibility_key=query.compatibility_key,
            snapshots=self._finished.snapshots,
            depth=decision.donor_depth + 1 if resumed else 0,
            embedding=decision.embedding,
            frames=self._finished.frames,
            replaces=decision.replaces,
        )
        if self._saver.save(job):
            self._saved_entry_id = self._entry_id
        else:
            full = QueueFull("the queue of saves is full")
            self._journal.add(Fallback(SAVE, "", full.reason, full.message))
