"""Which tier a request gets, from what, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.orchestrator.site import Site, in_loop, restarted, running_site

from skipstone_orchestrator.calibration import load_calibration
from skipstone_shared.denoise_runs import ResumeKind
from skipstone_shared.embeddings import EmbeddingCapabilities, RerankScores
from skipstone_shared.errors import InvalidArgument, Unavailable
from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.index_entries import SearchHit
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    Fallback,
    GenerateAccepted,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    ReuseKind,
)

PROMPT = "a red circle on a blue background"
NEAR = "a red circle on a green background"  # 8 of 9 words: cosine 0.89
FAR = "two yellow squares near one black star"


@in_loop
async def test_a_first_request_runs_in_full_and_is_saved() -> None:
    async with running_site() as site:
        result = await site.generate(PROMPT, seed=1)
        told = result.provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "NO_CANDIDATE")
        assert (told.executed_steps, told.skip_steps, told.num_inference_steps) == (10, 0, 10)
        assert told.fallbacks == ()
        assert told.start_sigma is None
        assert site.index.ids() == [told.saved_entry_id]
        assert site.store.committed == {("default", told.saved_entry_id)}
        assert set(site.store.entries[("default", told.saved_entry_id)]) == {10}


@in_loop
async def test_events_come_in_the_order_that_is_promised() -> None:
    async with running_site() as site:
        events = await site.events(PROMPT, seed=1)
        kinds = [type(event) for event in events]
        assert kinds == [
            GenerateAccepted,
            GenerateStarted,
            *[StepProgress] * 10,
            Artifact,
            GenerateFinished,
        ]
        assert isinstance(events[0], GenerateAccepted)
        assert events[0].params.guidance_scale == 3.0
        assert events[0].params.seed == 1


@in_loop
async def test_the_same_request_again_is_decoded_without_a_step() -> None:
    async with running_site() as site:
        first = await site.generate(PROMPT, seed=1)
        again = await site.generate(PROMPT, seed=1)
        told = again.provenance
        assert again.artifact == first.artifact
        assert (told.tier, told.reason) == (HitTier.EXACT, "EXACT_HIT")
        assert (told.executed_steps, told.skip_steps) == (0, 10)
        assert told.donor_entry_id == first.provenance.saved_entry_id
        assert told.donor_prompt == PROMPT
        assert told.saved_entry_id == ""
        assert told.reuse_kind is None
        assert site.embedder.calls.count("embed_text") == 1, "an exact hit needs no vector"


@in_loop
async def test_a_request_without_a_seed_gets_a_new_picture_and_is_told_its_seed() -> None:
    async with running_site() as site:
        first = await site.generate(PROMPT)
        second = await site.generate(PROMPT)
        assert first.artifact != second.artifact
        assert first.params.seed == first.provenance.seed != second.provenance.seed
        repeated = await site.generate(PROMPT, seed=first.provenance.seed)
        assert repeated.provenance.tier is HitTier.EXACT
        assert repeated.artifact == first.artifact


@in_loop
async def test_a_near_prompt_is_renoised_from_the_donor_with_its_own_seed() -> None:
    async with running_site() as site:
        donor = await site.generate(PROMPT, seed=1)
        result = await site.generate(NEAR, seed=2)
        told = result.provenance
        assert (told.tier, told.reason) == (HitTier.APPROXIMATE, "DONOR_RESUMED")
        # 0.89 is the row of k 15 of 50: sigma 0.7, which is step 3 of 10.
        assert (told.skip_steps, told.executed_steps) == (3, 7)
        assert told.start_sigma == pytest.approx(0.7)
        assert told.similarity == pytest.approx(8 / 9)
        assert told.donor_entry_id == donor.provenance.saved_entry_id
        assert told.donor_prompt == PROMPT
        assert told.reuse_kind is ReuseKind.RENOISE
        assert b"|2|renoised" in result.artifact.data


@in_loop
async def test_a_far_prompt_is_a_miss_that_tells_its_best_candidate() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        told = (await site.generate(FAR, seed=2)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "BELOW_MIN_SIMILARITY")
        assert told.similarity == pytest.approx(0.0)


@in_loop
async def test_the_same_prompt_with_other_seeds_gives_other_pictures() -> None:
    for kind in (None, ReuseKind.RENOISE, ReuseKind.TRAJECTORY):
        async with running_site(reuse_kind="trajectory") as site:
            pictures = {
                (await site.generate(PROMPT, seed=s, cache=CacheOptions(reuse_kind=kind))).artifact
                for s in range(8)
            }
            assert len(pictures) == 8


@in_loop
async def test_a_space_or_a_capital_does_not_hide_that_the_prompt_is_the_same() -> None:
    async with running_site(reuse_kind="trajectory") as site:
        await site.generate(PROMPT, seed=1)
        told = (await site.generate("A red  circle on a blue background", seed=2)).provenance
        assert told.reuse_kind is ReuseKind.RENOISE


@in_loop
async def test_a_resumed_run_never_donates_but_answers_its_own_repeat() -> None:
    """Drift must not chain."""
    async with running_site() as site:
        donor = await site.generate(PROMPT, seed=1)
        resumed = await site.generate(NEAR, seed=2)
        third = await site.generate(NEAR, seed=3)
        assert third.provenance.donor_entry_id == donor.provenance.saved_entry_id
        again = await site.generate(NEAR, seed=2)
        assert again.provenance.tier is HitTier.EXACT
        assert again.artifact == resumed.artifact
        page = await site.orchestrator.entries.list_page("", 0, "")
        depths = {entry.entry_id: entry.depth for entry in page.entries}
        assert depths[resumed.provenance.saved_entry_id] == 1
        assert depths[donor.provenance.saved_entry_id] == 0


class NamedGate:
    """Lets everything through, under a name that changes."""

    service = "embedding"

    def __init__(self) -> None:
        self.reranker_id = "first"

    def scorer_id(self, told: EmbeddingCapabilities) -> str:
        return self.reranker_id

    async def score(
        self, namespace: str, prompt: str, hits: Sequence[SearchHit]
    ) -> Sequence[float | None]:
        return RerankScores([0.99] * len(hits), self.reranker_id)


@in_loop
async def test_what_another_reranker_allowed_does_not_answer_repeats() -> None:
    """Its scores were others: perhaps this one would have refused the donor."""
    gate = NamedGate()
    async with running_site(gate, uncalibrated="table") as site:
        donor = await site.generate(PROMPT, seed=1)
        await site.generate(NEAR, seed=2)
        assert (await site.generate(NEAR, seed=2)).provenance.tier is HitTier.EXACT
        gate.reranker_id = "second"
        assert (await site.generate(NEAR, seed=2)).provenance.tier is not HitTier.EXACT
        full = (await site.generate(PROMPT, seed=1)).provenance
        assert full.tier is HitTier.EXACT, "what was run in full is right whoever scores"
        assert full.donor_entry_id == donor.provenance.saved_entry_id


@in_loop
async def test_a_resumed_result_answers_repeats_after_a_restart_too() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        resumed = await site.generate(NEAR, seed=2)
        assert resumed.provenance.tier is HitTier.APPROXIMATE
        async with restarted(site) as again:
            told = await again.generate(NEAR, seed=2)
        assert told.provenance.tier is HitTier.EXACT
        assert told.artifact.data == resumed.artifact.data


@in_loop
async def test_who_cannot_learn_who_decides_answers_with_no_resumed_result() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        await site.generate(NEAR, seed=2)
        site.embedder.trouble["get_capabilities"] = Unavailable("away")
        async with restarted(site) as again:
            told = (await again.generate(NEAR, seed=2)).provenance
        assert told.tier is not HitTier.EXACT
        assert [(f.stage, f.service) for f in told.fallbacks][:1] == [("lookup", "embedding")]


@asynccontextmanager
async def site_of_alike_seeds() -> AsyncIterator[Site]:
    """A site whose tiers give the seeds of one prompt pictures that are too much alike."""
    bundled = load_calibration("bundled")
    assert bundled is not None
    gate = NamedGate()
    gate.reranker_id = bundled.services.reranker_id
    async with running_site(gate, calibration_file="bundled", uncalibrated="shallow") as site:
        site.embedder.model_id = bundled.services.embedder_id
        yield site


@in_loop
async def test_seeds_that_come_at_once_do_not_share_a_donor() -> None:
    async with site_of_alike_seeds() as site:
        await site.generate(PROMPT, seed=1)
        at_once = [site.generate(NEAR, seed=seed) for seed in range(11, 15)]
        told = [result.provenance for result in await asyncio.gather(*at_once)]
        reasons = sorted(provenance.reason for provenance in told)
        assert reasons == ["DONOR_RESUMED"] + 3 * ["SEED_DIVERSITY"]


@in_loop
async def test_the_donors_own_seed_of_a_prompt_that_was_answered_is_another_picture_too() -> None:
    async with site_of_alike_seeds() as site:
        await site.generate(PROMPT, seed=1)
        assert (await site.generate(NEAR, seed=2)).provenance.tier is HitTier.APPROXIMATE
        told = (await site.generate(NEAR, seed=1)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "SEED_DIVERSITY")


@in_loop
async def test_resumed_runs_do_not_crowd_donors_out_of_the_first_hits() -> None:
    async with running_site(top_k=1) as site:
        donor = await site.generate(PROMPT, seed=1)
        for seed in range(2, 6):
            told = (await site.generate(NEAR, seed=seed)).provenance
            assert told.donor_entry_id == donor.provenance.saved_entry_id


@in_loop
async def test_who_asks_for_a_full_run_is_not_given_a_stored_resumed_one() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        resumed = await site.generate(NEAR, seed=2)
        saved = []
        for options in (CacheOptions(reproducible=True), CacheOptions(allow_approximate=False)):
            full = await site.generate(NEAR, seed=2, cache=options)
            if options.reproducible:
                assert full.provenance.tier is HitTier.MISS
                assert full.artifact != resumed.artifact
            else:
                assert full.provenance.tier is HitTier.EXACT, "the full run is stored"
            assert full.artifact.data == f"{NEAR}|2".encode()
            saved.append(full.provenance.saved_entry_id)
        entry = await site.orchestrator.entries.get("", saved[0])
        assert entry.depth == 0
        assert site.index.ids().count(entry.entry_id) == 1
        told = (await site.generate(NEAR, seed=2)).provenance
        assert told.donor_entry_id == entry.entry_id, "it answers before the resumed one"


@in_loop
async def test_a_policy_tightened_later_does_not_go_on_answering_with_what_it_forbids() -> None:
    """The result of a full run is right under every policy, that of a resumed one is not."""
    async with running_site() as loose, running_site(sigma_floor=0.8) as tight:
        for name in ("store", "index"):
            vars(getattr(tight, name)).update(vars(getattr(loose, name)))
        full = await loose.generate(PROMPT, seed=1)
        resumed = await loose.generate(NEAR, seed=2)
        assert resumed.provenance.start_sigma == pytest.approx(0.7)
        kept = await tight.generate(PROMPT, seed=1)
        assert (kept.provenance.tier, kept.artifact) == (HitTier.EXACT, full.artifact)
        told = (await tight.generate(NEAR, seed=2)).provenance
        assert told.tier is HitTier.APPROXIMATE
        assert told.start_sigma == pytest.approx(0.8)
        assert told.policy_version != resumed.provenance.policy_version
        again = (await tight.generate(NEAR, seed=2)).provenance
        assert again.tier is HitTier.EXACT, "what this policy allowed, it may repeat"


@in_loop
async def test_prompts_that_differ_only_after_the_encoders_cut_never_hit_exactly() -> None:
    """To a text encoder of 77 tokens both are the same; to their users they are not."""
    long = " ".join(f"word{i}" for i in range(100))
    async with running_site() as site:
        await site.generate(f"{long} red", seed=1)
        told = (await site.generate(f"{long} blue", seed=1)).provenance
        assert told.tier is not HitTier.EXACT
        assert (await site.generate(f"{long} red", seed=1)).provenance.tier is HitTier.EXACT


@pytest.mark.parametrize("limits", [{"min_similarity": 0.95}, {"max_skip_steps": 0}])
@in_loop
async def test_who_limits_donors_is_not_given_the_stored_result_of_a_resumed_run(
    limits: dict[str, Any],
) -> None:
    """The stored result skipped 3 steps with a donor of similarity 0.89."""
    async with running_site() as site:
        full = await site.generate(PROMPT, seed=1)
        await site.generate(NEAR, seed=2)
        strict = CacheOptions(**limits)
        told = (await site.generate(NEAR, seed=2, cache=strict)).provenance
        assert (told.tier, told.skip_steps) == (HitTier.MISS, 0)
        again = await site.generate(PROMPT, seed=1, cache=strict)
        assert again.provenance.tier is HitTier.EXACT, "the result of a full run keeps any limit"
        assert again.artifact == full.artifact


@in_loop
async def test_a_resumed_run_never_takes_the_place_of_a_full_run_of_the_same_request() -> None:
    async with running_site() as site:
        full = await site.generate(NEAR, seed=2)
        await site.generate(PROMPT, seed=1, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        nearest = CacheOptions(allow_exact=False, reuse_kind=ReuseKind.RENOISE)
        again = await site.generate(NEAR, seed=2, cache=nearest)
        assert again.provenance.tier is HitTier.APPROXIMATE
        assert again.provenance.saved_entry_id == ""
        kept = await site.generate(NEAR, seed=2, cache=CacheOptions(reproducible=True))
        assert kept.provenance.tier is HitTier.EXACT
        assert kept.artifact == full.artifact


@in_loop
async def test_a_full_run_that_looks_nothing_up_has_an_entry_beside_a_resumed_ones() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        resumed = (await site.generate(NEAR, seed=2)).provenance
        full = await site.generate(NEAR, seed=2, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        depths = {}
        for told in (resumed, full.provenance):
            assert site.index.ids().count(told.saved_entry_id) == 1
            entry = await site.orchestrator.entries.get("", told.saved_entry_id)
            depths[entry.entry_id] = entry.depth
        assert list(depths.values()) == [1, 0]


@in_loop
async def test_trajectory_is_used_when_it_is_asked_for_and_stored() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1, cache=CacheOptions(key_steps=(1, 2, 3, 5)))
        told = (
            await site.generate(NEAR, seed=2, cache=CacheOptions(reuse_kind=ReuseKind.TRAJECTORY))
        ).provenance
        assert (told.reuse_kind, told.skip_steps) == (ReuseKind.TRAJECTORY, 3)
        assert site.executor.requests[-1].resume is not None
        assert site.executor.requests[-1].resume.donor.step_index == 3


@in_loop
async def test_a_resumed_run_stores_only_snapshots_of_its_own_steps() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        told = (
            await site.generate(NEAR, seed=2, cache=CacheOptions(key_steps=(1, 3, 5)))
        ).provenance
        assert set(site.store.entries[("default", told.saved_entry_id)]) == {5, 10}


@pytest.mark.parametrize("mode", CacheMode)
@in_loop
async def test_each_cache_mode_reads_and_writes_what_it_says(mode: CacheMode) -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        stored = set(site.store.entries)
        told = (await site.generate(PROMPT, seed=1, cache=CacheOptions(mode=mode))).provenance
        assert told.cache_mode is mode
        assert (told.tier is HitTier.EXACT) == mode.reads
        near = (await site.generate(NEAR, seed=2, cache=CacheOptions(mode=mode))).provenance
        assert (near.tier is HitTier.APPROXIMATE) == mode.reads
        assert bool(near.saved_entry_id) == mode.writes
        assert (set(site.store.entries) != stored) == mode.writes
        if not mode.reads:
            assert told.reason == ("WRITE_ONLY" if mode.writes else "CACHE_OFF")


@in_loop
async def test_the_configured_mode_holds_only_where_the_request_gives_none() -> None:
    async with running_site(cache_mode="off") as site:
        assert (await site.generate(PROMPT, seed=1)).provenance.cache_mode is CacheMode.OFF
        options = CacheOptions(mode=CacheMode.WRITE_ONLY)
        assert (await site.generate(PROMPT, seed=1, cache=options)).provenance.saved_entry_id


@in_loop
async def test_tiers_can_be_switched_off_per_request() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        no_exact = CacheOptions(allow_exact=False)
        told = (await site.generate(PROMPT, seed=1, cache=no_exact)).provenance
        assert told.tier is HitTier.APPROXIMATE
        neither = CacheOptions(allow_exact=False, allow_approximate=False)
        told = (await site.generate(PROMPT, seed=1, cache=neither)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "NOT_ALLOWED")


@in_loop
async def test_a_request_can_tighten_similarity_and_depth() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        strict = CacheOptions(min_similarity=0.95)
        told = (await site.generate(NEAR, seed=2, cache=strict)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "BELOW_MIN_SIMILARITY")
        shallow = CacheOptions(max_skip_steps=2)
        assert (await site.generate(NEAR, seed=3, cache=shallow)).provenance.skip_steps == 2


@in_loop
async def test_namespaces_and_parameters_never_share_entries() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        for other in (
            {"namespace": "tenant"},
            {"steps": 12},
            {"guidance_scale": 5.0},
            {"negative_prompt": "blur"},
        ):
            told = (await site.generate(PROMPT, seed=1, **other)).provenance
            assert told.tier is HitTier.MISS


@in_loop
async def test_an_executor_that_cannot_decode_or_resume_is_asked_for_full_runs() -> None:
    async with running_site() as site:
        site.executor.kinds = ()
        await site.generate(PROMPT, seed=1)
        told = (await site.generate(PROMPT, seed=1)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "KIND_UNSUPPORTED")


@in_loop
async def test_an_executor_that_can_only_do_trajectory_has_its_snapshots_stored() -> None:
    async with running_site() as site:
        site.executor.kinds = (ResumeKind.TRAJECTORY, ResumeKind.DECODE)
        first = (await site.generate(PROMPT, seed=1)).provenance
        assert set(site.store.entries[("default", first.saved_entry_id)]) == {1, 2, 3, 4, 5, 10}
        told = (await site.generate(NEAR, seed=2)).provenance
        assert (told.reuse_kind, told.skip_steps) == (ReuseKind.TRAJECTORY, 3)


@in_loop
async def test_prompts_are_not_stored_when_the_operator_says_so() -> None:
    async with running_site(store_prompts=False, reuse_kind="trajectory") as site:
        await site.generate(PROMPT, seed=1)
        told = (await site.generate(PROMPT, seed=2)).provenance
        assert told.tier is HitTier.APPROXIMATE
        assert told.donor_prompt == ""
        assert told.reuse_kind is ReuseKind.RENOISE, "the same prompt is known by its hash"
        part = [e.entry for p in site.index.partitions.values() for e in p.values()]
        assert {entry.prompt for entry in part} == {""}


@in_loop
async def test_a_restart_of_the_executor_with_another_model_is_noticed_in_the_same_request() -> (
    None
):
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        site.executor.restart("another")
        result = await site.generate(PROMPT, seed=1)
        assert result.provenance.tier is HitTier.MISS
        assert site.executor.calls.count("plan") - site.executor.calls.count("run") == 2
        again = await site.generate(PROMPT, seed=1)
        assert again.provenance.tier is HitTier.EXACT


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"prompt": ""}, "params.prompt"),
        ({"prompt": " \n\t"}, "params.prompt"),
        ({"prompt": "x" * 20_001}, "params.prompt"),
        ({"seed": -1}, "params.seed"),
        ({"steps": 0}, "params.num_inference_steps"),
        ({"steps": 100_000}, "params.num_inference_steps"),
        ({"namespace": "a b"}, "namespace"),
        ({"cache": CacheOptions(min_similarity=float("nan"))}, "cache.min_similarity"),
        ({"cache": CacheOptions(min_similarity=1.5)}, "cache.min_similarity"),
        ({"cache": CacheOptions(max_skip_steps=-1)}, "cache.max_skip_steps"),
        ({"cache": CacheOptions(top_k=0)}, "cache.top_k"),
        ({"cache": CacheOptions(top_k=101)}, "cache.top_k"),
        ({"cache": CacheOptions(key_steps=(3, 2))}, "cache.key_steps"),
        ({"cache": CacheOptions(key_steps=(0,))}, "cache.key_steps"),
        ({"cache": CacheOptions(key_steps=(10,))}, "cache.key_steps"),
    ],
)
@in_loop
async def test_bad_input_names_the_field_and_what_is_allowed_and_stores_nothing(
    bad: dict[str, object], field: str
) -> None:
    async with running_site() as site:
        arguments: dict[str, object] = {"prompt": PROMPT, "seed": 1, **bad}
        with pytest.raises(InvalidArgument) as caught:
            await site.events(**arguments)
        assert caught.value.field == field
        assert caught.value.allowed
        await site.settle()
        assert not site.store.entries
        assert not site.executor.requests


@in_loop
async def test_plans_are_kept_per_parameters_and_not_per_prompt_or_seed() -> None:
    async with running_site() as site:
        before = site.executor.calls.count("plan")
        for seed, prompt in enumerate((PROMPT, NEAR, FAR)):
            await site.generate(prompt, seed=seed)
        runs = site.executor.calls.count("run")
        assert site.executor.calls.count("plan") - before - runs == 1


@in_loop
async def test_counts_of_the_replica_add_up() -> None:
    async with running_site() as site:
        for prompt, seed in ((PROMPT, 1), (PROMPT, 1), (NEAR, 2)):
            await site.generate(prompt, seed=seed)
        stats = await site.orchestrator.replica.stats("")
        assert stats.tiers == {HitTier.EXACT: 1, HitTier.APPROXIMATE: 1, HitTier.MISS: 1}
        assert (stats.executed_steps, stats.skipped_steps) == (10 + 0 + 7, 0 + 10 + 3)
        assert (stats.saved_count, stats.dropped_saves, stats.queued_saves) == (2, 0, 0)
        assert stats.entry_count == 2
        assert stats.fallbacks == {}
        assert [state.service for state in stats.services] == [
            "embedding",
            "vector_index",
            "latent_kv",
            "denoise",
        ]


class SwapGate:
    """A gate that knows that only one candidate means the same."""

    service = "embedding"

    def __init__(self, good_prompt: str) -> None:
        self.good_prompt = good_prompt

    def scorer_id(self, told: EmbeddingCapabilities) -> str:
        return "swaps"

    async def score(self, namespace: str, prompt: str, hits: list[object]) -> list[float]:
        return [0.99 if h.entry.prompt == self.good_prompt else 0.0 for h in hits]  # type: ignore[attr-defined]


@in_loop
async def test_a_gate_overrules_the_order_and_the_similarity_of_the_search() -> None:
    good = "a red circle on a green table"
    async with running_site(SwapGate(good)) as site:  # type: ignore[arg-type]
        await site.generate(PROMPT, seed=1, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        await site.generate(good, seed=2, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        told = (await site.generate(NEAR, seed=3)).provenance
        assert told.donor_prompt == good
        assert (told.rerank_score, told.skip_steps) == (0.99, 5)


class BrokenGate:
    service = "embedding"

    def __init__(self, scores: list[float]) -> None:
        self.scores = scores

    def scorer_id(self, told: EmbeddingCapabilities) -> str:
        return "broken"

    async def score(self, namespace: str, prompt: str, hits: object) -> list[float]:
        return self.scores


@pytest.mark.parametrize("scores", [[], [float("nan")], [0.9, 0.9]])
@in_loop
async def test_a_gate_that_fails_means_no_approximate_hit_never_a_looser_one(
    scores: list[float],
) -> None:
    async with running_site(BrokenGate(scores)) as site:
        await site.generate(PROMPT, seed=1)
        told = (await site.generate(NEAR, seed=2)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "GATE_UNAVAILABLE")
        assert [(f.stage, f.reason) for f in told.fallbacks] == [("rerank", "INTERNAL")]
        assert isinstance(told.fallbacks[0], Fallback)


def test_a_site_is_quiet_until_it_is_started() -> None:
    assert Site().store.calls == []
