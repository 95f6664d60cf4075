"""The clock of the machine jumps back: nothing is lost, nothing ends early, and the order holds."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.latent_store_cases import (
    LATENT_BYTES,
    Clock,
    Open,
    Opened,
    Options,
    Write,
    latents,
    list_ids,
    open_lmdb,
    open_memory,
    open_redis,
    save,
)

from skipstone_latent_kv.eviction import Quotas
from skipstone_shared.errors import EntryNotFound

DAY = 86_400.0
TTL_S = 3600.0


@pytest.fixture(params=[open_memory, open_lmdb, open_redis], ids=lambda open_: open_.__name__)
def open_store(request: pytest.FixtureRequest) -> Open:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(open_store: Open, path: Path, stack: ExitStack, clock: Clock) -> Opened:
    quotas = Quotas(total_bytes=4 * LATENT_BYTES, low_water=1.0)
    return open_store(path, stack, clock, Options(quotas=quotas, ttl_s=TTL_S))


def test_entries_stay_and_new_ones_live_their_time(
    tmp_path: Path, open_store: Open, clock: Clock
) -> None:
    with ExitStack() as stack:
        served = opened(open_store, tmp_path, stack, clock)
        store = served.store
        refs = [save(store, entry_id, latents(number)) for number, entry_id in enumerate("ab")]
        Write.of("open", latents(7), lease_s=60.0).to(store)
        clock.advance(-DAY)
        assert served.sweep() == 0
        assert list_ids(store) == ["a", "b"]
        assert all(store.read_latent("", ref).ref == ref for ref in refs)
        assert store.commit_entry("", "open").committed
        save(store, "new", latents(9))
        clock.advance(TTL_S - 1.0)
        assert served.sweep() == 0
        clock.advance(1.0)
        assert served.sweep() == 1
        assert list_ids(store) == ["a", "b", "open"]


def test_a_lease_that_is_renewed_counts_from_the_new_time(
    tmp_path: Path, open_store: Open, clock: Clock
) -> None:
    with ExitStack() as stack:
        store = opened(open_store, tmp_path, stack, clock).store
        Write.of("open", lease_s=60.0).to(store)
        clock.advance(-DAY)
        store.renew_lease("", "open", 60.0)
        clock.advance(60.0)
        with pytest.raises(EntryNotFound):
            store.get_entry("", "open")


def test_who_was_used_before_the_jump_still_goes_first(
    tmp_path: Path, open_store: Open, clock: Clock
) -> None:
    """By their times the entries of after the jump would be a day older."""
    with ExitStack() as stack:
        store = opened(open_store, tmp_path, stack, clock).store
        refs = {entry_id: save(store, entry_id) for entry_id in "abc"}
        clock.advance(-DAY)
        save(store, "d")
        store.read_latent("", refs["a"])
        save(store, "e")
        save(store, "f")
        assert list_ids(store) == ["a", "d", "e", "f"]


def test_a_restart_after_the_jump_drops_nothing(tmp_path: Path, clock: Clock) -> None:
    with ExitStack() as stack:
        save(opened(open_lmdb, tmp_path, stack, clock).store, "a")
    clock.advance(-DAY)
    with ExitStack() as stack:
        served = opened(open_lmdb, tmp_path, stack, clock)
        assert served.sweep() == 0
        save(served.store, "b")
        assert list_ids(served.store) == ["a", "b"]
