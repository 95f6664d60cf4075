"""Several processes on one store in S3: one log, which all read alike, however late."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import LATENT_BYTES, Clock, Write, latents, list_ids, save
from tests.servers.seaweedfs import shared_seaweedfs
from tests.unit.latent_kv.redis_worker import QUOTA_BYTES
from tests.unit.latent_kv.s3_under_test import Place, contents

from skipstone_latent_kv import s3_upkeep
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.memory_tier import MemoryTier
from skipstone_latent_kv.s3_store import S3Store
from skipstone_shared.errors import FingerprintMismatch, LatentNotFound, QuotaExceeded
from skipstone_shared.stored_entries import EvictionKind

HOUR_S = 3600.0


@pytest.fixture
def place() -> Iterator[Place]:
    with capture_logs(), ExitStack() as stack:
        yield Place(shared_seaweedfs(), stack)


def worker(place: Place, seed: int, rounds: int) -> subprocess.Popen[str]:
    address = place.server.address
    arguments = [address.endpoint, address.bucket, str(address.credentials_file), place.prefix]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.unit.latent_kv.s3_worker"),
            *arguments,
            *(str(seed), str(rounds)),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
        place.audit(one)

    def test_each_sees_the_removals_of_the_other_in_one_numbered_order(self, place: Place) -> None:
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
        assert [(e.kind, e.entry_id) for e in seen[0]] == [
            (EvictionKind.DELETED, entry_id) for entry_id in "abcd"
        ]

    def test_a_read_sees_what_another_process_has_just_replaced(self, place: Place) -> None:
        one, other = place.open(), place.open()
        old = save(one, "entry")
        other.read_latent("", old)
        write = Write.of("entry", latents(1))
        new = write.to(one)
        with pytest.raises(FingerprintMismatch):
            other.read_latent("", old)
        assert bytes(other.read_latent("", new).data) == write.all_bytes

    def test_a_memory_tier_serves_nothing_that_another_process_replaced(self, place: Place) -> None:
        one = MemoryTier(place.open(), 1 << 20)
        other = place.open()
        old = save(one, "entry")
        one.read_latent("", old)
        new = Write.of("entry", latents(1)).to(other)
        with pytest.raises(FingerprintMismatch):
            one.read_latent("", old)
        one.read_latent("", new)
        other.delete_entries("", ["entry"])
        with pytest.raises(LatentNotFound):
            one.read_latent("", new)


class TestTheLog:
    """Starts from checkpoints, damaged records, and processes that slept."""

    @pytest.fixture(autouse=True)
    def checkpoint_often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(s3_upkeep, "_CHECKPOINT_RECORDS", 5)

    def work(self, store: S3Store, steady: Clock, rounds: int = 6) -> None:
        """Makes records, checkpoints, and lets an hour pass again and again."""
        for i in range(rounds):
            for entry_id in ("a", "b"):
                ref = save(store, f"{entry_id}{i}", latents(i))
                store.read_latent("", ref)
            store.delete_entries("", [f"a{i}"])
            steady.advance(HOUR_S)
            store.sweep()

    def test_a_start_knows_all_that_was_acknowledged(self, place: Place) -> None:
        store = place.open()
        self.work(store, Clock(), rounds=2)
        store.pin_entries("", ["b0"], True)
        Write.of("open", lease_s=60.0).to(store)
        later = place.open()
        assert list(contents(later)) == list(contents(store))
        again = later.watch_evictions("", 1)
        assert next(again).entry_id == "a1"
        again.close()

    def test_records_in_checkpoints_that_are_old_are_deleted_and_a_start_misses_nothing(
        self, place: Place
    ) -> None:
        steady = Clock()
        store = place.open(steady_clock=steady)
        self.work(store, steady)
        assert len(place.keys("checkpoints/")) == 2
        records = place.keys("log/")
        assert 0 < len(records) < 6 * 5
        later = place.open()
        assert list(contents(later)) == list(contents(store))
        assert later._entries._log.position == store._entries._log.position
        place.audit(later)

    def test_a_process_that_slept_while_the_log_went_on_begins_anew(self, place: Place) -> None:
        clocks = Clock(), Clock()
        sleeper = place.open(steady_clock=clocks[0])
        old = save(sleeper, "old")
        watch = sleeper.watch_evictions("")
        other = place.open(steady_clock=clocks[1])
        other.delete_entries("", ["old"])
        self.work(other, clocks[1])
        clocks[0].advance(9 * HOUR_S)
        with pytest.raises(LatentNotFound):
            sleeper.read_latent("", old)
        assert list(contents(sleeper)) == list(contents(other))
        assert next(watch).entry_id == "old"
        watch.close()
        ref = save(sleeper, "new")
        assert other.read_latent("", ref).ref == ref
        place.audit(other)

    def test_a_record_put_where_the_log_had_long_been_is_taken_back_and_made_anew(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process fell asleep between its last look at the log and its put."""
        clocks = Clock(), Clock()
        sleeper = place.open(steady_clock=clocks[0])
        save(sleeper, "old")
        put_new = sleeper._bucket.put_new
        slept: list[str] = []

        def sleepy(key: str, data: bytes) -> bool:
            if not slept:
                slept.append(key)
                other = place.open(steady_clock=clocks[1])
                self.work(other, clocks[1])
                assert key not in place.keys("log/")
                clocks[0].advance(9 * HOUR_S)
            return put_new(key, data)

        monkeypatch.setattr(sleeper._bucket, "put_new", sleepy)
        sleeper.pin_entries("", ["old"], True)
        assert slept
        assert not set(slept) & set(place.keys("log/"))
        later = place.open()
        assert later.get_entry("", "old").pinned
        assert list(contents(later)) == list(contents(sleeper))
        assert "b5" in list_ids(sleeper)
        place.audit(later)

    def test_a_damaged_checkpoint_is_done_without(self, place: Place) -> None:
        store = place.open()
        self.work(store, Clock(), rounds=3)
        before = list(contents(store))
        place.put(place.keys("checkpoints/")[-1], b"damaged")
        assert list(contents(place.open())) == before

    @pytest.mark.parametrize("damage", [b"damaged", None], ids=["damaged", "lost"])
    def test_a_damaged_record_costs_its_own_changes_and_watchers_get_a_gap(
        self, place: Place, damage: bytes | None
    ) -> None:
        store = place.open()
        for entry_id in "abc":
            save(store, entry_id)
        place.open().close()
        (_, second, *_) = place.keys("log/")  # The commit of the first.
        place.bucket.delete([second])
        if damage is not None:
            place.put(second, damage)
        later = place.open()
        assert list_ids(later) == ["b", "c"]
        assert [event.kind for event in later._entries.events.events] == [EvictionKind.GAP]
        place.audit(later)

    def test_after_everything_was_deleted_it_is_a_miss_and_the_store_works_on(
        self, place: Place
    ) -> None:
        store = place.open()
        ref = save(store, "entry")
        place.bucket.delete(place.keys(""))
        with pytest.raises(LatentNotFound):
            store.read_latent("", ref)
        new = save(store, "new")
        assert store.read_latent("", new).ref == new
        later = place.open()
        assert later.read_latent("", new).ref == new
        place.audit(later)


class TestRealProcesses:
    def test_processes_that_work_on_the_same_entries_keep_exact_totals(self, place: Place) -> None:
        workers = [worker(place, seed, 20) for seed in range(2)]
        for process in workers:
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
        store = place.open(quotas=Quotas(QUOTA_BYTES))
        place.audit(store)

    @pytest.mark.long
    def test_processes_that_are_killed_leave_nothing_behind(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        process = worker(place, 1, 1_000_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        store = place.open()
        # The kill comes while it writes, wherever it is just then.
        while len(store._entries.events.events) < 10:
            store._entries.refresh()
        process.kill()
        process.communicate()
        monkeypatch.setattr(s3_upkeep, "LEFTOVER_S", -60.0)
        place.clock.now = 5e9
        later = place.open()
        later.sweep()
        place.audit(later)
