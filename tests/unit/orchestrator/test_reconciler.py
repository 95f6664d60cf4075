"""A reconcile pass leaves nothing in one store that the other lacks, and nothing alive is hurt."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.orchestrator.site import in_loop
from tests.unit.orchestrator.upkeep_site import GRACE_S, UpkeepSite, running, until

from skipstone_shared.errors import Unavailable


def stored_ids(site: UpkeepSite, namespace: str = "default") -> list[str]:
    return sorted(entry_id for space, entry_id in site.store.entries if space == namespace)


@in_loop
async def test_a_vector_without_an_entry_goes_in_every_namespace() -> None:
    site = UpkeepSite()
    for namespace in ("default", "a", "z"):
        site.index.put("both", "stale", namespace=namespace)
        site.store.put("both", namespace=namespace)
    await site.reconcile()
    for namespace in ("default", "a", "z"):
        assert site.index.ids(namespace) == stored_ids(site, namespace) == ["both"]
    assert site.counted("skipstone_stale_vectors_removed_total", found_by="reconcile") == 3
    assert GRACE_S not in site.pauses, "a vector is written after its entry, so it needs no grace"


@in_loop
async def test_an_entry_without_a_vector_goes_after_the_grace_time() -> None:
    site = UpkeepSite()
    site.index.put("both")
    site.store.put("both", "lost")
    seen: list[list[str]] = []
    site.during_grace = lambda: seen.append(stored_ids(site))
    await site.reconcile()
    assert seen == [["both", "lost"]]
    assert stored_ids(site) == ["both"]
    assert site.counted("skipstone_unfindable_entries_removed_total") == 1


@in_loop
async def test_an_entry_whose_vector_is_on_its_way_stays() -> None:
    site = UpkeepSite()
    site.index.put("both")
    site.store.put("both", "saving")
    site.during_grace = lambda: site.index.put("saving")
    await site.reconcile()
    assert stored_ids(site) == site.index.ids() == ["both", "saving"]


@in_loop
async def test_an_entry_that_is_used_pinned_or_not_committed_stays_without_a_vector() -> None:
    """It answers exact repeats, somebody wants it, or its run goes on."""
    site = UpkeepSite()
    site.index.put("both")
    site.store.put("both", "pinned", "pinned_late", "used", "rewritten")
    site.store.put("written", committed=False)
    site.store.pinned.add("pinned")

    def meanwhile() -> None:
        site.store.access_times["used"] = 1.0
        site.store.pinned.add("pinned_late")
        site.store.committed.discard(("default", "rewritten"))

    site.during_grace = meanwhile
    await site.reconcile()
    assert stored_ids(site) == ["both", "pinned", "pinned_late", "rewritten", "used", "written"]


@in_loop
async def test_an_entry_that_goes_by_itself_during_the_grace_time_is_no_trouble() -> None:
    site = UpkeepSite()
    site.index.put("both")
    site.store.put("both", "lost")
    site.during_grace = lambda: site.store.evict("lost")
    await site.reconcile()
    assert stored_ids(site) == ["both"]
    assert site.counted("skipstone_unfindable_entries_removed_total") == 0


@in_loop
async def test_a_namespace_without_any_vector_is_left_alone() -> None:
    """An index that was lost must not take the store with it."""
    site = UpkeepSite()
    site.index.put("both")
    site.store.put("both")
    site.store.put("a", "b", namespace="index_lost")
    await site.reconcile()
    assert stored_ids(site, "index_lost") == ["a", "b"]


@in_loop
async def test_entries_without_a_vector_stay_where_others_use_the_store() -> None:
    site = UpkeepSite(removes_entries=False)
    site.index.put("both", "stale")
    site.store.put("both", "foreign")
    await site.reconcile()
    assert stored_ids(site) == ["both", "foreign"]
    assert site.index.ids() == ["both"]


@in_loop
async def test_stores_of_many_pages_are_compared_at_the_set_rate() -> None:
    site = UpkeepSite()
    ids = [f"e{i:04}" for i in range(450)]
    site.index.put(*ids)
    site.store.put(*ids, *[f"lost{i}" for i in range(150)])
    await site.reconcile()
    assert stored_ids(site) == ids == site.index.ids()
    compared = 450 + 600 + 150  # vectors, entries, and the suspects once more
    assert sum(site.pauses) - GRACE_S == pytest.approx(compared / 50.0)
    assert site.counted("skipstone_reconcile_entries_compared_total", side="vector_index") == 450
    assert site.counted("skipstone_reconcile_entries_compared_total", side="latent_kv") == 750


@in_loop
async def test_two_replicas_may_reconcile_at_once() -> None:
    site = UpkeepSite()
    site.index.put("both", *[f"stale{i}" for i in range(30)])
    site.store.put("both", *[f"lost{i}" for i in range(30)])
    await asyncio.gather(site.reconcile(), site.reconcile())
    assert site.index.ids() == stored_ids(site) == ["both"]
    assert site.counted("skipstone_unfindable_entries_removed_total") == 30


@in_loop
async def test_a_pass_runs_when_it_is_asked_for_and_again_when_it_failed() -> None:
    site = UpkeepSite()
    site.index.put("both", "stale")
    site.store.put("both")
    site.store.trouble["get_entry"] = Unavailable("connection refused")
    async with running(site.reconciler):
        await asyncio.sleep(0)
        assert not site.index.calls, "nobody has asked"
        site.reconciler.ask()
        await until(lambda: site.counted("skipstone_reconcile_passes_total", outcome="failed") >= 2)
        assert site.index.ids() == ["both", "stale"], "an outage of the store removes nothing"
        site.store.trouble.clear()
        await until(lambda: site.counted("skipstone_reconcile_passes_total", outcome="done") == 1)
    assert site.index.ids() == ["both"]


@in_loop
async def test_a_pass_that_is_asked_for_does_not_wait_for_a_grace_time() -> None:
    site = UpkeepSite()
    site.grace_over.clear()
    site.index.put("both", "late", namespace="other")
    site.index.put("both")
    site.store.put("both", "late", namespace="other")
    site.store.put("both", "lost")
    async with running(site.reconciler):
        site.reconciler.ask()
        await until(lambda: GRACE_S in site.pauses)
        site.store.evict("late", namespace="other")
        site.reconciler.ask()
        await until(lambda: site.index.ids("other") == ["both"])
        assert stored_ids(site) == ["both", "lost"], "its grace time is not over"
        site.grace_over.set()
        await until(lambda: stored_ids(site) == ["both"])


@in_loop
async def test_a_second_look_that_fails_is_made_again() -> None:
    site = UpkeepSite()
    site.index.put("both")
    site.store.put("both", "lost")
    site.during_grace = lambda: site.store.trouble.update(get_entry=Unavailable("refused"))
    async with running(site.reconciler):
        site.reconciler.ask()
        await until(lambda: site.counted("skipstone_reconcile_passes_total", outcome="failed") >= 1)
        assert stored_ids(site) == ["both", "lost"]
        site.during_grace = lambda: None
        site.store.trouble.clear()
        await until(lambda: stored_ids(site) == ["both"])


@in_loop
async def test_a_pass_runs_by_itself_when_its_interval_is_over() -> None:
    site = UpkeepSite(interval_s=0.001)
    async with running(site.reconciler):
        await until(lambda: site.counted("skipstone_reconcile_passes_total", outcome="done") >= 3)
