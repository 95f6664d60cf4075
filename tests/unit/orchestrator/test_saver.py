"""Saving: order, what is dropped, what is taken back, and what a full queue does."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.orchestrator.fakes import HANG
from tests.unit.orchestrator.site import in_loop, running_site

from skipstone_shared.errors import Internal, Unavailable
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier

PROMPT = "a red circle on a blue background"
WRITE_ONLY = CacheOptions(mode=CacheMode.WRITE_ONLY)
GONE = Unavailable("connection refused")


@in_loop
async def test_an_entry_is_committed_before_it_can_be_found() -> None:
    """Found but uncommitted, it could vanish under the request that resumes from it."""
    async with running_site() as site:
        order: list[str] = []
        commit, upsert = site.store.commit_entry, site.index.upsert_entries

        async def committed(*args: object) -> object:
            order.append("commit")
            return await commit(*args)  # type: ignore[arg-type]

        async def upserted(*args: object) -> object:
            order.append("upsert")
            return await upsert(*args)  # type: ignore[arg-type]

        site.store.commit_entry = committed  # type: ignore[method-assign, assignment]
        site.index.upsert_entries = upserted  # type: ignore[method-assign, assignment]
        await site.generate(PROMPT, seed=1)
        assert order == ["commit", "upsert"]


@in_loop
async def test_the_vector_of_the_lookup_is_used_again() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        assert site.embedder.calls.count("embed_text") == 1


@in_loop
async def test_a_vector_that_was_missing_at_lookup_is_asked_for_once_more() -> None:
    async with running_site() as site:
        site.embedder.trouble["embed_text"] = Internal("hiccup")
        events = await site.events(PROMPT, seed=1)
        site.embedder.trouble.clear()
        await site.settle()
        assert site.embedder.calls.count("embed_text") == 2
        assert site.index.ids()
        assert events


@pytest.mark.parametrize("trouble", [GONE, HANG, Internal("a bug")], ids=str)
@pytest.mark.parametrize("method", ["embed_text", "commit_entry"])
@in_loop
async def test_a_save_that_fails_before_the_commit_is_counted_and_its_snapshots_removed(
    method: str, trouble: object
) -> None:
    short = {"call_timeout_s": 0.05} if trouble == HANG else {}
    async with running_site(**short) as site:
        service = site.embedder if method == "embed_text" else site.store
        service.trouble[method] = trouble  # type: ignore[assignment]
        told = (await site.generate(PROMPT, seed=1, cache=WRITE_ONLY)).provenance
        assert told.fallbacks == (), "the caller has been answered before"
        stats = await site.orchestrator.replica.stats("")
        assert (stats.saved_count, stats.dropped_saves) == (0, 1)
        assert not site.index.ids()
        if trouble is not GONE or method == "embed_text":
            assert not site.store.entries
        # With the store unreachable the lease ends the entry.
        assert not site.store.committed


@in_loop
async def test_an_upsert_that_fails_leaves_an_entry_that_its_own_request_still_finds() -> None:
    async with running_site() as site:
        site.index.trouble["upsert_entries"] = GONE
        await site.generate(PROMPT, seed=1)
        stats = await site.orchestrator.replica.stats("")
        assert stats.dropped_saves == 1
        assert (await site.generate(PROMPT, seed=1)).provenance.tier is HitTier.EXACT


@in_loop
async def test_saves_and_their_failures_are_off_the_callers_path() -> None:
    async with running_site() as site:
        site.store.trouble["commit_entry"] = HANG
        events = await site.events(PROMPT, seed=1)
        assert events, "the answer is there while the save hangs"
        assert site.orchestrator.saver.waiting_saves == 1
        site.orchestrator._settings = site.orchestrator._settings.model_copy(
            update={"save_drain_s": 0.0}
        )


@in_loop
async def test_a_full_queue_drops_the_save_counts_it_and_tells_the_caller() -> None:
    async with running_site(save_queue_size=1) as site:
        site.store.trouble["commit_entry"] = HANG
        prompts = [f"number {k} of many" for k in range(3)]
        told = []
        for seed, prompt in enumerate(prompts):
            events = await site.events(prompt, seed=seed, cache=WRITE_ONLY)
            told.append(events[-1].provenance)  # type: ignore[union-attr]
            for _ in range(20):  # let the worker take the first job and hang in it
                await asyncio.sleep(0)
        assert told[0].saved_entry_id
        assert told[1].saved_entry_id
        assert told[2].saved_entry_id == ""
        assert [(f.stage, f.reason) for f in told[2].fallbacks] == [("save", "QUEUE_FULL")]
        stats = await site.orchestrator.replica.stats("")
        assert (stats.dropped_saves, stats.queued_saves) == (1, 2)
        site.orchestrator._settings = site.orchestrator._settings.model_copy(
            update={"save_drain_s": 0.0}
        )


@in_loop
async def test_stopping_works_off_what_waits_to_be_saved() -> None:
    async with running_site() as site:
        for seed in range(5):
            await site.events(f"number {seed} of many", seed=seed, cache=WRITE_ONLY)
    assert len(site.index.ids()) == 5


@in_loop
async def test_a_request_whose_save_waits_can_be_repeated_without_a_second_save() -> None:
    async with running_site() as site:
        first = await site.events(PROMPT, seed=1, cache=WRITE_ONLY)
        second = await site.events(PROMPT, seed=1, cache=WRITE_ONLY)
        await site.settle()
        ids = {e[-1].provenance.saved_entry_id for e in (first, second)}  # type: ignore[union-attr]
        assert len(ids - {""}) == 1
        stats = await site.orchestrator.replica.stats("")
        assert stats.saved_count == 1


@in_loop
async def test_a_repeat_after_the_save_replaces_the_entry_and_does_not_double_it() -> None:
    async with running_site() as site:
        for _ in range(2):
            assert (await site.generate(PROMPT, seed=1, cache=WRITE_ONLY)).provenance.saved_entry_id
        assert len(site.index.ids()) == 1
