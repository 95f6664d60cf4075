"""Hits are recomputed when the executor is idle, and what that shows has consequences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.orchestrator.site import Site, in_loop, running_site

from skipstone_shared.errors import Internal, Unavailable
from skipstone_shared.generation import StepProgress
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    DriftReport,
    GenerateResult,
    HitTier,
)

PROMPT = "a b c d e f g h i j k l m n o p q r s t"
NEAR = PROMPT.replace("t", "u")
ALL: dict[str, Any] = {
    "drift_audit_share": 1.0,
    "drift_audit_poll_s": 0.001,
    "drift_min_audits": 2,
    "max_drift": 0.5,
}
READS = CacheOptions(mode=CacheMode.READ_ONLY)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def report(site: Site) -> DriftReport:
    told = (await site.orchestrator.replica.stats("")).drift
    assert told is not None
    return told


async def audited(site: Site) -> DriftReport:
    """The report once nothing waits any more."""
    while (await report(site)).queued_audits:
        await asyncio.sleep(0.001)
    return await report(site)


async def hit(site: Site, seed: int, cache: CacheOptions | None = None) -> GenerateResult:
    result = await site.generate(PROMPT, seed=seed, cache=cache or CacheOptions())
    assert result.provenance.tier is HitTier.APPROXIMATE, result.provenance
    return result


@pytest.mark.parametrize("cache", [CacheOptions(), READS], ids=["stored", "not stored"])
@in_loop
async def test_a_hit_is_compared_with_its_full_run_and_nothing_is_left_of_the_audit(
    cache: CacheOptions,
) -> None:
    async with running_site(**ALL) as site:
        await site.generate(NEAR, seed=1)
        told = (await hit(site, 2, cache)).provenance
        stored = set(site.store.entries)
        found = await audited(site)
        assert found.audits == {"measured": 1}
        (tier,) = found.tiers
        assert (tier.tier, tier.mean, tier.closed) == (told.reuse_tier, 0.3, False)
        assert told.reuse_tier == "renoise 0.60"
        resumed_again = 0 if told.saved_entry_id else told.executed_steps
        assert found.audit_steps == 10 + resumed_again
        assert set(site.store.entries) == stored
        audits = site.executor.requests[2:]
        assert [r.resume is None for r in audits] == [True, False][: len(audits)]
        assert not any(r.wants_artifact for r in audits)
        stats = await site.orchestrator.replica.stats("")
        assert stats.executed_steps == 10 + told.executed_steps, "audits are counted apart"


@pytest.mark.parametrize("share", [0.0, 0.5])
@in_loop
async def test_only_a_share_is_audited(share: float) -> None:
    """The site draws the largest number there is, so that only a share of 1 hits."""
    async with running_site(**{**ALL, "drift_audit_share": share}) as site:
        await site.generate(NEAR, seed=1)
        await hit(site, 2)
        assert (await report(site)).audits == {}
        assert (await report(site)).queued_audits == 0


@in_loop
async def test_misses_and_exact_hits_are_not_audited() -> None:
    async with running_site(**ALL) as site:
        for _ in range(2):
            await site.generate(NEAR, seed=1)
        found = await audited(site)
        assert (found.audits, found.audit_steps) == ({}, 0)


@in_loop
async def test_a_bad_audit_sets_the_donor_aside_and_takes_it_out_of_the_index() -> None:
    async with running_site(**ALL) as site:
        donor = (await site.generate(NEAR, seed=1)).provenance.saved_entry_id
        site.executor.drift = 0.9
        await hit(site, 2, READS)
        found = await audited(site)
        assert found.quarantined_donors == 1
        assert donor not in site.index.ids()
        again = CacheOptions(mode=CacheMode.WRITE_ONLY)
        assert (await site.generate(NEAR, seed=1, cache=again)).provenance.saved_entry_id == donor
        told = (await site.generate(PROMPT, seed=3, cache=READS)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "QUARANTINED"), "also when saved anew"


@in_loop
async def test_a_bad_result_does_not_go_on_answering_its_own_repeats() -> None:
    async with running_site(**ALL) as site:
        await site.generate(NEAR, seed=1)
        site.executor.drift = 0.9
        assert (await site.generate(PROMPT, seed=2)).provenance.tier is HitTier.APPROXIMATE
        await audited(site)
        told = (await site.generate(PROMPT, seed=2)).provenance
        assert told.tier is not HitTier.EXACT


@in_loop
async def test_a_donor_that_cannot_be_removed_is_refused_all_the_same() -> None:
    async with running_site(**ALL) as site:
        donor = (await site.generate(NEAR, seed=1)).provenance.saved_entry_id
        site.index.break_all(Internal("no"), "delete_entries")
        site.executor.drift = 0.9
        await hit(site, 2, READS)
        await audited(site)
        assert site.index.ids() == [donor]
        told = (await site.generate(PROMPT, seed=3, cache=READS)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "QUARANTINED")


async def close_the_tier(site: Site) -> None:
    """Two bad audits of two donors."""
    site.executor.drift = 0.9
    for seed in (1, 2):
        await site.generate(NEAR, seed=seed, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        await hit(site, 10 + seed, READS)
        await audited(site)
    assert [tier.closed for tier in (await report(site)).tiers] == [True]


@in_loop
async def test_an_audit_counts_once_though_a_request_comes_while_its_donor_is_set_aside() -> None:
    async with running_site(**ALL) as site:
        await site.generate(NEAR, seed=1)
        site.executor.drift = 0.9
        removing, go_on = asyncio.Event(), asyncio.Event()
        remove = site.index.delete_entries

        async def slowly(namespace: str, entry_ids: Sequence[str]) -> int:
            removing.set()
            await go_on.wait()
            return await remove(namespace, entry_ids)

        site.index.delete_entries = slowly  # type: ignore[method-assign]
        await hit(site, 2, READS)
        await removing.wait()
        await site.generate("something else entirely", seed=9, cache=READS)
        go_on.set()
        told = await audited(site)
    assert (told.audits, [tier.audits for tier in told.tiers]) == ({"measured": 1}, [1])
    assert not told.tiers[0].closed


@in_loop
async def test_the_drift_that_closed_a_tier_is_told_as_long_as_it_is_closed() -> None:
    async with running_site(similarity_table=("0.9:20",), **ALL) as site:
        await close_the_tier(site)
        (tier,) = (await report(site)).tiers
        assert (tier.audits, tier.mean, tier.bound) == (0, 0.9, 0.9)


@in_loop
async def test_what_a_closed_tier_would_have_done_sets_no_donor_aside() -> None:
    """Nobody was given it, and a shallower tier may use the same donor well."""
    async with running_site(similarity_table=("0.9:20", "0.6:5"), **ALL) as site:
        await close_the_tier(site)
        aside = (await report(site)).quarantined_donors
        await site.generate(NEAR, seed=3, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        told = await hit(site, 20, READS)
        assert told.provenance.skip_steps > 0
        assert told.provenance.passed_over == "TIER_CLOSED"
        site.executor.drift = 0.1
        after = await audited(site)
    assert after.quarantined_donors == aside


@in_loop
async def test_a_closed_tier_is_a_miss_that_says_so() -> None:
    async with running_site(similarity_table=("0.9:20",), **ALL) as site:
        await close_the_tier(site)
        await site.generate(NEAR, seed=3, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        told = (await site.generate(PROMPT, seed=20, cache=READS)).provenance
        assert (told.tier, told.reason) == (HitTier.MISS, "TIER_CLOSED")
        assert told.executed_steps == 10


@in_loop
async def test_where_a_deep_tier_is_closed_the_next_one_serves() -> None:
    async with running_site(similarity_table=("0.9:20", "0.6:5"), **ALL) as site:
        await close_the_tier(site)
        site.executor.drift = 0.1
        await site.generate(NEAR, seed=3, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        told = (await hit(site, 20, READS)).provenance
        assert told.reuse_tier == "renoise 0.90"


@in_loop
async def test_a_closed_tier_is_audited_without_being_used_and_opens_again() -> None:
    async with running_site(similarity_table=("0.9:20",), **ALL) as site:
        await close_the_tier(site)
        site.executor.drift = 0.1
        await site.generate(NEAR, seed=3, cache=CacheOptions(mode=CacheMode.WRITE_ONLY))
        for seed in (20, 21):
            told = (await site.generate(PROMPT, seed=seed)).provenance
            assert told.reason == "TIER_CLOSED"
            await audited(site)
            await site.orchestrator.entries.delete("", [told.saved_entry_id])
        (tier,) = (await report(site)).tiers
        assert not tier.closed
        await hit(site, 22, READS)


@in_loop
async def test_audits_wait_while_the_executor_is_busy_and_too_many_are_dropped() -> None:
    async with running_site(drift_audit_queue_size=2, **ALL) as site:
        await site.generate(NEAR, seed=1)
        site.executor.others_running = 1
        for seed in range(10, 14):
            await hit(site, seed, READS)
        for _ in range(50):
            await asyncio.sleep(0)
        found = await report(site)
        assert (found.queued_audits, found.audits) == (2, {"dropped": 2})
        site.executor.others_running = 0
        assert (await audited(site)).audits == {"dropped": 2, "measured": 2}


@in_loop
async def test_an_audit_gives_way_to_a_request_and_is_made_later() -> None:
    async with running_site(**ALL) as site:
        await site.generate(NEAR, seed=1)
        await hit(site, 2, READS)
        site.executor.gate = asyncio.Event()  # holds the audit in its first step
        await until(lambda: len(site.executor.requests) == 3)
        request = asyncio.create_task(site.events(PROMPT, seed=3, cache=READS))
        await until(lambda: len(site.executor.requests) == 4)
        assert site.executor.running == 1, "the audit has left before the request began"
        site.executor.gate.set()
        site.executor.gate = None
        events = await request
        assert any(isinstance(event, StepProgress) for event in events)
        found = await audited(site)
        assert found.audits == {"measured": 2}


@in_loop
async def test_an_audit_gives_way_to_requests_of_other_replicas() -> None:
    async with running_site(**ALL) as site:
        await site.generate(NEAR, seed=1)
        await hit(site, 2, READS)
        site.executor.gate = asyncio.Event()
        await until(lambda: site.executor.running == 1)
        site.executor.others_running = 1
        await until(lambda: site.executor.running == 0)
        site.executor.gate = None
        site.executor.others_running = 0
        assert (await audited(site)).audits == {"measured": 1}


@in_loop
async def test_a_donor_that_is_gone_by_then_is_no_failure() -> None:
    async with running_site(**ALL) as site:
        donor = (await site.generate(NEAR, seed=1)).provenance.saved_entry_id
        site.executor.others_running = 1
        saved = (await hit(site, 2)).provenance.saved_entry_id
        await site.store.delete_entries("default", [donor, saved])
        site.executor.others_running = 0
        assert (await audited(site)).audits == {"gone": 1}


@in_loop
async def test_an_executor_that_fails_the_audit_is_counted_and_audits_go_on() -> None:
    async with running_site(**ALL) as site:
        await site.generate(NEAR, seed=1)
        site.executor.trouble["compare_latents"] = Unavailable("gone")
        await hit(site, 2, READS)
        assert (await audited(site)).audits == {"failed": 1}
        site.executor.trouble.clear()
        await hit(site, 3, READS)
        assert (await audited(site)).audits == {"failed": 1, "measured": 1}
        assert (await site.orchestrator.replica.stats("")).fallbacks == {}
