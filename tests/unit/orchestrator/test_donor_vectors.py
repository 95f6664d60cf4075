"""Donors that are found by what they show: a prompt against frames."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.orchestrator.fakes import HANG, BagOfWords, MemoryIndex, fingerprint
from tests.unit.orchestrator.site import Site, in_loop, restarted, running_site

from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.outside_engines import LookupCall, SaveCall
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.errors import InvalidArgument, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier

PROMPT = "sunset mood"
SHOWN = "a red circle on a blue background"
FRAMES = "frames"
PRINT = fingerprint(GenerationParams(PROMPT))
SIGMAS = tuple(1 - k / 10 for k in range(11))


def model_ids(index: MemoryIndex) -> list[str]:
    entries = (e for part in index.partitions.values() for e in part.values())
    return [entry.entry.embedding_model_id for entry in entries]


def frame(shown: str) -> EncodedImage:
    return EncodedImage("image/jpeg", shown.encode())


@in_loop
async def test_a_prompt_finds_what_shows_it_whatever_it_was_asked_by() -> None:
    async with running_site(donor_vectors=FRAMES, donor_frames=4) as site:
        site.executor.shows[PROMPT] = SHOWN
        await site.generate(PROMPT, seed=1)
        assert len(site.embedder.seen[0]) == 4
        found = (await site.generate(SHOWN, seed=2)).provenance
        assert found.tier is HitTier.APPROXIMATE
        assert found.donor_prompt == PROMPT
        assert (found.similarity or 0) > 0.99
        assert model_ids(site.index) == [f"{BagOfWords.model_id}#frames"] * len(site.index.ids())


@in_loop
async def test_prompts_are_not_compared_with_prompts_then() -> None:
    async with running_site(donor_vectors=FRAMES) as site:
        site.executor.shows[PROMPT] = SHOWN
        await site.generate(PROMPT, seed=1)
        assert (await site.generate(PROMPT, seed=2)).provenance.tier is HitTier.MISS
        exact = (await site.generate(PROMPT, seed=1)).provenance
        assert exact.tier is HitTier.EXACT


@in_loop
async def test_nobody_samples_frames_where_prompts_are_compared_or_nothing_is_saved() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
    async with running_site(donor_vectors=FRAMES) as reading:
        await reading.generate(PROMPT, seed=1, cache=CacheOptions(mode=CacheMode.READ_ONLY))
    requests = [*site.executor.requests, *reading.executor.requests]
    assert [request.sample_frames for request in requests] == [0, 0]
    assert site.embedder.seen == reading.embedder.seen == []


@in_loop
async def test_frames_that_no_model_reads_do_not_cost_the_entry() -> None:
    async with running_site(donor_vectors=FRAMES) as site:
        site.embedder.is_blind = True
        await site.generate(PROMPT, seed=1)
        assert model_ids(site.index) == [BagOfWords.model_id]
        assert (await site.generate(PROMPT, seed=1)).provenance.tier is HitTier.EXACT
        assert (await site.generate(PROMPT, seed=2)).provenance.tier is HitTier.MISS
        states = site.orchestrator.replica.service_states()
        assert {state.breaker.value for state in states} == {"closed"}


@in_loop
async def test_a_model_that_is_slow_to_see_is_asked_for_prompts_all_the_same() -> None:
    async with running_site(donor_vectors=FRAMES, frames_timeout_s=0.02) as site:
        site.embedder.trouble["embed"] = HANG
        for seed in range(4):
            told = (await site.generate(PROMPT, seed=seed)).provenance
            assert told.fallbacks == ()
        stats = await site.orchestrator.replica.stats("")
        assert stats.dropped_saves == 4
        assert {state.breaker.value for state in stats.services} == {"closed"}


@in_loop
async def test_an_embedding_service_that_is_away_drops_the_save_as_it_does_with_prompts() -> None:
    async with running_site(donor_vectors=FRAMES) as site:
        site.embedder.trouble["embed"] = Unavailable("gone")
        told = (await site.generate(PROMPT, seed=1)).provenance
        assert told.tier is HitTier.MISS
        stats = await site.orchestrator.replica.stats("")
        assert (stats.saved_count, stats.dropped_saves) == (0, 1)
        assert site.store.entries == {}


@in_loop
async def test_engines_are_told_how_many_frames_to_save_and_are_found_by_them() -> None:
    async with running_site(donor_vectors=FRAMES, donor_frames=3) as site:
        engines = site.orchestrator.engines
        asked = LookupCall("", PROMPT, PRINT, SIGMAS, seed=1)
        told = await engines.look_up(asked)
        assert told.donor_frames == 3
        site.store.write(
            "default",
            told.entry_id,
            10,
            10,
            "latent",
            compatibility_key=told.compatibility_key,
        )
        call = SaveCall("", told.entry_id, PROMPT, 1, PRINT, frames=(frame(SHOWN),))
        await engines.save(call)
        near = await engines.look_up(LookupCall("", SHOWN, PRINT, SIGMAS, seed=2))
        assert near.tier is HitTier.APPROXIMATE
        assert near.donor is not None
        assert near.donor.entry_id == told.entry_id
        read_only = CacheOptions(mode=CacheMode.READ_ONLY)
        only = await engines.look_up(LookupCall("", SHOWN, PRINT, SIGMAS, options=read_only))
        assert only.donor_frames == 0
        bad = dataclasses.replace(call, frames=(EncodedImage("image/webp", b"x"),))
        with pytest.raises(InvalidArgument) as refused:
            await engines.save(bad)
        assert refused.value.field == "frames[0].media_type"


@in_loop
async def test_going_back_to_prompts_finds_what_is_saved_from_then_on() -> None:
    async with running_site(donor_vectors=FRAMES) as site:
        await site.generate(SHOWN, seed=1)
        async with restarted(site) as again:
            assert (await again.generate(SHOWN, seed=2)).provenance.tier is HitTier.MISS
            assert (await again.generate(SHOWN, seed=3)).provenance.tier is HitTier.APPROXIMATE


@in_loop
async def test_the_capabilities_say_by_what_donors_are_found() -> None:
    by_frames, by_prompts = Site(donor_vectors=FRAMES, donor_frames=5), Site()
    told = [await site.orchestrator.replica.capabilities() for site in (by_frames, by_prompts)]
    assert [each.donor_frames for each in told] == [5, 0]


def test_the_least_similarity_is_that_of_what_is_compared() -> None:
    def least(**settings: Any) -> float:
        return OrchestratorSettings(**settings).policy().min_similarity

    assert (least(), least(donor_vectors=FRAMES)) == (0.3, 0.0)
    assert least(min_similarity=0.5) == least(min_similarity=0.5, donor_vectors=FRAMES) == 0.5


def test_frames_without_a_gate_are_refused() -> None:
    with pytest.raises(ValueError, match="donor_vectors frames needs gate rerank"):
        OrchestratorSettings(donor_vectors=FRAMES, gate="similarity")
    with pytest.raises(ValueError, match="donor_frames"):
        OrchestratorSettings(donor_frames=17)
