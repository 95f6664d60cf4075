"""A caller that goes away: the run stops within one step and nothing half-saved is ever served."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.orchestrator.site import in_loop, running_site

from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.orchestration import (
    CacheOptions,
    GenerateAccepted,
    GenerateEvent,
    GenerateFinished,
    GenerateStarted,
    HitTier,
)

PROMPT = "a red circle on a blue background"
KEYS = CacheOptions(key_steps=(1, 2, 3))


def is_step(index: int, event: GenerateEvent) -> bool:
    return isinstance(event, StepProgress) and event.step_index == index


STOPS = {
    "accepted": lambda e: isinstance(e, GenerateAccepted),
    "started": lambda e: isinstance(e, GenerateStarted),
    **{f"step {k}": (lambda e, k=k: is_step(k, e)) for k in range(10)},
    "artifact": lambda e: isinstance(e, Artifact),
}


@pytest.mark.parametrize("stop", STOPS)
@in_loop
async def test_closing_the_stream_at_any_event_saves_nothing(stop: str) -> None:
    async with running_site() as site:
        events = site.stream(PROMPT, seed=1, cache=KEYS)
        async for event in events:
            if STOPS[stop](event):
                break
        await events.aclose()
        await site.settle()
        assert not site.store.entries
        assert not site.index.ids()
        if stop.startswith("step"):
            assert site.executor.stopped_at == int(stop.removeprefix("step "))
        told = (await site.generate(PROMPT, seed=1)).provenance
        assert (told.tier, told.fallbacks) == (HitTier.MISS, ())
        assert told.saved_entry_id


@in_loop
async def test_cancelling_the_task_in_the_middle_of_a_step_saves_nothing() -> None:
    """gRPC cancels the handler's task when a caller disconnects."""
    async with running_site() as site:
        site.executor.gate = asyncio.Event()
        task = asyncio.create_task(site.events(PROMPT, seed=1, cache=KEYS))
        while not site.executor.requests:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await site.settle()
        assert not site.store.entries


@pytest.mark.parametrize("method", ["embed_text", "get_entry", "search_entries", "plan"])
@in_loop
async def test_cancelling_during_a_lookup_leaves_every_breaker_closed(method: str) -> None:
    async with running_site() as site:
        services = [site.embedder, site.store, site.index, site.executor]
        service = next(s for s in services if hasattr(s, method))
        if method == "get_entry":
            service = site.store
        service.trouble[method] = "hang"
        task = asyncio.create_task(site.events(PROMPT, seed=1))
        while method not in service.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        service.trouble.clear()
        assert (await site.generate(PROMPT, seed=1)).provenance.fallbacks == ()


@in_loop
async def test_an_abandoned_repeat_does_not_take_away_what_is_already_saved() -> None:
    async with running_site() as site:
        first = await site.generate(PROMPT, seed=1)
        events = site.stream(PROMPT, seed=1, cache=CacheOptions(allow_exact=False, key_steps=(7,)))
        async for event in events:
            if isinstance(event, StepProgress):
                break
        await events.aclose()
        await site.settle()
        again = await site.generate(PROMPT, seed=1)
        assert again.provenance.tier is HitTier.EXACT
        assert again.artifact == first.artifact


@in_loop
async def test_of_two_equal_requests_at_once_one_is_saved_even_when_the_other_is_abandoned() -> (
    None
):
    async with running_site() as site:
        site.executor.gate = asyncio.Event()
        kept = asyncio.create_task(site.events(PROMPT, seed=1))
        while len(site.executor.requests) < 1:
            await asyncio.sleep(0)
        # Other options, so that it does not share the run of the first.
        left = asyncio.create_task(site.events(PROMPT, seed=1, cache=CacheOptions(top_k=3)))
        while len(site.executor.requests) < 2:
            await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        site.executor.gate.set()
        finished = (await kept)[-1]
        await site.settle()
        assert isinstance(finished, GenerateFinished)
        assert site.index.ids() == [finished.provenance.saved_entry_id]
        assert (await site.generate(PROMPT, seed=1)).provenance.tier is HitTier.EXACT


@in_loop
async def test_a_snapshot_that_arrives_after_the_caller_left_is_removed_too() -> None:
    async with running_site(late_write_s=0.05) as site:
        events = site.stream(PROMPT, seed=1, cache=KEYS)
        async for event in events:
            if is_step(3, event):
                break
        entry_id = site.executor.requests[-1].snapshots.entry_id
        await events.aclose()
        await site.settle()
        key = site.executor.requests[-1].expected_compatibility_key
        site.store.write("default", entry_id, 3, 10, "late", compatibility_key=key)
        while site.store.entries:
            await asyncio.sleep(0.001)


@in_loop
async def test_the_second_look_spares_the_same_request_that_was_sent_again() -> None:
    async with running_site(late_write_s=1000.0) as site:
        events = site.stream(PROMPT, seed=1, cache=KEYS)
        async for event in events:
            if is_step(3, event):
                break
        await events.aclose()
        await site.settle()
        site.executor.gate, site.executor.gate_from = asyncio.Event(), 5
        again = asyncio.create_task(site.generate(PROMPT, seed=1, cache=KEYS))
        while len(site.executor.requests) < 2:
            await asyncio.sleep(0)
        entry_id = site.executor.requests[0].snapshots.entry_id
        site.orchestrator.saver._discard_late("default", entry_id)  # as its timer would
        site.executor.gate.set()
        saved = (await again).provenance.saved_entry_id
        assert set(site.store.entries[("default", saved)]) == {1, 2, 3, 10}
