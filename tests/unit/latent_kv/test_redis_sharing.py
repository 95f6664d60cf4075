"""Several processes on one store in Redis: what one does, all see, and no two disagree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Write, latents, list_ids, save
from tests.servers.redis_server import RedisServer, shared_redis
from tests.unit.latent_kv.redis_under_test import Place
from tests.unit.latent_kv.redis_worker import QUOTA_BYTES

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import FirstInFirstOut
from skipstone_latent_kv.memory_tier import MemoryTier
from skipstone_shared.errors import FingerprintMismatch, LatentNotFound, QuotaExceeded
from skipstone_shared.stored_entries import EvictionKind


@pytest.fixture
def place() -> Iterator[Place]:
    with capture_logs(), ExitStack() as stack:
        yield Place(shared_redis(), stack)


def worker(place: Place, seed: int, rounds: int) -> subprocess.Popen[str]:
    assert isinstance(place.servers, RedisServer)
    arguments = [place.servers.url, place.prefix, str(seed), str(rounds)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.latent_kv.redis_worker", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process


def begun(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "working\n"


class TestTwoStores:
    def test_what_one_writes_and_commits_the_other_reads_and_lists(self, place: Place) -> None:
        one, other = place.open(), place.open()
        write = Write.of("entry")
        ref = write.to(one)
        other.commit_entry("", "entry")
        assert bytes(other.read_latent("", ref).data) == write.all_bytes
        assert list_ids(one) == ["entry"]
        other.close()
        assert one.get_entry("", "entry").read_count == 1

    def test_the_quota_and_the_order_of_eviction_are_those_of_all(self, place: Place) -> None:
        quotas = Quotas(total_bytes=3 * LATENT_BYTES)
        one, other = place.open(quotas=quotas), place.open(quotas=quotas)
        refs = {entry_id: save(one, entry_id) for entry_id in "abc"}
        other.read_latent("", refs["a"])
        save(other, "d")
        assert list_ids(one) == ["a", "c", "d"]
        one.pin_entries("", ["a", "c", "d"], True)
        with pytest.raises(QuotaExceeded):
            save(other, "e")

    def test_each_sees_the_removals_of_the_other_in_one_numbered_order(self, place: Place) -> None:
        one, other = place.open(), place.open()
        watches = [store.watch_evictions("") for store in (one, other)]
        for entry_id in "abcd":
            save(one, entry_id)
        one.delete_entries("", ["a"])
        other.delete_entries("", ["b"])
        one.delete_entries("", ["c"])
        other.delete_namespace("")
        seen = [[next(watch) for _ in range(4)] for watch in watches]
        for watch in watches:
            watch.close()
        assert seen[0] == seen[1]
        assert [(e.kind, e.entry_id) for e in seen[0]] == [
            (EvictionKind.DELETED, entry_id) for entry_id in "abcd"
        ]

    def test_a_watch_goes_on_at_another_process(self, place: Place) -> None:
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

    def test_a_policy_of_a_later_process_orders_what_is_there(self, place: Place) -> None:
        """And from then on all processes evict by it."""
        quotas = Quotas(total_bytes=2 * LATENT_BYTES)
        early = place.open(quotas=quotas)
        ref = save(early, "first")
        save(early, "second")
        early.read_latent("", ref)
        place.open(quotas=quotas, policy=FirstInFirstOut())
        save(early, "third")
        assert list_ids(early) == ["second", "third"]

    def test_a_start_that_died_while_it_ordered_is_made_good_by_the_next(
        self, place: Place
    ) -> None:
        quotas = Quotas(total_bytes=2 * LATENT_BYTES)
        early = place.open(quotas=quotas)
        ref = save(early, "first")
        save(early, "second")
        early.read_latent("", ref)
        header = early._catalog._header
        fifo = (*header[:2], "fifo", "1")
        early._catalog._header = fifo
        early._catalog._call("setup", "1", *fifo[2:])  # It dies here.
        later = place.open(quotas=quotas, policy=FirstInFirstOut())
        save(later, "third")
        assert list_ids(later) == ["second", "third"]

    def test_a_memory_tier_serves_nothing_that_another_process_replaced(self, place: Place) -> None:
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


class TestRealProcesses:
    def test_processes_that_work_on_the_same_entries_keep_exact_totals(self, place: Place) -> None:
        workers = [worker(place, seed, 40) for seed in range(3)]
        for process in workers:
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
        store = place.open(quotas=Quotas(QUOTA_BYTES), clock=None)
        store.sweep()
        place.audit(store)

    def test_processes_that_are_killed_leave_nothing_behind(self, place: Place) -> None:
        for seed in range(2):
            process = worker(place, seed, 1_000_000)
            assert begun(process)
            store = place.open(clock=None)
            # The kill comes while it writes, wherever it is just then.
            while store.totals().removals[EvictionKind.CAPACITY] < 10 * (seed + 1):
                pass
            process.kill()
            process.communicate()
        seconds, _ = place.raw.execute("TIME")
        place.clock.now = float(seconds) + 901.0
        later = place.open()
        later.sweep()
        place.audit(later)
