"""Several processes on one store: what one does all see, and no two disagree.

A store that is shared is one line in PLACES.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Write, latents, list_ids, save
from tests.servers.redis_server import shared_redis
from tests.servers.seaweedfs import shared_seaweedfs
from tests.unit.latent_kv import redis_under_test, s3_under_test
from tests.unit.latent_kv.redis_worker import QUOTA_BYTES

from skipstone_latent_kv.__main__ import ServedStore
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.memory_tier import MemoryTier
from skipstone_shared.errors import FingerprintMismatch, LatentNotFound, QuotaExceeded
from skipstone_shared.stored_entries import EvictionKind


class Place(Protocol):
    """Where the stores of a test meet."""

    real_clock: Any
    """The clock of stores that work beside real processes."""

    def open(self, **options: Any) -> Any:
        """Another store, as another process would open it."""
        ...

    def worker(self, seed: int, rounds: int) -> Sequence[str]:
        """The command of a process that writes, reads and deletes here."""
        ...

    def pass_time(self) -> None:
        """Lets so much time pass that leases and what dead processes left are over."""
        ...

    def audit(self, store: Any) -> None:
        """Asserts that everything here says the same."""
        ...


PLACES: dict[str, Callable[[ExitStack], Place]] = {
    "redis": lambda stack: redis_under_test.Place(shared_redis(), stack),
    "s3": lambda stack: s3_under_test.Place(shared_seaweedfs(), stack),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with capture_logs(), ExitStack() as stack:
        yield PLACES[request.param](stack)


def started(place: Place, seed: int, rounds: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *place.worker(seed, rounds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_one_writes_and_commits_the_other_reads_and_lists(place: Place) -> None:
    one, other = place.open(), place.open()
    write = Write.of("entry")
    ref = write.to(one)
    other.commit_entry("", "entry")
    assert bytes(other.read_latent("", ref).data) == write.all_bytes
    assert list_ids(one) == ["entry"]
    other.close()
    assert one.get_entry("", "entry").read_count == 1


def test_the_quota_and_the_order_of_eviction_are_those_of_all(place: Place) -> None:
    quotas = Quotas(total_bytes=3 * LATENT_BYTES)
    one, other = place.open(quotas=quotas), place.open(quotas=quotas)
    refs = {entry_id: save(one, entry_id) for entry_id in "abc"}
    other.read_latent("", refs["a"])
    save(other, "d")
    assert list_ids(one) == ["a", "c", "d"]
    one.pin_entries("", ["a", "c", "d"], True)
    with pytest.raises(QuotaExceeded):
        save(other, "e")
    place.audit(one)


def test_each_sees_the_removals_of_the_other_in_one_numbered_order(place: Place) -> None:
    one, other = place.open(), place.open()
    watches = [store.watch_evictions("") for store in (one, other)]
    for entry_id in "abcd":
        save(one, entry_id)
    one.delete_entries("", ["a"])
    other.delete_entries("", ["b"])
    one.delete_entries("", ["c"])
    other.delete_namespace("")
    one.sweep()
    seen = [[next(watch) for _ in range(4)] for watch in watches]
    for watch in watches:
        watch.close()
    assert seen[0] == seen[1]
    assert [(event.kind, event.entry_id) for event in seen[0]] == [
        (EvictionKind.DELETED, entry_id) for entry_id in "abcd"
    ]


def test_a_watch_goes_on_at_another_process(place: Place) -> None:
    one, other = place.open(), place.open()
    watch = one.watch_evictions("")
    for entry_id in "ab":
        save(one, entry_id)
        one.delete_entries("", [entry_id])
    seen = next(watch)
    one.close()
    again = other.watch_evictions("", seen.sequence)
    assert next(again).entry_id == "b"
    again.close()


def test_a_read_sees_what_another_process_has_just_replaced(place: Place) -> None:
    one, other = place.open(), place.open()
    old = save(one, "entry")
    other.read_latent("", old)
    write = Write.of("entry", latents(1))
    new = write.to(one)
    with pytest.raises(FingerprintMismatch):
        other.read_latent("", old)
    assert bytes(other.read_latent("", new).data) == write.all_bytes


def test_a_memory_tier_serves_nothing_that_another_process_replaced(place: Place) -> None:
    one = MemoryTier(place.open(), 1 << 20)
    other = place.open()
    old = save(one, "entry")
    one.read_latent("", old)
    write = Write.of("entry", latents(1))
    new = write.to(other)
    with pytest.raises(FingerprintMismatch):
        one.read_latent("", old)
    assert bytes(one.read_latent("", new).data) == write.all_bytes
    other.delete_entries("", ["entry"])
    with pytest.raises(LatentNotFound):
        one.read_latent("", new)


def test_processes_that_work_on_the_same_entries_keep_exact_totals(place: Place) -> None:
    workers = [started(place, seed, 20) for seed in range(2)]
    for process in workers:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors
    store = place.open(quotas=Quotas(QUOTA_BYTES), clock=place.real_clock)
    store.sweep()
    place.audit(store)


@pytest.mark.parametrize(
    "place", ["redis", pytest.param("s3", marks=pytest.mark.long)], indirect=True
)
def test_processes_that_are_killed_leave_nothing_behind(place: Place) -> None:
    store: ServedStore = place.open(clock=place.real_clock)
    for seed in range(2):
        process = started(place, seed, 1_000_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        # The kill comes while it writes, wherever it is just then.
        while store.totals().removals.get(EvictionKind.CAPACITY, 0) < 10 * (seed + 1):
            store.get_stats("")
        process.kill()
        process.communicate()
    place.pass_time()
    later = place.open()
    later.sweep()
    place.audit(later)
