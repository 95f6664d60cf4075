"""An explanation tells what a generation would get, and leaves no trace."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_orchestrator.cache_options import CacheUse
from skipstone_orchestrator.decision import Decision, Query
from skipstone_orchestrator.explanations import explain_candidate, explain_decision
from skipstone_orchestrator.generation_calls import GenerationCall
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.reuse_policy import Limits, ReusePolicy
from skipstone_shared.errors import InvalidArgument, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    Candidate,
    Entry,
    Explanation,
    HitTier,
    ReuseKind,
)

PROMPT = "a b c d e f g h i j k l m n o p q r s t"
NEAR = PROMPT.replace("t", "u")
FAR = "one two three four five six seven eight nine ten"


async def explain(
    site: Site, prompt: str = PROMPT, *, steps: int = 10, seed: int | None = 1, **options: Any
) -> Explanation:
    params = GenerationParams(prompt, num_inference_steps=steps, seed=seed)
    call = GenerationCall("", params, CacheOptions(**options))
    return await site.orchestrator.explainer.explain(call)


@in_loop
async def test_it_decides_what_the_generation_then_does() -> None:
    async with running_site() as site:
        await site.generate(NEAR, seed=2)
        told = await explain(site)
        done = (await site.generate(PROMPT, seed=1)).provenance
        decision = told.decision
        assert (decision.tier, decision.reason) == (done.tier, done.reason)
        assert done.tier is HitTier.APPROXIMATE
        assert (decision.skip_steps, told.start_sigma) == (done.skip_steps, done.start_sigma)
        assert decision.reuse_kind is done.reuse_kind
        assert decision.similarity == done.similarity
        assert decision.compatibility_key == done.compatibility_key
        assert told.num_inference_steps == done.num_inference_steps
        assert told.embedding_model_id == "bag-of-words"
        assert {"build_query", "lookup", "total"} <= set(told.stage_times_s)
        assert f"skips {done.skip_steps} of 10 steps" in told.explanation


@in_loop
async def test_it_runs_writes_and_counts_nothing() -> None:
    async with running_site() as site:
        await site.generate(NEAR, seed=2)
        await site.generate(PROMPT + " v", seed=3)
        stats = await site.orchestrator.replica.stats("")
        entries = copy.deepcopy(site.store.entries)
        ids = site.index.ids()
        for service in (site.index, site.store, site.executor):
            service.calls.clear()
        for seed in (None, 1, 2):
            await explain(site, seed=seed)
        await site.settle()
        assert site.store.entries == entries
        assert site.index.ids() == ids
        assert await site.orchestrator.replica.stats("") == stats
        assert {"run"} & set(site.executor.calls) == set()
        assert set(site.store.calls) <= {"get_entry", "get_stats"}
        assert set(site.index.calls) <= {"search_entries", "get_stats"}


@in_loop
async def test_an_exact_request_is_shown_its_candidates_too() -> None:
    async with running_site() as site:
        await site.generate(NEAR, seed=2)
        saved = (await site.generate(FAR, seed=1)).provenance.saved_entry_id
        told = await explain(site, FAR)
        assert (told.decision.tier, told.decision.entry_id) == (HitTier.EXACT, saved)
        assert "stored" in told.explanation
        assert [c.entry.prompt for c in told.decision.candidates] == [FAR, NEAR]
        own, other = (c.explanation for c in told.decision.candidates)
        assert own.startswith("the result of this very request, which is decoded; as a donor: ")
        assert "this very request" not in other


@in_loop
async def test_every_candidate_is_told_with_its_reason() -> None:
    async with running_site() as site:
        await site.generate(NEAR, seed=2)
        await site.generate(FAR, seed=3)
        candidates = (await explain(site)).decision.candidates
        assert [c.reason for c in candidates] == ["DONOR_RESUMED", "BELOW_MIN_SIMILARITY"]
        assert all(c.explanation for c in candidates)
        (refused,) = [c for c in candidates if not c.skip_steps]
        assert "0.000" in refused.explanation


@in_loop
async def test_a_donor_whose_latents_are_gone_is_told_and_not_repaired() -> None:
    async with running_site() as site:
        saved = (await site.generate(NEAR, seed=2)).provenance.saved_entry_id
        await site.store.delete_entries("default", [saved])
        told = await explain(site)
        await site.settle()
        assert told.decision.reason == "STALE_DONOR"
        assert "latent_kv" in told.explanation
        assert site.index.ids() == [saved]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": CacheMode.OFF}, "CACHE_OFF"),
        ({"mode": CacheMode.WRITE_ONLY}, "WRITE_ONLY"),
        ({"min_similarity": 0.99}, "BELOW_MIN_SIMILARITY"),
        ({"max_skip_steps": 0}, "MAX_SKIP_STEPS"),
        ({"reproducible": True}, "NO_CANDIDATE"),
    ],
)
@in_loop
async def test_a_refusal_is_explained_in_words(options: dict[str, Any], reason: str) -> None:
    async with running_site() as site:
        await site.generate(NEAR, seed=2)
        told = await explain(site, **options)
        assert told.decision.reason == reason
        assert told.explanation.startswith("runs in full")
        assert reason not in told.explanation, "words, not the code"


@in_loop
async def test_who_takes_only_a_full_run_is_not_told_that_nothing_is_stored() -> None:
    async with running_site() as site:
        await site.generate(NEAR, seed=2)
        told = await explain(site, reproducible=True)
        assert told.explanation.endswith("only the result of a full run of it; none is stored")
        assert "nothing is stored" in (await explain(site, steps=9)).explanation


def test_a_donor_that_is_used_less_deep_than_it_scores_says_why() -> None:
    use = CacheUse(CacheMode.READ_WRITE, True, True, False, Limits(), top_k=8)
    schedule = Schedule.of([1.0, 0.9, 0.8, 0.0], "flow", [ReuseKind.RENOISE])
    query = Query("n", "a", 1, True, True, "k", "m", schedule, use)
    entry = Entry("entry", "a ball", 2, "k")
    candidate = Candidate(entry, 0.9, 1, "DONOR_RESUMED", 0.97, reuse_tier="renoise 0.90")
    decision = Decision(
        HitTier.APPROXIMATE,
        "DONOR_RESUMED",
        donor=LatentRef("n", "entry", 3),
        skip_steps=1,
        candidates=(candidate,),
        passed={"entry": "SEED_DIVERSITY"},
    )
    for text in (
        explain_decision(ReusePolicy(), query, decision),
        explain_candidate(ReusePolicy(), query, decision, candidate),
    ):
        assert "not deeper: the prompt was answered with another seed before" in text
    deep = dataclasses.replace(decision, passed={})
    assert "not deeper" not in explain_decision(ReusePolicy(), query, deep)


@in_loop
async def test_a_service_that_is_down_is_a_fallback_and_no_error() -> None:
    async with running_site() as site:
        site.index.break_all(Unavailable("gone"), "search_entries")
        told = await explain(site)
        assert told.decision.reason == "LOOKUP_FAILED"
        assert told.decision.fallbacks[0].service == "vector_index"
        assert (await site.orchestrator.replica.stats("")).fallbacks == {}


@in_loop
async def test_bad_input_is_refused_by_the_field() -> None:
    async with running_site() as site:
        for bad, field in (
            ({"steps": 0}, "params.num_inference_steps"),
            ({"seed": -1}, "params.seed"),
            ({"prompt": " "}, "params.prompt"),
            ({"top_k": 0}, "cache.top_k"),
            ({"key_steps": (99,)}, "cache.key_steps"),
        ):
            with pytest.raises(InvalidArgument) as caught:
                await explain(site, **bad)
            assert caught.value.field == field


@in_loop
async def test_without_a_seed_there_is_no_exact_key() -> None:
    async with running_site() as site:
        told = await explain(site, seed=None)
        assert told.decision.entry_id == ""
        assert told.params.seed is None
