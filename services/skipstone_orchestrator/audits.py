"""Recomputes a share of the hits in full, when nobody waits for the executor, and measures drift.

An audit makes whichever of the two runs is not stored and has the executor compare the clean
latents; their bytes never come here. A closed tier is audited too, by resumed runs that nobody is
given, so that it can open again.

It starts only when the executor has nothing to do and gives way when anybody else comes: at once to
a request here, which meets at most the step that is being computed, and within a poll to others'.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import aclosing

from skipstone_orchestrator.activity import Activity
from skipstone_orchestrator.backends import Denoiser, EntryIndex, LatentEntries
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.drift_counts import (
    DROPPED,
    FAILED,
    GONE,
    INTERRUPTED,
    MEASURED,
    DriftCounts,
)
from skipstone_orchestrator.drift_guard import DriftGuard, ReuseTier
from skipstone_orchestrator.guard import within
from skipstone_shared.denoise_runs import (
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    ResumeFrom,
    SnapshotPlan,
)
from skipstone_shared.errors import NotFound, SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import DriftReport
from skipstone_shared.request_context import request_scope
from skipstone_shared.structured_logging import get_logger

_SHARES = 1_000_000
_MAX_TRIES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class AuditJob:
    """What one audit compares.

    Attributes:
        namespace: Partition of all stores.
        params: Parameters of the request, with its seed.
        compatibility_key: Key of its run.
        tier: Tier the donor was used in, or would have been.
        resume: How.
        was_served: Whether the caller got this, and not a full run in the place of a closed tier.
        resumed: Clean latent of the resumed run; None: it has to be run.
        full: Clean latent of the full run; None: it has to be run.
    """

    namespace: str
    params: GenerationParams
    compatibility_key: str
    tier: ReuseTier
    resume: ResumeFrom
    was_served: bool
    resumed: LatentRef | None = None
    full: LatentRef | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AuditSettings:
    """How audits are made.

    Attributes:
        share: Share of the hits that is audited; 0: none.
        queue_size: Audits that may wait; more are dropped.
        poll_s: Seconds between two looks at the executor.
        timeout_s: Seconds each call may take that runs no model.
        lease_s: Lease of what an audit writes.
    """

    share: float
    queue_size: int
    poll_s: float
    timeout_s: float
    lease_s: float


class _Unusable(Exception):
    """The executor did not make the run that an audit is about."""


class DriftAudits:
    """The audits of one replica. For one event loop."""

    def __init__(
        self,
        *,
        denoiser: Denoiser,
        index: EntryIndex,
        store: LatentEntries,
        guards: Guards,
        guard: DriftGuard,
        activity: Activity,
        settings: AuditSettings,
        draw_index: Callable[[int], int],
    ) -> None:
        """Creates them; `run` must be running for any to be made.

        Args:
            denoiser: Runs and compares.
            index: Has the vectors of donors.
            store: Has what audits write.
            guards: Guards of both stores.
            guard: Learns what was measured.
            activity: Tells whether this replica has requests.
            settings: The rest.
            draw_index: Gives one of 0 to n - 1 at random.
        """
        self._denoiser = denoiser
        self._index = index
        self._store = store
        self._guards = guards
        self._guard = guard
        self._activity = activity
        self._settings = settings
        self._draw_index = draw_index
        self._waiting: deque[tuple[AuditJob, int]] = deque()
        self._came = asyncio.Event()
        self._is_auditing = False
        self.counts = DriftCounts(guard.states)

    def consider(self, job: AuditJob) -> None:
        """Audits a share of what it is told, some time; never waits."""
        share = self._settings.share
        if not share or self._draw_index(_SHARES) >= share * _SHARES:
            return
        if len(self._waiting) >= self._settings.queue_size:
            self.counts.count(DROPPED)
            return
        self._waiting.append((job, 1))
        self._came.set()

    def report(self) -> DriftReport:
        """What was audited since the start, and what came of it."""
        return DriftReport(
            max_drift=self._guard.max_drift,
            tiers=self._guard.states(),
            audits=self.counts.outcomes(),
            audit_steps=self.counts.steps,
            queued_audits=len(self._waiting) + self._is_auditing,
            quarantined_donors=self._guard.quarantined_count,
        )

    async def run(self) -> None:
        """Audits for ever, while the executor is idle."""
        while True:
            await self._came.wait()
            if not await self._is_idle():
                await asyncio.sleep(self._settings.poll_s)
                continue
            job, tries = self._waiting.popleft()
            if not self._waiting:
                self._came.clear()
            self._is_auditing = True
            try:
                told = await self._unless_disturbed(job)
                # What was measured is taken in whole, whoever needs the executor meanwhile.
                outcome = told if isinstance(told, str) else await self._take_in(job, told)
            finally:
                self._is_auditing = False
            self._note(job, tries, outcome)

    def _note(self, job: AuditJob, tries: int, outcome: str) -> None:
        if outcome == INTERRUPTED and tries < _MAX_TRIES:
            self._waiting.appendleft((job, tries + 1))
            self._came.set()
        else:
            self.counts.count(outcome)

    async def _unless_disturbed(self, job: AuditJob) -> float | str:
        """The drift, or why there is none: given up when somebody else needs the executor."""
        audit = asyncio.create_task(self._drift_of(job))
        disturbed = asyncio.create_task(self._until_disturbed())
        try:
            await asyncio.wait({audit, disturbed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            audit.cancel()
            disturbed.cancel()
            await asyncio.gather(audit, disturbed, return_exceptions=True)
        return INTERRUPTED if audit.cancelled() else audit.result()

    async def _is_idle(self) -> bool:
        return not self._activity.is_busy and await self._others(0) is False

    async def _until_disturbed(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_s):
                    await self._activity.until_busy()
                    return
            if await self._others(1):
                return

    async def _others(self, own: int) -> bool | None:
        """Whether the executor has more runs than our own; None when it does not say."""
        try:
            stats = await within(self._denoiser.get_stats, self._settings.timeout_s, "denoise")
        except SkipstoneError:
            return None
        return stats.running_count + stats.queued_count > own

    async def _drift_of(self, job: AuditJob) -> float | str:
        try:
            with request_scope():
                drift = await self._measured(job)
        except NotFound:
            return GONE
        except (_Unusable, SkipstoneError) as error:
            get_logger().warning("drift audit failed", tier=job.tier.name, error=str(error))
            return FAILED
        return drift if math.isfinite(drift) else FAILED

    async def _take_in(self, job: AuditJob, drift: float) -> str:
        """Counts a drift. A donor that was used badly is set aside, with what came of it."""
        self.counts.observe(job.tier, drift)
        self._guard.record(job.tier, drift)
        if drift > self._guard.max_drift and job.was_served:
            await self._quarantine(job)
            await self._forget(job)
        return MEASURED

    async def _measured(self, job: AuditJob) -> float:
        name = "a" + uuid.uuid4().hex
        written = [name + "f", name + "r"]
        try:
            full = job.full or await self._made(job, written[0], None)
            resumed = job.resumed or await self._made(job, written[1], job.resume)
            return await within(
                lambda: self._denoiser.compare_latents(resumed, full, job.namespace),
                self._settings.timeout_s,
                "denoise",
            )
        finally:
            # What cannot be removed now goes with its lease.
            with contextlib.suppress(SkipstoneError):
                await self._guards.store.call(
                    lambda: self._store.delete_entries(job.namespace, written),
                    self._settings.timeout_s,
                )

    async def _made(self, job: AuditJob, entry_id: str, resume: ResumeFrom | None) -> LatentRef:
        """Runs one side and returns its clean latent."""
        request = DenoiseRequest(
            job.namespace,
            job.params,
            resume=resume,
            snapshots=SnapshotPlan(entry_id, lease_s=self._settings.lease_s),
            expected_compatibility_key=job.compatibility_key,
            wants_artifact=False,
        )
        async with aclosing(self._denoiser.run(request)) as events:
            async for event in events:
                if isinstance(event, DenoiseStarted) and event.refusal_reason:
                    raise _Unusable(event.refusal_message)
                if isinstance(event, DenoiseFinished):
                    self.counts.count_steps(event.executed_steps)
                    if event.snapshots:
                        return event.snapshots[-1]
        raise _Unusable("the run stored no clean latent")

    async def _forget(self, job: AuditJob) -> None:
        """Removes the bad result itself, which would go on answering exact repeats."""
        resumed = job.resumed
        if resumed is None:
            return
        try:
            await self._guards.store.call(
                lambda: self._store.delete_entries(job.namespace, [resumed.entry_id]),
                self._settings.timeout_s,
            )
        except SkipstoneError as error:
            get_logger().warning("bad result stays in the store", error=str(error))

    async def _quarantine(self, job: AuditJob) -> None:
        donor = job.resume.donor
        self._guard.quarantine(job.namespace, donor.entry_id)
        try:
            await self._guards.index.call(
                lambda: self._index.delete_entries(job.namespace, [donor.entry_id]),
                self._settings.timeout_s,
            )
        except SkipstoneError as error:
            get_logger().warning("bad donor stays in the index", error=str(error))
