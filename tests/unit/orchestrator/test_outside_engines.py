"""Lookup and Save for engines outside Skipstone, and the entries they and others leave."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.orchestrator.fakes import fingerprint
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_orchestrator.outside_engines import LookupCall, SaveCall
from skipstone_shared.errors import EntryNotFound, InvalidArgument, SkipstoneError, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import compatibility_key
from skipstone_shared.orchestration import CacheMode, CacheOptions, HitTier, ReuseKind

PROMPT = "a red circle on a blue background"
NEAR = "a red circle on a green background"
PRINT = fingerprint(GenerationParams(PROMPT))
KEY = compatibility_key(PRINT)
SIGMAS = tuple(1 - k / 10 for k in range(11))


def asked(prompt: str = PROMPT, **changes: Any) -> LookupCall:
    call = LookupCall("", prompt, PRINT, SIGMAS, seed=1)
    return dataclasses.replace(call, **changes)


def saved(of_entry: str, **changes: Any) -> SaveCall:
    return dataclasses.replace(SaveCall("", of_entry, PROMPT, 1, PRINT), **changes)


def write(site: Site, entry_id: str, *steps: int, depth: int = 0, key: str = KEY) -> None:
    for step in steps:
        site.store.write(
            "default", entry_id, step, 10, f"{entry_id}@{step}", compatibility_key=key, depth=depth
        )


@in_loop
async def test_what_an_engine_saves_the_next_lookup_finds() -> None:
    async with running_site() as site:
        engines = site.orchestrator.engines
        first = await engines.look_up(asked())
        assert (first.tier, first.reason) == (HitTier.MISS, "NO_CANDIDATE")
        assert first.compatibility_key == KEY
        write(site, first.entry_id, 10)
        entry = await engines.save(saved(first.entry_id))
        assert (entry.entry_id, entry.depth, entry.compatibility_key) == (first.entry_id, 0, KEY)
        exact = await engines.look_up(asked())
        assert (exact.tier, exact.skip_steps) == (HitTier.EXACT, 10)
        assert exact.donor is not None
        assert exact.donor.step_index == 10
        near = await engines.look_up(asked(NEAR, seed=2))
        assert (near.tier, near.skip_steps, near.reuse_kind) == (
            HitTier.APPROXIMATE,
            3,
            ReuseKind.RENOISE,
        )


@in_loop
async def test_engines_and_generate_share_entries_of_equal_fingerprints() -> None:
    async with running_site() as site:
        told = (await site.generate(PROMPT, seed=1)).provenance
        found = await site.orchestrator.engines.look_up(asked())
        assert found.tier is HitTier.EXACT
        assert found.entry_id == told.saved_entry_id


@in_loop
async def test_a_lookup_without_a_seed_is_never_exact_and_gets_an_id_of_its_own() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        engines = site.orchestrator.engines
        first, second = [await engines.look_up(asked(seed=None)) for _ in range(2)]
        assert first.tier is HitTier.APPROXIMATE
        assert first.entry_id != second.entry_id


@in_loop
async def test_explain_tells_every_candidate_with_its_fate() -> None:
    async with running_site() as site:
        write_only = CacheOptions(mode=CacheMode.WRITE_ONLY)
        for seed, prompt in enumerate((PROMPT, "two black stars", "a red circle on a red table")):
            await site.generate(prompt, seed=seed, cache=write_only)
        quiet = await site.orchestrator.engines.look_up(asked(NEAR, seed=9))
        assert quiet.candidates == ()
        told = await site.orchestrator.engines.look_up(asked(NEAR, seed=9, explain=True))
        fates = {c.entry.prompt: (c.skip_steps, c.reason) for c in told.candidates}
        assert fates[PROMPT] == (3, "DONOR_RESUMED")
        assert fates["two black stars"] == (0, "BELOW_MIN_SIMILARITY")
        assert [c.similarity for c in told.candidates] == sorted(
            (c.similarity for c in told.candidates), reverse=True
        )


@in_loop
async def test_key_steps_are_told_only_to_those_who_may_write() -> None:
    async with running_site(reuse_kind="trajectory") as site:
        engines = site.orchestrator.engines
        assert (await engines.look_up(asked())).key_steps == (1, 2, 3, 4, 5)
        read_only = CacheOptions(mode=CacheMode.READ_ONLY)
        assert (await engines.look_up(asked(options=read_only))).key_steps == ()
        own = CacheOptions(key_steps=(2, 7))
        assert (await engines.look_up(asked(options=own))).key_steps == (2, 7)


@in_loop
async def test_trouble_in_a_lookup_is_a_miss_with_its_reason() -> None:
    async with running_site() as site:
        site.index.trouble["search_entries"] = Unavailable("gone")
        found = await site.orchestrator.engines.look_up(asked())
        assert found.tier is HitTier.MISS
        assert [f.reason for f in found.fallbacks] == ["UNAVAILABLE"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"prompt": ""}, "prompt"),
        ({"seed": -1}, "seed"),
        ({"sigmas": SIGMAS[:-1]}, "sigmas"),
        ({"sigmas": (*SIGMAS[:-1], float("nan"))}, "sigmas"),
        ({"sigmas": ()}, "sigmas"),
        ({"options": CacheOptions(key_steps=(10,))}, "cache.key_steps"),
        (
            {"fingerprint": dataclasses.replace(PRINT, expert_boundary=float("inf"))},
            "fingerprint",
        ),
        ({"namespace": "a/b"}, "namespace"),
    ],
)
@in_loop
async def test_a_bad_lookup_names_its_field(changes: dict[str, Any], field: str) -> None:
    async with running_site() as site:
        with pytest.raises(InvalidArgument) as caught:
            await site.orchestrator.engines.look_up(asked(**changes))
        assert caught.value.field == field


@in_loop
async def test_save_refuses_what_is_not_there_or_was_made_under_another_fingerprint() -> None:
    async with running_site() as site:
        engines = site.orchestrator.engines
        with pytest.raises(EntryNotFound):
            await engines.save(saved("nothing"))
        write(site, "other", 10, key="0" * 32)
        with pytest.raises(InvalidArgument) as caught:
            await engines.save(saved("other"))
        assert caught.value.field == "fingerprint"
        assert not site.store.committed
        for changes, field in (
            ({"entry_id": "a b"}, "entry_id"),
            ({"prompt": " "}, "prompt"),
            ({"depth": -1}, "depth"),
            ({"seed": -1}, "seed"),
        ):
            with pytest.raises(InvalidArgument) as caught:
                await engines.save(saved("other", **changes))
            assert caught.value.field == field


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": NEAR},
        {"seed": 2},
        {"fingerprint": dataclasses.replace(PRINT, negative_prompt="blue")},
    ],
)
@in_loop
async def test_an_engine_cannot_save_under_the_exact_id_of_another_request(
    other: dict[str, Any],
) -> None:
    """Whoever asked for that request would be given this picture."""
    async with running_site() as site:
        engines = site.orchestrator.engines
        call = saved((await engines.look_up(asked())).entry_id, **other)
        write(site, call.entry_id, 10, key=compatibility_key(call.fingerprint))
        with pytest.raises(InvalidArgument) as raised:
            await engines.save(call)
        assert raised.value.field == "entry_id"
        assert (await engines.look_up(asked())).tier is HitTier.MISS


@in_loop
async def test_an_exact_result_of_another_fingerprint_is_not_offered() -> None:
    async with running_site() as site:
        entry_id = (await site.orchestrator.engines.look_up(asked())).entry_id
        write(site, entry_id, 10, key="0" * 32)
        site.store.committed.add(("default", entry_id))
        assert (await site.orchestrator.engines.look_up(asked())).tier is HitTier.MISS


@in_loop
async def test_save_with_a_service_down_is_unavailable_and_can_be_repeated() -> None:
    async with running_site() as site:
        engines = site.orchestrator.engines
        write(site, "mine", 10)
        for service, method in (
            (site.embedder, "embed_text"),
            (site.store, "commit_entry"),
            (site.index, "upsert_entries"),
        ):
            service.trouble[method] = Unavailable("gone")
            with pytest.raises(SkipstoneError) as caught:
                await engines.save(saved("mine"))
            assert isinstance(caught.value, Unavailable)
            service.trouble.clear()
            guards = site.orchestrator._guards
            for guard in (guards.embedding, guards.store, guards.index):
                guard.breaker.record_probe(None)
        await engines.save(saved("mine"))
        assert site.index.ids() == ["mine"]


@in_loop
async def test_a_save_cannot_talk_down_the_depth_of_its_snapshots() -> None:
    async with running_site() as site:
        write(site, "resumed", 10, depth=2)
        entry = await site.orchestrator.engines.save(saved("resumed", depth=0))
        assert entry.depth == 2
        found = await site.orchestrator.engines.look_up(asked(NEAR, seed=5))
        assert found.tier is HitTier.MISS


@in_loop
async def test_entries_are_listed_in_pages_shown_and_deleted_from_both_stores() -> None:
    async with running_site() as site:
        entries = site.orchestrator.entries
        ids = [
            (await site.generate(f"number {k} of many", seed=k)).provenance.saved_entry_id
            for k in range(3)
        ]
        first = await entries.list_page("", 2, "")
        rest = await entries.list_page("", 2, first.next_page_token)
        listed = [e.entry_id for e in (*first.entries, *rest.entries)]
        assert sorted(listed) == sorted(ids)
        assert rest.next_page_token == ""
        shown = await entries.get("", ids[0])
        assert (shown.prompt, shown.seed, shown.compatibility_key) == ("number 0 of many", 0, KEY)
        assert await entries.delete("", [ids[0], "unknown"]) == [True, False]
        with pytest.raises(EntryNotFound):
            await entries.get("", ids[0])
        assert ("default", ids[0]) not in site.store.entries
        assert await entries.delete("", [ids[0]]) == [False]


@in_loop
async def test_a_delete_that_cannot_reach_the_index_leaves_the_latents() -> None:
    """The other order would leave vectors that are found and have no latents."""
    async with running_site() as site:
        entry_id = (await site.generate(PROMPT, seed=1)).provenance.saved_entry_id
        site.index.trouble["delete_entries"] = Unavailable("gone")
        with pytest.raises(Unavailable):
            await site.orchestrator.entries.delete("", [entry_id])
        assert ("default", entry_id) in site.store.entries


@in_loop
async def test_bad_entry_requests_name_their_field() -> None:
    async with running_site() as site:
        entries = site.orchestrator.entries
        for call, field in (
            (entries.list_page("", 1001, ""), "page_size"),
            (entries.list_page("", -1, ""), "page_size"),
            (entries.list_page("!", 1, ""), "namespace"),
            (entries.get("", "a b"), "entry_id"),
            (entries.delete("", []), "entry_ids"),
            (entries.delete("", ["x"] * 1001), "entry_ids"),
            (entries.delete("", ["a b"]), "entry_id"),
        ):
            with pytest.raises(InvalidArgument) as caught:
                await call
            assert caught.value.field == field


@in_loop
async def test_counts_of_stores_that_are_down_are_unknown_and_the_rest_is_told() -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        site.index.trouble["get_stats"] = Unavailable("gone")
        site.store.trouble["get_stats"] = Unavailable("gone")
        stats = await site.orchestrator.replica.stats("")
        assert (stats.entry_count, stats.latent_bytes) == (-1, -1)
        assert stats.saved_count == 1
        with pytest.raises(InvalidArgument):
            await site.orchestrator.replica.stats("a b")


@in_loop
async def test_capabilities_name_the_model_while_the_executor_can_be_reached() -> None:
    async with running_site() as site:
        known = await site.orchestrator.replica.capabilities()
        assert (known.version, known.model_id, known.max_steps) == ("1.2.3", "tiny", 1000)
        assert known.max_prompt_bytes == 20_000
        assert (known.frame_rate, known.frame_step, known.max_num_frames) == (12.0, 4, 1)
        site.executor.trouble["get_capabilities"] = Unavailable("gone")
        unknown = await site.orchestrator.replica.capabilities()
        assert (unknown.model_id, unknown.default_steps) == ("", 0)
        assert unknown.policy_version == known.policy_version
