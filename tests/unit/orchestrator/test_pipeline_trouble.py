"""Whatever fails in the cache, the request completes and says so; only the executor can fail it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.orchestrator.fakes import HANG, Service
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_shared.errors import (
    Cancelled,
    DataCorrupt,
    DeadlineExceeded,
    Internal,
    QueueFull,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.orchestration import (
    BreakerState,
    CacheMode,
    CacheOptions,
    HitTier,
    Provenance,
)

PROMPT = "a red circle on a blue background"
NEAR = "a red circle on a green background"
GONE = Unavailable("connection refused")

TROUBLES = [
    GONE,
    HANG,
    Internal("a bug"),
    QueueFull("full"),
    DataCorrupt("bad bytes"),
    ValueError("nonsense"),
]

SERVICE_OF = {
    "embed_text": "embedding",
    "search_entries": "vector_index",
    "get_entry": "latent_kv",
}
# The deadline of each, so short that a test of hanging takes no time.
SHORT = {
    "embed_text": {"embedding_timeout_s": 0.02},
    "search_entries": {"index_timeout_s": 0.02},
    "get_entry": {"latent_kv_timeout_s": 0.02},
}
STAGE_OF = {"embed_text": "build_query", "search_entries": "lookup", "get_entry": "lookup"}


def service_of(site: Site, method: str) -> Service:
    return {
        "embed_text": site.embedder,
        "search_entries": site.index,
        "upsert_entries": site.index,
        "get_entry": site.store,
        "commit_entry": site.store,
    }[method]


def state_of(site: Site, service: str) -> BreakerState:
    states = site.orchestrator.replica.service_states()
    return next(state.breaker for state in states if state.service == service)


def reason_of(trouble: Exception | str) -> str:
    if isinstance(trouble, str):
        return "DEADLINE_EXCEEDED"
    return trouble.reason if isinstance(trouble, SkipstoneError) else "INTERNAL"


def assert_full_run(told: Provenance) -> None:
    assert told.tier is HitTier.MISS
    assert (told.executed_steps, told.skip_steps) == (10, 0)
    assert told.donor_entry_id == ""


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
@pytest.mark.parametrize("method", SERVICE_OF)
@in_loop
async def test_a_lookup_that_fails_anywhere_becomes_a_full_run_that_says_why(
    method: str, trouble: Exception | str
) -> None:
    short = SHORT[method] if trouble == HANG else {}
    async with running_site(**short) as site:
        await site.generate(PROMPT, seed=1)
        service_of(site, method).trouble[method] = trouble
        # A save would wait for the service that hangs, for as long as its own deadline is.
        cache = CacheOptions(mode=CacheMode.READ_ONLY) if trouble == HANG else None
        result = await site.generate(NEAR, seed=2, cache=cache)
        assert result.artifact.data == f"{NEAR}|2".encode(), "the uncached result"
        told = result.provenance
        assert_full_run(told)
        assert told.reason == "LOOKUP_FAILED"
        first = told.fallbacks[0]
        assert (first.stage, first.service, first.reason) == (
            STAGE_OF[method],
            SERVICE_OF[method],
            reason_of(trouble),
        )
        assert first.message
        if trouble == HANG:
            assert first.delay_s > 0


@pytest.mark.parametrize("method", SERVICE_OF)
@in_loop
async def test_a_service_that_hangs_costs_its_deadline_once_and_then_nothing(method: str) -> None:
    async with running_site(**SHORT[method], probe_timeout_s=0.02) as site:
        await site.generate(PROMPT, seed=1)
        service_of(site, method).break_all(HANG, method, "get_capabilities")
        cache = CacheOptions(mode=CacheMode.READ_ONLY)
        told = (await site.generate(NEAR, seed=2, cache=cache)).provenance
        assert told.fallbacks[0].reason == "DEADLINE_EXCEEDED"
        while state_of(site, SERVICE_OF[method]) is not BreakerState.OPEN:
            await asyncio.sleep(0.001)  # the probe that the failure has started is running
        for _ in range(3):
            told = (await site.generate(NEAR, seed=2, cache=cache)).provenance
            assert told.fallbacks[0].reason == "BREAKER_OPEN"


@pytest.mark.parametrize("method", SERVICE_OF)
@in_loop
async def test_a_service_that_answers_probes_but_not_calls_is_soon_left_alone(
    method: str,
) -> None:
    often = {"sick_probe_interval_s": 0.001, "probe_interval_s": 0.001}
    async with running_site(**SHORT[method], **often) as site:
        await site.generate(PROMPT, seed=1)
        service_of(site, method).trouble[method] = HANG
        cache = CacheOptions(mode=CacheMode.READ_ONLY)
        reasons = []
        for _ in range(6):
            told = (await site.generate(NEAR, seed=2, cache=cache)).provenance
            reasons.append(told.fallbacks[0].reason)
        assert reasons[:2] == ["DEADLINE_EXCEEDED"] * 2
        assert reasons[4:] == ["BREAKER_OPEN"] * 2, "at most one trial comes between"


@pytest.mark.parametrize("method", SERVICE_OF)
@in_loop
async def test_a_service_that_comes_back_is_used_by_the_next_request(method: str) -> None:
    """No probe is due here for a thousand seconds: the request itself finds out."""
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        service = service_of(site, method)
        service.break_all(GONE, method, "get_capabilities")
        cache = CacheOptions(mode=CacheMode.READ_ONLY)
        told = (await site.generate(NEAR, seed=2, cache=cache)).provenance
        assert_full_run(told)
        assert state_of(site, SERVICE_OF[method]) is BreakerState.OPEN
        service.trouble.clear()
        told = (await site.generate(NEAR, seed=2, cache=cache)).provenance
        assert (told.tier, told.fallbacks) == (HitTier.APPROXIMATE, ())


@pytest.mark.parametrize("method", SERVICE_OF)
@in_loop
async def test_while_nobody_listens_a_request_only_knocks(method: str) -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        service = service_of(site, method)
        service.break_all(GONE, method, "get_capabilities")
        site.down = {s.target for s in site.orchestrator.replica.service_states()}
        cache = CacheOptions(mode=CacheMode.READ_ONLY)
        await site.generate(NEAR, seed=2, cache=cache)
        await asyncio.sleep(0)  # the probe that the failure has started
        calls = list(service.calls)
        told = (await site.generate(NEAR, seed=2, cache=cache)).provenance
        assert told.fallbacks[0].reason == "BREAKER_OPEN"
        assert site.knocks
        assert service.calls.count(method) == calls.count(method)


@in_loop
async def test_a_service_that_listens_long_before_it_works_costs_its_wait_once() -> None:
    async with running_site() as site:
        site.embedder.break_all(GONE, "embed_text", "get_capabilities")
        cache = CacheOptions(mode=CacheMode.READ_ONLY)
        await site.generate(NEAR, seed=2, cache=cache)
        await site.generate(NEAR, seed=2, cache=cache)
        probes = site.embedder.calls.count("get_capabilities")
        assert len(site.knocks) == 1
        for _ in range(3):
            told = (await site.generate(NEAR, seed=2, cache=cache)).provenance
            assert told.fallbacks[0].reason == "BREAKER_OPEN"
        assert site.embedder.calls.count("get_capabilities") == probes
        assert len(site.knocks) == 1


@in_loop
async def test_a_returned_service_is_also_found_by_the_background_probe() -> None:
    async with running_site(sick_probe_interval_s=0.001) as site:
        site.down = {s.target for s in site.orchestrator.replica.service_states()}
        site.store.break_all(GONE, "get_entry", "get_capabilities")
        await site.generate(PROMPT, seed=1)
        assert state_of(site, "latent_kv") is BreakerState.OPEN
        site.store.trouble.clear()
        while state_of(site, "latent_kv") is not BreakerState.CLOSED:
            await asyncio.sleep(0.001)


@in_loop
async def test_all_cache_services_down_at_once_is_still_a_full_run() -> None:
    async with running_site() as site:
        site.embedder.break_all(GONE, "embed_text", "get_capabilities")
        site.index.break_all(GONE, "search_entries", "upsert_entries", "get_capabilities")
        site.store.break_all(GONE, "get_entry", "commit_entry", "get_capabilities")
        for seed in (1, 2):
            result = await site.generate(PROMPT, seed=seed)
            assert_full_run(result.provenance)
            assert result.provenance.saved_entry_id == ""
        stats = await site.orchestrator.replica.stats("")
        asked = {name for name in stats.fallbacks if name.startswith("lookup/")}
        assert asked <= {"lookup/UNAVAILABLE", "lookup/BREAKER_OPEN"}
        assert sum(stats.fallbacks[name] for name in asked) == 2, "the store is asked about first"
        assert "build_query/UNAVAILABLE" not in stats.fallbacks, "no vector is of use without it"
        assert stats.tiers[HitTier.MISS] == 2


@in_loop
async def test_a_dead_store_is_not_written_to_since_that_would_only_cost_time() -> None:
    async with running_site() as site:
        site.store.break_all(GONE, "get_entry", "get_capabilities")
        told = (await site.generate(PROMPT, seed=1)).provenance
        assert site.executor.requests[-1].snapshots is None
        assert [f.stage for f in told.fallbacks] == ["lookup", "snapshot"]
        options = CacheOptions(mode=CacheMode.WRITE_ONLY)
        told = (await site.generate(PROMPT, seed=1, cache=options)).provenance
        assert [(f.stage, f.reason) for f in told.fallbacks] == [("snapshot", "BREAKER_OPEN")]


@in_loop
async def test_while_the_index_is_away_no_prompt_is_encoded_for_a_search() -> None:
    async with running_site(breaker_failures=1) as site:
        site.index.break_all(GONE, "search_entries", "get_capabilities")
        read_only = CacheOptions(mode=CacheMode.READ_ONLY)
        await site.generate(PROMPT, seed=1, cache=read_only)
        site.embedder.calls.clear()
        told = (await site.generate(PROMPT, seed=2, cache=read_only)).provenance
        assert [(f.stage, f.service, f.reason) for f in told.fallbacks] == [
            ("lookup", "vector_index", "BREAKER_OPEN")
        ]
        assert "embed_text" not in site.embedder.calls


@in_loop
async def test_a_donor_whose_latents_are_gone_is_passed_over_and_removed_from_the_index() -> None:
    async with running_site() as site:
        gone = (await site.generate(PROMPT, seed=1)).provenance.saved_entry_id
        cache = CacheOptions(mode=CacheMode.WRITE_ONLY)
        kept = (
            await site.generate("a red circle on a brown background", seed=2, cache=cache)
        ).provenance.saved_entry_id
        await site.store.delete_entries("default", [gone])
        told = (await site.generate(PROMPT, seed=3)).provenance
        assert told.donor_entry_id == kept, "the next candidate is tried"
        assert gone not in site.index.ids()


@pytest.mark.parametrize("reason", ["LATENT_NOT_FOUND", "LATENT_CORRUPT", "SPEC_MISMATCH"])
@in_loop
async def test_a_donor_that_the_executor_refuses_is_a_miss_with_its_reason(reason: str) -> None:
    async with running_site() as site:
        await site.generate(PROMPT, seed=1)
        site.executor.refuse_with = reason
        result = await site.generate(NEAR, seed=2)
        told = result.provenance
        assert result.artifact.data == f"{NEAR}|2".encode()
        assert_full_run(told)
        assert told.reason == "RESUME_REFUSED"
        assert told.similarity == pytest.approx(8 / 9)
        (fallback,) = told.fallbacks
        assert (fallback.stage, fallback.service) == ("resume", "latent_kv")
        assert (fallback.reason, fallback.message) == (reason, f"donor refused: {reason}")
        entry = await site.orchestrator.entries.get("", told.saved_entry_id)
        assert entry.depth == 0, "it was a full run after all"


@in_loop
async def test_an_exact_hit_whose_decode_is_refused_becomes_a_full_run_that_is_saved_again() -> (
    None
):
    async with running_site() as site:
        first = await site.generate(PROMPT, seed=1)
        site.executor.refuse_with = "LATENT_CORRUPT"
        again = await site.generate(PROMPT, seed=1)
        assert_full_run(again.provenance)
        assert again.artifact == first.artifact
        assert again.provenance.saved_entry_id == first.provenance.saved_entry_id
        site.executor.refuse_with = ""
        assert (await site.generate(PROMPT, seed=1)).provenance.tier is HitTier.EXACT
        assert site.index.ids() == [first.provenance.saved_entry_id]


@in_loop
async def test_a_refusal_of_the_scheduler_is_the_executors_and_removes_nothing() -> None:
    async with running_site() as site:
        donor = (await site.generate(PROMPT, seed=1)).provenance.saved_entry_id
        site.executor.refuse_with = "SCHEDULER_UNSUPPORTED"
        told = (await site.generate(NEAR, seed=2)).provenance
        assert told.fallbacks[0].service == "denoise"
        assert donor in site.index.ids()


@in_loop
async def test_an_index_that_lies_about_a_snapshot_cannot_make_it_be_resumed() -> None:
    """The index says one checksum, the store has another: the entry was overwritten."""
    async with running_site() as site:
        donor = (await site.generate(PROMPT, seed=1)).provenance
        site.store.write(
            "default",
            donor.saved_entry_id,
            10,
            10,
            "something else",
            compatibility_key=donor.compatibility_key,
        )
        told = (await site.generate(NEAR, seed=2)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "STALE_DONOR")
        assert donor.saved_entry_id in site.index.ids()


@in_loop
async def test_an_entry_that_was_never_committed_is_neither_hit_nor_donor() -> None:
    async with running_site() as site:
        first = (await site.generate(PROMPT, seed=1)).provenance
        site.store.committed.clear()
        read_only = CacheOptions(mode=CacheMode.READ_ONLY)
        told = (await site.generate(PROMPT, seed=2, cache=read_only)).provenance
        assert told.reason == "STALE_DONOR"
        again = (await site.generate(PROMPT, seed=1)).provenance
        assert again.tier is HitTier.MISS
        assert again.saved_entry_id == first.saved_entry_id


@in_loop
async def test_snapshots_that_cannot_be_stored_are_told_and_nothing_is_saved() -> None:
    async with running_site() as site:
        site.executor.snapshot_failure = "QUOTA_EXCEEDED"
        told = (await site.generate(PROMPT, seed=1)).provenance
        assert told.snapshot_failures == {10: "QUOTA_EXCEEDED"}
        assert told.saved_entry_id == ""
        assert [(f.stage, f.reason) for f in told.fallbacks] == [("snapshot", "QUOTA_EXCEEDED")]
        assert not site.index.ids()


@in_loop
async def test_no_executor_is_unavailable_to_the_caller_and_stores_nothing() -> None:
    async with running_site(plan_timeout_s=0.2) as site:
        site.executor.break_all(GONE, "plan", "get_capabilities")
        with pytest.raises(Unavailable):
            await site.events(PROMPT, seed=1)
        site.executor.trouble["plan"] = HANG
        with pytest.raises(Unavailable):
            await site.events(PROMPT, seed=1)


@pytest.mark.parametrize(
    "error", [GONE, QueueFull("busy"), Internal("the model failed"), DeadlineExceeded("late")]
)
@in_loop
async def test_a_run_that_fails_midway_passes_its_error_on_and_keeps_nothing(
    error: SkipstoneError,
) -> None:
    async with running_site() as site:
        site.executor.fail_at_step = (5, error)
        with pytest.raises(type(error)):
            await site.events(PROMPT, seed=1, cache=CacheOptions(key_steps=(2,)))
        await site.settle()
        assert not site.store.entries
        assert not site.index.ids()
        site.executor.fail_at_step = None
        assert (await site.generate(PROMPT, seed=1)).provenance.saved_entry_id


@pytest.mark.parametrize("error", [GONE, Cancelled("the server is shutting down")])
@in_loop
async def test_a_run_that_was_lost_with_its_executor_is_made_by_another_one(
    error: SkipstoneError,
) -> None:
    """Executors are killed and rolled out while callers wait for their pictures."""
    async with running_site() as site:
        whole = await site.generate(PROMPT, seed=1, cache=CacheOptions(mode=CacheMode.OFF))
        site.executor.lose_once = (5, error)
        result = await site.generate(PROMPT, seed=1)
        assert result.artifact == whole.artifact
        (lost,) = result.provenance.fallbacks
        assert (lost.stage, lost.service, lost.reason) == ("denoise", "denoise", "RUN_LOST")
        assert result.provenance.executed_steps == 10
        await site.settle()
        again = await site.generate(PROMPT, seed=1)
        assert again.artifact == whole.artifact


@in_loop
async def test_a_request_that_no_executor_survives_ends_two_of_them_at_most() -> None:
    async with running_site() as site:
        site.executor.fail_at_step = (5, GONE)
        with pytest.raises(Unavailable):
            await site.generate(PROMPT, seed=1)
        assert len(site.executor.requests) == 2


@in_loop
async def test_an_executor_that_ends_a_run_at_its_shutdown_is_unavailable() -> None:
    """CANCELLED would tell the caller that it had gone away itself; UNAVAILABLE, to try again."""
    async with running_site() as site:
        site.executor.fail_at_step = (3, Cancelled("the server is shutting down"))
        with pytest.raises(Unavailable, match="shutting down"):
            await site.generate(PROMPT, seed=1)


@in_loop
async def test_an_executor_that_is_back_is_used_at_once_without_waiting_for_a_probe() -> None:
    async with running_site() as site:
        site.executor.break_all(GONE, "plan", "get_capabilities")
        with pytest.raises(Unavailable):
            await site.events(PROMPT, seed=1)
        assert state_of(site, "denoise") is BreakerState.OPEN
        site.executor.trouble.clear()
        assert (await site.generate(PROMPT, seed=1)).provenance.executed_steps == 10


@in_loop
async def test_an_error_that_generate_does_not_promise_becomes_internal() -> None:
    async with running_site() as site:
        site.executor.fail_at_step = (2, DataCorrupt("artifact ends early"))
        with pytest.raises(Internal, match="artifact ends early"):
            await site.events(PROMPT, seed=1)


@in_loop
async def test_an_executor_that_changes_its_model_under_every_plan_is_unavailable() -> None:
    async with running_site() as site:

        async def restart_each_time(*_: object, **__: object) -> object:
            plan = await planned(*_, **__)
            site.executor.restart(f"model {site.executor.instance}")
            return plan

        planned = site.executor.plan
        site.orchestrator.pipeline._planner._denoiser = type(  # type: ignore[attr-defined]
            "Restless", (), {"plan": staticmethod(restart_each_time)}
        )()
        with pytest.raises(Unavailable, match="changed its model"):
            await site.events(PROMPT, seed=1)


@in_loop
async def test_the_budget_of_a_lookup_bounds_all_its_stages_together() -> None:
    async with running_site(lookup_timeout_s=0.03, index_timeout_s=1000.0) as site:
        await site.generate(PROMPT, seed=1)
        site.index.trouble["search_entries"] = HANG
        told = (await site.generate(NEAR, seed=2)).provenance
        (fallback,) = told.fallbacks
        assert (fallback.service, fallback.reason) == ("vector_index", "DEADLINE_EXCEEDED")


@in_loop
async def test_eight_requests_at_once_equal_the_same_eight_one_after_another() -> None:
    prompts = [f"{colour} circle on a blue background" for colour in "abcdefgh"]
    off = CacheOptions(mode=CacheMode.WRITE_ONLY)
    async with running_site() as site:
        serial = [(await site.generate(p, seed=i, cache=off)) for i, p in enumerate(prompts)]
    async with running_site() as site:
        together = await asyncio.gather(
            *(site.generate(p, seed=i, cache=off) for i, p in enumerate(prompts))
        )
        assert [r.artifact for r in together] == [r.artifact for r in serial]
        assert len(site.index.ids()) == 8
