"""The log of a store in S3: starts from checkpoints, late processes, records that are damaged."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import Clock, Write, latents, list_all, list_ids, save
from tests.servers.s3_proxy import Fault, S3Proxy, running_s3_proxy
from tests.servers.seaweedfs import shared_seaweedfs
from tests.unit.latent_kv.redis_worker import QUOTA_BYTES, work
from tests.unit.latent_kv.s3_under_test import Place, contents

from skipstone_latent_kv import s3_log, s3_replica, s3_upkeep
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.s3_log import SURE_S
from skipstone_latent_kv.s3_store import S3Store
from skipstone_shared.errors import FailedPrecondition, LatentNotFound, Unavailable
from skipstone_shared.stored_entries import EvictionKind

HOUR_S = 3600.0
FAULTS: list[Fault] = ["damaged", "short", "cut"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints come often, and nobody pauses for long."""
    monkeypatch.setattr(s3_upkeep, "_CHECKPOINT_RECORDS", 5)
    monkeypatch.setattr(s3_replica, "_PAUSE_S", 0.001)


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


def live_through(store: S3Store, steady: Clock, rounds: int = 6) -> None:
    """Makes records, checkpoints, and lets an hour pass again and again."""
    for i in range(rounds):
        for entry_id in ("a", "b"):
            ref = save(store, f"{entry_id}{i}", latents(i))
            store.read_latent("", ref)
        store.delete_entries("", [f"a{i}"])
        steady.advance(HOUR_S)
        store.sweep()


class TestStarts:
    def test_a_start_knows_all_that_was_acknowledged(self, place: Place) -> None:
        store = place.open()
        live_through(store, Clock(), rounds=2)
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
        live_through(store, steady)
        assert len(place.keys("checkpoints/")) == 2
        records = place.keys("log/")
        assert 0 < len(records) < 6 * 5
        later = place.open()
        assert list(contents(later)) == list(contents(store))
        assert later._replica.contents()[0] == store._replica.contents()[0]
        place.audit(later)

    def test_what_else_people_keep_beside_the_log_is_passed_over(self, place: Place) -> None:
        """Consoles make objects for folders, and somebody makes a copy."""
        number = f"{1:020d}"
        for kind in ("log", "checkpoints"):
            for name in ("", f"{number}.bak", f"old/{number}", "1", "latest"):
                place.put(f"{kind}/{name}", b"of somebody else")
        theirs = place.keys("")
        steady = Clock()
        store = place.open(steady_clock=steady)
        live_through(store, steady, rounds=4)
        assert f"log/{number}" not in place.keys("log/")
        assert set(theirs) <= set(place.keys(""))
        assert list(contents(place.open(steady_clock=steady))) == list(contents(store))

    def test_of_an_object_that_is_too_large_for_a_record_no_more_is_read(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(s3_log, "LARGEST_RECORD", 1000)
        for number in (1, 2):
            place.put(f"log/{number:020d}", bytes(number * 1000))
        log = s3_log.S3Log(place.bucket, Clock())
        assert [len(log.read(number) or b"") for number in (1, 2)] == [1000, 1000]
        assert [len(body or b"") for _, body in log.backlog()] == [1000, 1000]

    def test_a_damaged_checkpoint_is_done_without(self, place: Place) -> None:
        store = place.open()
        live_through(store, Clock(), rounds=3)
        before = list(contents(store))
        place.put(place.keys("checkpoints/")[-1], b"damaged")
        assert list(contents(place.open())) == before

    def test_a_start_whose_checkpoints_are_all_damaged_is_refused(self, place: Place) -> None:
        """It would take the store for an empty one, and delete what is in it."""
        store = place.open()
        live_through(store, Clock(), rounds=3)
        for key in place.keys("checkpoints/"):
            place.put(key, b"damaged")
        with pytest.raises(FailedPrecondition, match=r"none of the checkpoints.*truncated"):
            place.open()

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
        steady = Clock()
        later = place.open(steady_clock=steady)
        with pytest.raises(Unavailable, match="record 1 of the log"):
            list_ids(later)
        # The store that is still there knows the records that were deleted, and says so.
        store.sweep()
        steady.advance(2.0)
        assert later.read_latent("", new).ref == new
        place.audit(later)


class TestLateProcesses:
    def test_a_process_that_slept_while_the_log_went_on_begins_anew(self, place: Place) -> None:
        clocks = Clock(), Clock()
        sleeper = place.open(steady_clock=clocks[0])
        old = save(sleeper, "old")
        watch = sleeper.watch_evictions("")
        other = place.open(steady_clock=clocks[1])
        other.delete_entries("", ["old"])
        live_through(other, clocks[1])
        clocks[0].advance(9 * HOUR_S)
        with pytest.raises(LatentNotFound):
            sleeper.read_latent("", old)
        assert list(contents(sleeper)) == list(contents(other))
        assert next(watch).entry_id == "old"
        watch.close()
        ref = save(sleeper, "new")
        assert other.read_latent("", ref).ref == ref
        place.audit(other)

    @pytest.mark.parametrize("who", ["machine", "hypervisor"])
    def test_a_record_put_where_the_log_had_long_been_is_taken_back_and_made_anew(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, who: str
    ) -> None:
        """A process fell asleep between its last look at the log and its put.

        Or its machine was paused, so that its own clock stood still: S3 tells what time it is.
        """
        clocks = Clock(), Clock()
        sleeper = place.open(steady_clock=clocks[0])
        save(sleeper, "old")
        put_new = sleeper._bucket.put_new
        slept: list[str] = []

        def sleepy(key: str, data: bytes) -> bool:
            if not slept:
                slept.append(key)
                other = place.open(steady_clock=clocks[1])
                live_through(other, clocks[1])
                assert key not in place.keys("log/")
                if who == "machine":
                    clocks[0].advance(9 * HOUR_S)
                else:
                    sleeper._bucket.server_time += 9 * HOUR_S
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


class TestRecordsThatCannotBeRead:
    """Whoever went on without one would evict, expire and delete by a state of its own."""

    @pytest.mark.parametrize("fault", FAULTS)
    def test_one_that_comes_damaged_once_is_read_again(
        self, place: Place, proxy: S3Proxy, fault: Fault
    ) -> None:
        store = place.open(address={"endpoint": proxy.endpoint})
        other = place.open()
        save(other, "entry")
        proxy.spoil("GET", "/log/", fault)
        assert list_ids(store) == ["entry"]
        assert proxy.spoiled == 1
        assert list(contents(store)) == list(contents(other))
        assert store.totals().unreadable_records == 0

    def test_one_that_is_damaged_when_s3_goes_away_is_not_passed_over(
        self, place: Place, proxy: S3Proxy
    ) -> None:
        store = place.open(address={"endpoint": proxy.endpoint, "attempts": 1})
        other = place.open()
        save(other, "entry")
        proxy.spoil("GET", "/log/", "damaged", "refused")
        with pytest.raises(Unavailable, match="cannot serve just now"):
            list_ids(store)
        assert list_ids(store) == ["entry"]
        assert list(contents(store)) == list(contents(other))

    @pytest.mark.parametrize("fault", ["damaged", "short"])
    def test_a_process_for_which_one_is_always_damaged_goes_on_where_others_are_and_spares_theirs(
        self, place: Place, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch, fault: Fault
    ) -> None:
        steady = Clock()
        store = place.open(address={"endpoint": proxy.endpoint}, steady_clock=steady)
        other = place.open()
        ref = save(store, "ours")
        Write.of("theirs", lease_s=60.0).to(other)
        lost = len(place.keys("log/")) + 1
        proxy.spoil("GET", f"/log/{lost:020d}", fault, times=0)
        other.commit_entry("", "theirs")
        save(other, "later")
        values = place.value_keys()

        monkeypatch.setattr(s3_upkeep, "LEFTOVER_S", -60.0)
        place.clock.advance(HOUR_S)  # To a process that lacks the commit the lease is over.
        for call in (store.sweep, lambda: list_ids(store), lambda: save(store, "new")):
            with pytest.raises(Unavailable, match=f"record {lost} of the log"):
                call()
        assert store.read_latent("", ref).ref == ref
        assert store.totals().unreadable_records == 1
        assert set(values) <= set(place.value_keys())

        assert list_ids(other) == ["later", "ours", "theirs"]  # It answers by the way.
        steady.advance(2.0)
        assert list_ids(store) == ["later", "ours", "theirs"]
        assert proxy.spoiled > 1
        for swept in (store, other):
            swept.sweep()
        assert values == place.value_keys()
        place.audit(store)

    def test_one_that_can_be_read_again_later_is_no_longer_missed(
        self, place: Place, proxy: S3Proxy
    ) -> None:
        steady = Clock()
        store = place.open(address={"endpoint": proxy.endpoint}, steady_clock=steady)
        save(place.open(), "entry")
        proxy.spoil("GET", "/log/", "damaged", times=0)
        with pytest.raises(Unavailable):
            list_ids(store)
        proxy.heal()
        steady.advance(2.0)
        assert list_ids(store) == ["entry"]
        assert list(contents(place.open())) == list(contents(store))

    def test_one_is_not_given_up_before_others_were_asked_however_late_that_is(
        self, place: Place, proxy: S3Proxy
    ) -> None:
        """Sweeps are rare and nobody calls, or S3 is away: it was met long before it is told."""
        steady = Clock()
        store = place.open(address={"endpoint": proxy.endpoint}, steady_clock=steady)
        other = place.open()
        lost = len(place.keys("log/")) + 1
        proxy.spoil("GET", f"/log/{lost:020d}", "damaged", times=0)
        save(other, "entry")
        for _ in range(2):
            with pytest.raises(Unavailable, match=f"record {lost} of the log"):
                list_ids(store)
            steady.advance(SURE_S)
        assert list_ids(other) == ["entry"]  # It answers by the way.
        assert list(contents(store)) == list(contents(other))
        place.audit(store)

    def test_without_one_nothing_is_changed_before_that_is_so_for_all(
        self, place: Place, proxy: S3Proxy
    ) -> None:
        """Others would apply the change to a state that has what was given up."""
        save(place.open(), "entry")
        place.put(place.keys("log/")[-1], b"damaged")
        steady = Clock()
        store = place.open(address={"endpoint": proxy.endpoint, "attempts": 1}, steady_clock=steady)
        with pytest.raises(Unavailable, match="record 2 of the log"):
            store.sweep()
        steady.advance(SURE_S)
        records = place.keys("log/")
        proxy.spoil("PUT", "/checkpoints/", "refused")
        for problem in ("cannot serve just now", "record 2 of the log"):
            with pytest.raises(Unavailable, match=problem):
                save(store, "new")
        assert (place.keys("log/"), place.keys("checkpoints/")) == (records, [])
        steady.advance(2.0)
        save(store, "new")
        assert len(place.keys("checkpoints/")) == 1
        assert list(contents(place.open())) == list(contents(store))

    @pytest.mark.parametrize("damage", [b"damaged", None], ids=["damaged", "lost"])
    def test_one_that_nobody_knows_costs_its_own_changes_and_watchers_get_a_gap(
        self, place: Place, damage: bytes | None
    ) -> None:
        store = place.open()
        for entry_id in "abc":
            save(store, entry_id)
        store.close()
        (_, second, *_) = place.keys("log/")  # The commit of the first.
        place.bucket.delete([second])
        if damage is not None:
            place.put(second, damage)
        steady = Clock()
        later = place.open(steady_clock=steady)
        for _ in range(2):
            with pytest.raises(Unavailable, match="record 2 of the log"):
                later.sweep()
            steady.advance(SURE_S / 2)
        assert list_ids(later) == ["b", "c"]
        assert [event.kind for event in later._replica.events.events] == [EvictionKind.GAP]
        place.audit(later)
        again = place.open()  # It need not wait: there is a checkpoint.
        assert list(contents(again)) == list(contents(later))
        assert again.totals().unreadable_records == 0


@pytest.mark.long
def test_processes_agree_although_answers_are_damaged_and_refused_all_the_time(
    place: Place, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To two of three some records never come sound; whatever they do, no state is made up."""
    monkeypatch.setattr(s3_replica, "_REPAIR_S", 0.0)
    monkeypatch.setattr(s3_upkeep, "_CHECKPOINT_RECORDS", 50)
    quotas = Quotas(QUOTA_BYTES)
    proxies = [stack.enter_context(running_s3_proxy(place.server.endpoint)) for _ in range(3)]
    stores = [
        place.open(address={"endpoint": p.endpoint, "attempts": 1}, quotas=quotas) for p in proxies
    ]

    def never_sound(path: str) -> bool:
        return bool(re.search(r"/log/\d*[05]7(\?|$)", path))

    def spoil(number: int, proxy: S3Proxy) -> None:
        rng = random.Random(number)

        def choose(method: str, path: str) -> Fault | None:
            if method == "GET" and re.search(r"/log/\d", path):
                if number and never_sound(path):
                    return "damaged"
                if rng.random() < 0.05:
                    return rng.choice(FAULTS)
            return "refused" if rng.random() < 0.01 else None

        proxy.spoil_as(choose)

    def use(number: int) -> None:
        rng = random.Random(number)
        spoil(number, proxies[number])
        for i in range(150):
            with suppress(Unavailable):
                work(stores[number], rng)
                if i % 10 == 9:
                    stores[number].sweep()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(use, range(3)))
    damaged = [store.totals().unreadable_records or 0 for store in stores]
    assert damaged[0] == 0
    assert min(damaged[1:]) > 0
    for proxy in proxies:
        proxy.heal()
    for store in stores * 2:  # The second ends what the first has seen to be left.
        store.sweep()
    place.pass_time()
    stores[0].sweep()
    later = place.open(quotas=quotas)
    for store in stores:
        assert list_all(store) == list_all(later)
    place.audit(later)
