"""Generations that outlive the request that asked for them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum

from skipstone_shared.errors import Cancelled, Internal, NotFound, ResourceExhausted, SkipstoneError
from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.orchestration import GenerateEvent, GenerateFinished, Provenance
from skipstone_shared.structured_logging import get_logger

Start = Callable[[], AsyncGenerator[GenerateEvent, None]]


class JobState(Enum):
    """How far a job is, in OpenAI's words."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(slots=True)
class Job:
    """One video.

    Attributes:
        job_id: Its id, 128 random bits.
        owner: Token of the caller; nobody else sees the job.
        prompt: What to show.
        model: As the caller named it.
        size: As the caller named it.
        seconds: As the caller named it; None where it gave frames or nothing.
        created_at: Seconds since the epoch.
    """

    job_id: str
    owner: str
    prompt: str
    model: str
    size: str
    seconds: float | None
    created_at: float
    state: JobState = JobState.QUEUED
    steps_done: int = 0
    steps: int = 0
    completed_at: float | None = None
    artifact: Artifact | None = None
    provenance: Provenance | None = None
    error: SkipstoneError | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in (JobState.COMPLETED, JobState.FAILED)


class VideoJobs:
    """Runs jobs, a few at a time, and remembers what became of them. For one event loop.

    Jobs live in this process: a gateway that ends takes them with it, and what its callers then get
    is NOT_FOUND. Where there is no room for all, those of the caller who has most go first, and no
    caller has more than half of what may wait and run.
    """

    def __init__(
        self,
        *,
        max_jobs: int,
        max_running: int,
        max_bytes: int,
        ttl_s: float,
        clock: Callable[[], float],
    ) -> None:
        """Creates it, inside the event loop.

        Args:
            max_jobs: Jobs that are remembered.
            max_running: Jobs that run at a time.
            max_bytes: Bytes of what finished jobs made; the one that was made last is kept in any
                case.
            ttl_s: Seconds that a job is remembered once it is over.
            clock: Seconds since the epoch.
        """
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._running = asyncio.Semaphore(max_running)
        self._ttl_s = ttl_s
        self._clock = clock
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def expires_at(self, job: Job) -> float | None:
        """When a job is forgotten, in seconds since the epoch; None while it is not over."""
        return None if job.completed_at is None else job.completed_at + self._ttl_s

    def add(
        self, start: Start, owner: str, prompt: str, model: str, size: str, seconds: float | None
    ) -> Job:
        """Starts a job.

        Args:
            start: Begins the generation.
            owner: Token of the caller.
            prompt: What to show.
            model: As the caller named it.
            size: As the caller named it.
            seconds: As the caller named it.

        Raises:
            ResourceExhausted: Too many jobs wait or run, of all or of this caller.
        """
        self._forget()
        unfinished = sum(job.owner == owner and not job.is_over for job in self._jobs.values())
        if unfinished >= max(1, self._max_jobs // 2):
            raise ResourceExhausted(f"{unfinished} of your jobs wait or run; try again later")
        if len(self._jobs) >= self._max_jobs:
            over = self._least_missed(lambda job: 1)
            if over is None:
                raise ResourceExhausted(f"{self._max_jobs} jobs wait or run; try again later")
            del self._jobs[over.job_id]
        job_id = f"video_{secrets.token_hex(16)}"
        job = Job(job_id, owner, prompt, model, size, seconds, self._clock())
        self._jobs[job_id] = job
        self._tasks[job_id] = asyncio.create_task(self._run(job, start))
        return job

    def get(self, job_id: str, owner: str) -> Job:
        """A job of a caller.

        Raises:
            NotFound: There is none, or it is another caller's.
        """
        self._forget()
        job = self._jobs.get(job_id)
        if job is None or not secrets.compare_digest(job.owner.encode(), owner.encode()):
            raise NotFound(f"there is no job {job_id}", field="video_id")
        return job

    def list(self, owner: str) -> list[Job]:
        """The jobs of a caller, newest first."""
        self._forget()
        return [job for job in reversed(self._jobs.values()) if job.owner == owner]

    async def remove(self, job_id: str, owner: str) -> Job:
        """Ends a job and forgets it."""
        job = self.get(job_id, owner)
        await self._end(job_id)
        self._jobs.pop(job_id, None)
        return job

    async def watch(self, job: Job) -> AsyncIterator[Job]:
        """Gives the job now and after each change, until it is over."""
        while True:
            seen = job.state, job.steps_done
            yield job
            if job.is_over:
                return
            async with job.changed:
                await job.changed.wait_for(
                    lambda seen=seen: (job.state, job.steps_done) != seen  # type: ignore[misc]
                )

    async def close(self) -> None:
        """Ends all jobs."""
        for job_id in list(self._tasks):
            await self._end(job_id)

    async def _run(self, job: Job, start: Start) -> None:
        try:
            async with self._running:
                await self._change(job, JobState.IN_PROGRESS)
                async with aclosing(start()) as events:
                    async for event in events:
                        await self._note(job, event)
            if job.artifact is None or job.provenance is None:
                raise Internal("the generation ended without a result")
            await self._over(job, JobState.COMPLETED)
        except SkipstoneError as error:
            job.error = error
            await self._over(job, JobState.FAILED)
        except Exception as error:  # noqa: BLE001 - nobody waits for this task
            get_logger().error("unhandled exception", job=job.job_id, exc_info=error)
            job.error = Internal()
            await self._over(job, JobState.FAILED)
        except asyncio.CancelledError:
            # Whoever watches must learn that nothing more comes.
            job.error = Cancelled("the job was ended")
            await self._over(job, JobState.FAILED)
            raise
        finally:
            self._tasks.pop(job.job_id, None)

    async def _note(self, job: Job, event: GenerateEvent) -> None:
        match event:
            case StepProgress():
                job.steps = event.num_inference_steps
                job.steps_done = event.step_index + 1
                await self._change(job, JobState.IN_PROGRESS)
            case Artifact():
                job.artifact = event
            case GenerateFinished():
                job.provenance = event.provenance
            case _:
                pass

    async def _over(self, job: Job, state: JobState) -> None:
        job.completed_at = self._clock()
        await self._change(job, state)
        while sum(map(_size_bytes, self._jobs.values())) > self._max_bytes:
            other = self._least_missed(_size_bytes, besides=job)
            if other is None:
                return
            del self._jobs[other.job_id]

    def _least_missed(self, weight: Callable[[Job], int], besides: Job | None = None) -> Job | None:
        """The oldest finished job of the caller whose finished jobs weigh most."""
        weights: Counter[str] = Counter()
        oldest: dict[str, Job] = {}
        for job in self._jobs.values():
            if job.is_over and job is not besides and weight(job):
                weights[job.owner] += weight(job)
                oldest.setdefault(job.owner, job)
        return oldest[max(weights, key=weights.__getitem__)] if weights else None

    async def _change(self, job: Job, state: JobState) -> None:
        async with job.changed:
            job.state = state
            job.changed.notify_all()

    async def _end(self, job_id: str) -> None:
        task = self._tasks.get(job_id)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _forget(self) -> None:
        now = self._clock()
        for job in list(self._jobs.values()):
            expires_at = self.expires_at(job)
            if expires_at is not None and expires_at <= now:
                del self._jobs[job.job_id]


def _size_bytes(job: Job) -> int:
    return 0 if job.artifact is None else len(job.artifact.data)
