"""What latent_kv removes leaves no vector behind, whatever breaks on the way."""

from __future__ import annotations

import pytest
from tests.unit.orchestrator.site import in_loop
from tests.unit.orchestrator.upkeep_site import UpkeepSite, running, until

from skipstone_shared.errors import EntryNotFound, Internal, Unavailable

GONE = Unavailable("connection refused")


def filled(*entry_ids: str) -> UpkeepSite:
    site = UpkeepSite()
    site.index.put(*entry_ids)
    site.store.put(*entry_ids)
    return site


@in_loop
async def test_the_vector_of_an_evicted_entry_is_removed_and_others_stay() -> None:
    site = filled("a", "b", "c")
    site.index.put("a", namespace="other")
    site.store.put("a", namespace="other")
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.evict("a", "c")
        await until(lambda: site.index.ids() == ["b"])
    assert site.index.ids("other") == ["a"]
    assert site.counted("skipstone_eviction_events_total", kind="capacity") == 2
    assert site.counted("skipstone_stale_vectors_removed_total", found_by="eviction") == 2


@in_loop
async def test_many_evictions_are_removed_in_few_calls() -> None:
    """A store that makes room for a large snapshot evicts many small ones at once."""
    ids = [f"e{i:03}" for i in range(200)]
    site = filled(*ids)
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.evict(*ids)
        await until(lambda: not site.index.ids())
    assert site.index.calls.count("delete_entries") <= 8


@in_loop
async def test_an_entry_saved_anew_since_its_eviction_keeps_its_vector() -> None:
    """A replayed event may be minutes old."""
    site = filled("a", "b")
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.evict("a", "b")
        site.store.put("a", committed=False)
        await until(lambda: site.index.ids() == ["a"])


@pytest.mark.parametrize("trouble", [GONE, Internal("a bug")], ids=str)
@in_loop
async def test_removals_that_the_index_missed_in_its_outage_are_done_afterwards(
    trouble: Exception,
) -> None:
    site = filled("a", "b")
    site.index.trouble["delete_entries"] = trouble
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.evict("a")
        await until(lambda: site.index.calls.count("delete_entries") >= 2)
        assert site.index.ids() == ["a", "b"]
        site.index.trouble.clear()
        await until(lambda: site.index.ids() == ["b"])


@in_loop
async def test_a_watch_goes_on_behind_the_last_removal_it_saw() -> None:
    site = filled("a", "b", "c")
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.evict("a")
        await until(lambda: site.index.ids() == ["b", "c"])
        site.store.trouble["watch_evictions"] = GONE
        site.store.drop_watchers(GONE)
        site.store.evict("b")
        site.store.trouble.clear()
        await until(lambda: site.index.ids() == ["c"])
    assert set(site.store.watched_after[1:]) == {1}
    assert site.asked == 1, "only at the start may something have been missed"


@in_loop
async def test_a_gap_in_the_history_asks_for_a_reconcile_pass() -> None:
    site = filled("a", "b", "c")
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.evict("a")
        await until(lambda: site.index.ids() == ["b", "c"])
        site.store.drop_watchers(GONE)
        site.store.evict("b", "c")
        site.store.events = site.store.events[2:]
        await until(lambda: site.index.ids() == ["b"])
    assert site.asked == 2
    assert site.counted("skipstone_eviction_events_total", kind="gap") == 1


@in_loop
async def test_a_store_with_a_new_history_is_followed_from_its_start() -> None:
    site = filled("a", "b")
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.evict("a")
        await until(lambda: site.index.ids() == ["b"])
        site.store.events.clear()
        site.store.last_sequence = 0
        site.store.drop_watchers(GONE)
        await until(lambda: site.store.watched_after == [0, 1, 0])
        site.store.evict("b")
        await until(lambda: not site.index.ids())
    assert site.asked == 2


@in_loop
async def test_two_replicas_may_follow_the_same_store() -> None:
    ids = [f"e{i:02}" for i in range(40)]
    site = filled(*ids, "kept")
    async with running(site.follower(), site.follower()):
        await until(lambda: site.store.watched_after == [0, 0])
        site.store.evict(*ids)
        await until(lambda: site.counted("skipstone_eviction_events_total", kind="capacity") == 80)
    assert site.index.ids() == ["kept"]
    assert site.counted("skipstone_stale_vectors_removed_total", found_by="eviction") == 40


@in_loop
async def test_a_store_that_cannot_be_asked_costs_no_vector() -> None:
    """Only "not there" means not there; an error of another kind says nothing."""
    site = filled("a")
    async with running(site.follower()):
        await until(lambda: site.store.watched_after == [0])
        site.store.trouble["get_entry"] = GONE
        site.store.evict("a")
        site.store.put("a")
        await until(lambda: site.store.calls.count("get_entry") >= 3)
        assert site.index.ids() == ["a"]
        site.store.trouble["get_entry"] = EntryNotFound("gone")
        await until(lambda: not site.index.ids())
