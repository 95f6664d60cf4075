"""Jobs: what their callers learn when they end, and how little one caller can do to another."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator

import pytest

from skipstone_gateway.video_jobs import Job, JobState, Start, VideoJobs
from skipstone_shared.errors import NotFound, ResourceExhausted
from skipstone_shared.generation import Artifact
from skipstone_shared.orchestration import (
    CacheMode,
    GenerateEvent,
    GenerateFinished,
    HitTier,
    Provenance,
)

DONE = GenerateFinished(
    Provenance("r", HitTier.MISS, "", 1, 1, 1, CacheMode.READ_WRITE, "p"),
)


def making(size: int) -> Start:
    """A generation that makes so many bytes at once."""

    async def events() -> AsyncGenerator[GenerateEvent, None]:
        yield Artifact("video/mp4", bytes(size), 16, 16, 5)
        yield DONE

    return events


async def _never() -> AsyncGenerator[GenerateEvent, None]:
    await asyncio.Event().wait()
    yield DONE


def jobs_of(max_jobs: int = 8, max_bytes: int = 1 << 20) -> VideoJobs:
    clock = itertools.count()
    return VideoJobs(
        max_jobs=max_jobs,
        max_running=100,
        max_bytes=max_bytes,
        ttl_s=1e6,
        clock=lambda: float(next(clock)),
    )


def add(jobs: VideoJobs, owner: str, start: Start = _never) -> Job:
    return jobs.add(start, owner, "a fox", "", "auto", None)


async def made(jobs: VideoJobs, owner: str, size: int = 10) -> Job:
    job = add(jobs, owner, making(size))
    async for _ in jobs.watch(job):
        pass
    assert job.state is JobState.COMPLETED
    return job


def is_kept(jobs: VideoJobs, job: Job) -> bool:
    try:
        return jobs.get(job.job_id, job.owner) is job
    except NotFound:
        return False


def test_who_watches_a_job_learns_that_it_was_removed() -> None:
    async def run() -> list[JobState]:
        jobs = jobs_of()
        job = add(jobs, "a")
        seen: list[JobState] = []

        async def watch() -> None:
            async for now in jobs.watch(job):
                if now.state not in seen:
                    seen.append(now.state)

        watching = asyncio.create_task(watch())
        while JobState.IN_PROGRESS not in seen:
            await asyncio.sleep(0)
        await jobs.remove(job.job_id, "a")
        await asyncio.wait_for(watching, 10.0)
        assert job.error is not None
        return seen

    assert asyncio.run(run())[-1] is JobState.FAILED


def test_the_jobs_of_one_caller_do_not_push_out_those_of_another() -> None:
    async def run() -> None:
        jobs = jobs_of(max_jobs=6)
        mine = await made(jobs, "me")
        for _ in range(20):
            last = await made(jobs, "other")
        assert is_kept(jobs, mine)
        assert is_kept(jobs, last)
        assert len(jobs.list("other")) == 5

    asyncio.run(run())


def test_one_caller_cannot_take_all_places() -> None:
    async def run() -> None:
        jobs = jobs_of(max_jobs=4)
        for _ in range(2):
            add(jobs, "other")
        with pytest.raises(ResourceExhausted, match="2 of your jobs"):
            add(jobs, "other")
        assert (await made(jobs, "me")).artifact is not None
        await jobs.close()

    asyncio.run(run())


def test_what_finished_jobs_made_has_a_bound_and_the_one_who_has_most_loses_the_oldest() -> None:
    async def run() -> None:
        jobs = jobs_of(max_bytes=100)
        mine = await made(jobs, "me", 40)
        theirs = [await made(jobs, "other", 20) for _ in range(5)]
        assert [is_kept(jobs, job) for job in (mine, *theirs)] == [
            *(True, False, False),
            *(True, True, True),
        ]
        # Larger than all there is: it is there for its caller, and alone.
        large = await made(jobs, "me", 1000)
        assert [job for job in (mine, *theirs, large) if is_kept(jobs, job)] == [large]

    asyncio.run(run())
