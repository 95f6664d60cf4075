"""Equal requests at the same time run once, and none suffers from what happens to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_shared.errors import Internal, SkipstoneError
from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    GenerateEvent,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    Provenance,
)

PROMPT = "a red circle on a blue background"
Events = list[GenerateEvent]


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


async def hold_after_step(site: Site, step: int, count: int, **request: Any) -> list[Any]:
    """Requests that wait in the middle of what the executor does."""
    site.executor.gate, site.executor.gate_from = asyncio.Event(), step
    tasks = [asyncio.create_task(site.events(PROMPT, seed=1, **request)) for _ in range(count)]
    await until(lambda: site.executor.requests)
    for _ in range(50):
        await asyncio.sleep(0)
    return tasks


def release(site: Site) -> None:
    assert site.executor.gate is not None
    site.executor.gate.set()


def provenance_of(events: Events) -> Provenance:
    assert isinstance(events[-1], GenerateFinished)
    return events[-1].provenance


def picture_of(events: Events) -> bytes:
    return next(e for e in events if isinstance(e, Artifact)).data


async def overtaken(site: Site, slow: AsyncIterator[GenerateEvent]) -> Provenance:
    """What an equal request is told that came later; the first one has stopped at the picture."""

    async def until_the_picture() -> None:
        async for event in slow:
            if isinstance(event, Artifact):
                return

    site.executor.gate, site.executor.gate_from = asyncio.Event(), 3
    pulled = asyncio.create_task(until_the_picture())
    await until(lambda: site.executor.requests)
    quick = asyncio.create_task(site.events(PROMPT, seed=1))
    for _ in range(50):
        await asyncio.sleep(0)
    release(site)
    await pulled
    return provenance_of(await quick)


async def abandon(task: asyncio.Task[Events]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_loop
async def test_equal_requests_at_once_run_once_and_say_so() -> None:
    async with running_site() as site:
        tasks = await hold_after_step(site, 5, 3)
        release(site)
        first, *others = await asyncio.gather(*tasks)
        await site.settle()
        assert len(site.executor.requests) == 1
        run = provenance_of(first)
        assert (run.tier, run.executed_steps, run.joined_request_id) == (HitTier.MISS, 10, "")
        for events in others:
            told = provenance_of(events)
            assert (told.tier, told.reason) == (HitTier.EXACT, "SINGLE_FLIGHT")
            assert (told.executed_steps, told.skip_steps) == (0, 10)
            assert told.joined_request_id == run.request_id != told.request_id
            assert (told.donor_entry_id, told.saved_entry_id) == (run.saved_entry_id, "")
            assert picture_of(events) == picture_of(first)
            steps = [e.step_index for e in events if isinstance(e, StepProgress)]
            assert steps == list(range(10)), "progress is for all, from the start"
        stats = await site.orchestrator.replica.stats("")
        assert (stats.joined_requests, stats.executed_steps) == (2, 10)
        assert site.index.ids() == [run.saved_entry_id]


@in_loop
async def test_when_the_first_leaves_the_run_goes_on_for_the_second() -> None:
    async with running_site() as site:
        first, second = await hold_after_step(site, 5, 2)
        await abandon(first)
        release(site)
        events = await second
        await site.settle()
        told = provenance_of(events)
        assert len(site.executor.requests) == 1
        assert site.executor.stopped_at is None
        assert (told.tier, told.executed_steps, told.joined_request_id) == (HitTier.MISS, 10, "")
        assert site.index.ids() == [told.saved_entry_id], "the run counts for it now"
        assert (await site.orchestrator.replica.stats("")).executed_steps == 10


@in_loop
async def test_a_run_counts_though_the_first_leaves_between_its_end_and_the_last_event() -> None:
    async with running_site() as site:
        async with aclosing(site.stream(PROMPT, seed=1)) as first:
            told = await overtaken(site, first)
        assert (told.tier, told.executed_steps) == (HitTier.MISS, 10)
        assert len(site.executor.requests) == 1


@in_loop
async def test_who_joined_is_told_the_request_that_the_run_counts_for() -> None:
    async with running_site() as site:
        first, *others = await hold_after_step(site, 5, 3)
        await abandon(first)
        release(site)
        owner, joined = [provenance_of(await other) for other in others]
        assert owner.joined_request_id == ""
        assert joined.joined_request_id == owner.request_id


@in_loop
async def test_a_slow_first_joins_the_one_that_was_told_all_of_it_before() -> None:
    async with running_site() as site:
        async with aclosing(site.stream(PROMPT, seed=1)) as slow:
            owner = await overtaken(site, slow)
            told = [event async for event in slow]
        joined = provenance_of(told)
        assert (joined.reason, joined.joined_request_id) == ("SINGLE_FLIGHT", owner.request_id)
        assert joined.request_id != owner.request_id


@in_loop
async def test_when_all_have_left_the_run_stops_and_nothing_is_kept() -> None:
    async with running_site() as site:
        tasks = await hold_after_step(site, 5, 2)
        for task in tasks:
            await abandon(task)
        await site.settle()
        assert not site.store.entries
        site.executor.gate = None
        assert (await site.generate(PROMPT, seed=1)).provenance.tier is HitTier.MISS


@in_loop
async def test_a_follower_that_leaves_takes_nothing_from_the_others() -> None:
    async with running_site() as site:
        first, second, third = await hold_after_step(site, 5, 3)
        await abandon(second)
        release(site)
        assert provenance_of(await first).tier is HitTier.MISS
        assert provenance_of(await third).reason == "SINGLE_FLIGHT"


@in_loop
async def test_a_run_that_fails_fails_for_one_and_the_others_go_on_with_another() -> None:
    async with running_site() as site:
        tasks = await hold_after_step(site, 5, 3)
        site.executor.fail_at_step = (7, Internal("the model failed"))
        await until(lambda: len(site.executor.requests) == 1)
        release(site)
        with pytest.raises(Internal):
            await tasks[0]
        site.executor.fail_at_step = None
        second, third = await asyncio.gather(*tasks[1:])
        assert len(site.executor.requests) == 2
        assert provenance_of(second).tier is HitTier.MISS
        assert provenance_of(third).reason == "SINGLE_FLIGHT"
        starts = [e for e in second if isinstance(e, GenerateStarted)]
        assert len(starts) == 2, "the new run begins with its first event"


@in_loop
async def test_nobody_waits_for_more_than_two_runs_that_fail() -> None:
    async with running_site() as site:
        site.executor.fail_at_step = (7, Internal("the model failed"))
        tasks = await hold_after_step(site, 5, 4)
        release(site)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, SkipstoneError) for end in ends)
        assert len(site.executor.requests) == 2


@pytest.mark.parametrize(
    "cache",
    [
        CacheOptions(mode=CacheMode.OFF),
        CacheOptions(mode=CacheMode.WRITE_ONLY),
        CacheOptions(allow_exact=False),
    ],
)
@in_loop
async def test_who_may_not_read_the_stored_result_gets_no_other_run_either(
    cache: CacheOptions,
) -> None:
    async with running_site() as site:
        tasks = await hold_after_step(site, 5, 2, cache=cache)
        assert len(site.executor.requests) == 2
        release(site)
        for events in await asyncio.gather(*tasks):
            assert provenance_of(events).joined_request_id == ""


@in_loop
async def test_requests_without_a_seed_each_get_a_picture_of_their_own() -> None:
    async with running_site() as site:
        one, two = await asyncio.gather(site.events(PROMPT), site.events(PROMPT))
        assert picture_of(one) != picture_of(two)
        assert provenance_of(one).joined_request_id == provenance_of(two).joined_request_id == ""


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "another"},
        {"steps": 11},
        {"negative_prompt": "text"},
        {"cache": CacheOptions(reproducible=True)},
    ],
)
@in_loop
async def test_requests_that_differ_in_anything_run_apart(other: dict[str, Any]) -> None:
    async with running_site() as site:
        (task,) = await hold_after_step(site, 5, 1)
        beside = asyncio.create_task(site.events(PROMPT, seed=1, **other))
        await until(lambda: len(site.executor.requests) == 2)
        release(site)
        for events in await asyncio.gather(task, beside):
            assert provenance_of(events).joined_request_id == ""


@in_loop
async def test_equal_requests_at_once_decode_a_stored_result_once() -> None:
    async with running_site() as site:
        stored = await site.generate(PROMPT, seed=1)
        ends = await asyncio.gather(*(site.events(PROMPT, seed=1) for _ in range(3)))
        assert {picture_of(events) for events in ends} == {stored.artifact.data}
        assert len(site.executor.requests) == 2
        entry_ids = {provenance_of(events).donor_entry_id for events in ends}
        assert entry_ids == {stored.provenance.saved_entry_id}


@in_loop
async def test_a_new_model_met_by_all_at_once_is_planned_anew_by_all() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=9)
        site.executor.restart("another")
        one, two = await asyncio.gather(*(site.events(PROMPT, seed=1) for _ in range(2)))
        assert picture_of(one) == picture_of(two)
        assert {provenance_of(e).reason for e in (one, two)} == {"NO_CANDIDATE", "SINGLE_FLIGHT"}
