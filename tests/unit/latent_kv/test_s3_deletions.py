"""Whoever is told that entries are deleted can rely on it: their bytes are no longer in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Clock, Write, latents, list_ids, save
from tests.servers.s3_proxy import S3Proxy, running_s3_proxy
from tests.servers.seaweedfs import shared_seaweedfs
from tests.unit.latent_kv.s3_under_test import Place

from skipstone_latent_kv import s3_store, s3_upkeep
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.s3_store import S3Store
from skipstone_shared.errors import (
    EntryNotFound,
    FailedPrecondition,
    LatentNotFound,
    QuotaExceeded,
    Unavailable,
)

DELETIONS: list[Callable[[S3Store], object]] = [
    lambda store: store.delete_entries("", ["entry"]),
    lambda store: store.delete_namespace(""),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with capture_logs(), ExitStack() as stack:
        yield stack


@pytest.fixture
def place(stack: ExitStack) -> Place:
    return Place(shared_seaweedfs(), stack)


@pytest.fixture
def proxy(place: Place, stack: ExitStack) -> S3Proxy:
    return stack.enter_context(running_s3_proxy(place.server.endpoint))


@pytest.fixture
def store(place: Place, proxy: S3Proxy) -> S3Store:
    """A store whose S3 deletes nothing from now on; the log goes on."""
    store = place.open(address={"endpoint": proxy.endpoint, "attempts": 1})
    proxy.spoil("POST", "?delete", "refused", times=0)
    return store


@pytest.mark.parametrize("delete", DELETIONS, ids=["entries", "namespace"])
def test_nobody_is_told_that_something_is_deleted_that_is_still_in_s3(
    place: Place, proxy: S3Proxy, store: S3Store, delete: Callable[[S3Store], object]
) -> None:
    ref = save(store, "entry")
    Write.of("entry", step_index=9).to(store)
    for _ in range(2):
        with pytest.raises(Unavailable, match="still in S3"):
            delete(store)
    # Nor those who look whether it is deleted, as `skipstone entries verify-deleted` does.
    with pytest.raises(Unavailable, match="still in S3"):
        store.get_entry("", "entry")
    with pytest.raises(Unavailable, match="still in S3"):
        store.list_entries("")
    assert len(place.value_keys()) == 2
    with pytest.raises(LatentNotFound):
        store.read_latent("", ref)
    assert store.totals().undeleted_values == 2
    proxy.heal()
    delete(store)
    assert place.value_keys() == []
    assert list_ids(store) == []
    store.sweep()
    assert store.totals().undeleted_values == 0


def test_another_process_deletes_what_is_left_before_it_says_that_nothing_is(
    place: Place, store: S3Store
) -> None:
    other = place.open()
    ref = save(store, "entry")
    save(store, "kept")
    other.read_latent("", ref)
    with pytest.raises(Unavailable):
        store.delete_entries("", ["entry"])
    with pytest.raises(EntryNotFound):
        other.get_entry("", "entry")
    assert len(place.value_keys()) == 1
    place.audit(other)


@pytest.mark.parametrize("checkpoint", [False, True], ids=["log", "checkpoint"])
def test_what_a_process_left_when_it_died_goes_with_a_sweep_of_a_later_one(
    place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch, checkpoint: bool
) -> None:
    save(store, "entry")
    save(store, "kept")
    with pytest.raises(Unavailable):
        store.delete_entries("", ["entry"])
    store.close()
    monkeypatch.setattr(s3_upkeep, "_CHECKPOINT_RECORDS", 1 if checkpoint else 1000)
    place.open().sweep()
    assert bool(place.keys("checkpoints/")) == checkpoint
    steady = Clock()
    later = place.open(steady_clock=steady)
    later.sweep()
    assert len(place.value_keys()) == 2  # Its own process might still be at it.
    steady.advance(60.0)
    later.sweep()
    assert len(place.value_keys()) == 1
    later.sweep()
    assert later.totals().undeleted_values == 0
    place.audit(later)


def test_a_server_that_forbids_deletion_is_told_so(
    place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers a deletion of many with 200, and what it forbids in the body."""
    save(store, "entry")

    def forbids(**arguments: object) -> object:
        return {"Errors": [{"Key": "key", "Code": "AccessDenied"}]}

    monkeypatch.setattr(store._bucket._client, "delete_objects", forbids)
    with pytest.raises(FailedPrecondition, match="must be allowed"):
        store.delete_entries("", ["entry"])


def test_what_is_replaced_while_s3_deletes_nothing_is_no_trouble_of_its_writer(
    place: Place, proxy: S3Proxy, store: S3Store
) -> None:
    save(store, "entry")
    ref = save(store, "entry", latents(1))
    assert store.get_entry("", "entry").snapshots[0].ref == ref
    assert list_ids(store) == ["entry"]
    assert len(place.value_keys()) == 2
    proxy.heal()
    store.delete_entries("", ["entry"])
    assert place.value_keys() == []


def test_what_ended_is_deleted_although_the_write_that_noticed_it_is_refused(place: Place) -> None:
    store = place.open(quotas=Quotas(total_bytes=2 * LATENT_BYTES))
    Write.of("ended", lease_s=10.0).to(store)
    save(store, "kept")
    store.pin_entries("", ["kept"], True)
    place.clock.advance(20.0)
    with pytest.raises(QuotaExceeded):
        Write.of("large", latents(size_bytes=2 * LATENT_BYTES)).to(store)
    assert list_ids(store) == ["kept"]
    assert len(place.value_keys()) == 1
    place.audit(store)


def test_who_looks_while_a_large_namespace_is_deleted_does_not_join_in(
    place: Place, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "_DELETED_BY_THE_WAY", 1)
    for entry_id in "abc":
        save(store, entry_id)
    with pytest.raises(Unavailable, match="still in S3"):
        store.delete_namespace("")
    other = place.open()
    with pytest.raises(Unavailable, match="3 values of removed entries are being deleted"):
        list_ids(other)
    assert len(place.value_keys()) == 3
    other.delete_namespace("")
    assert list_ids(other) == []
    assert place.value_keys() == []
