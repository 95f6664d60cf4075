"""Entries move from one store to another while both are used, whatever the stores are."""

from __future__ import annotations

import dataclasses
import queue
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import (
    LATENT_BYTES,
    Clock,
    Open,
    Options,
    Write,
    latents,
    list_all,
    list_ids,
    open_lmdb,
    open_memory,
    open_redis_at,
    open_redis_cluster,
    open_s3,
    save,
)
from tests.e2e.processes import wait_until
from tests.hanging import Hanging
from tests.servers.redis_server import running_redis

from skipstone_client.migration_run import MoveOptions, Mover
from skipstone_latent_kv import group_commit
from skipstone_latent_kv.entry_locks import EntryLocks
from skipstone_latent_kv.entry_table import EntryKey
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import FirstInFirstOut
from skipstone_latent_kv.forwarding_store import ForwardingStore
from skipstone_latent_kv.lmdb_environment import LmdbEnvironment
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.mirrored_store import MirroredStore
from skipstone_latent_kv.movable_store import MovableStore
from skipstone_latent_kv.store import LatentStore
from skipstone_latent_kv.store_mover import StoreMover
from skipstone_shared.errors import (
    DeadlineExceeded,
    EntryNotFound,
    InvalidArgument,
    LatentNotFound,
    QuotaExceeded,
    Unavailable,
)
from skipstone_shared.migration import MigrationStep
from skipstone_shared.migration_mirror import AWAY_S, Mirror
from skipstone_shared.request_context import remaining_s, request_scope
from skipstone_shared.stored_entries import StoredEntry

MakeBoth = Callable[..., "Both"]
STEP_BYTES = 1 << 30
WAIT_S = 60.0
SHORT_S = 0.05


class Both:
    """A source, a target, and what moves entries between them."""

    def __init__(self, source: MovableStore, target: MovableStore, clock: Clock) -> None:
        self.source = source
        self.target = target
        self.clock = clock
        self.monotonic = 0.0
        self.begin()

    def begin(self, bound_s: float = WAIT_S) -> None:
        """As a service that starts: with the stores as they are and no memory of its own."""
        mirror = Mirror("latent_kv", bound_s, lambda: self.monotonic)
        self.store = MirroredStore(self.source, self.target, mirror)
        self.mover = StoreMover(self.store, self.clock, bound_s)

    @property
    def missed(self) -> int:
        return self.store.mirror.missed().count

    def run_pass(self, max_bytes: int = STEP_BYTES, verify: bool = False) -> list[MigrationStep]:
        steps = [self.mover.step("", max_bytes, verify)]
        while steps[-1].next_page_token:
            steps.append(self.mover.step(steps[-1].next_page_token, max_bytes, verify))
        return steps

    def move(self) -> None:
        """Passes until one finds nothing to do; the stores are equal then, removals included."""
        while any(s.copied or s.removed or s.refused for s in self.run_pass()):
            pass
        assert contents(self.target) == contents(self.source)


def contents(store: MovableStore) -> dict[tuple[str, str], Any]:
    """All that a store knows, bytes included, read without a use."""
    return {
        (namespace, entry.entry_id): (
            *(entry.snapshots, entry.committed, entry.pinned, entry.read_count),
            *(round(t, 3) for t in (entry.create_time, entry.access_time)),
            [bytes(store.peek_latent(namespace, s.ref).data) for s in entry.snapshots],
        )
        for namespace in store.namespaces()
        for entry in _all_entries(store, namespace)
    }


def _all_entries(store: LatentStore, namespace: str) -> Iterator[StoredEntry]:
    token = ""
    while True:
        page = store.list_entries(namespace, 7, token, include_uncommitted=True)
        yield from page.entries
        token = page.next_page_token
        if not token:
            return


def movable(opened: LatentStore) -> MovableStore:
    assert isinstance(opened, MovableStore)
    return opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


PAIRS = [
    pytest.param((open_memory, open_memory), id="memory-memory"),
    pytest.param((open_lmdb, open_redis_cluster), id="lmdb-cluster"),
    pytest.param((open_redis_cluster, open_lmdb), id="cluster-lmdb"),
    pytest.param((open_lmdb, open_s3), id="lmdb-s3", marks=pytest.mark.long),
    pytest.param((open_s3, open_redis_cluster), id="s3-cluster", marks=pytest.mark.long),
]


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[Open, Open]:
    found: tuple[Open, Open] = request.param
    return found


@pytest.fixture
def make_both(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Callable[..., Both]]:
    with capture_logs(), ExitStack() as stack:

        def make(
            source: Open = open_memory,
            target: Open = open_memory,
            of_target: dict[str, Any] | None = None,
            **options: Any,
        ) -> Both:
            one = source(tmp_path / "source", stack, clock, Options(**options))
            other = target(
                tmp_path / "target", stack, clock, Options(**(options | (of_target or {})))
            )
            return Both(movable(one.store), movable(other.store), clock)

        yield make


@pytest.fixture
def both(make_both: MakeBoth) -> Both:
    return make_both()


class TestBetweenAllKinds:
    def test_everything_an_entry_is_and_was_moves(
        self, make_both: MakeBoth, pair: tuple[Open, Open], clock: Clock
    ) -> None:
        """Bytes, metadata, namespaces, pins, times, reads; and moving is no use of an entry."""
        both = make_both(*pair)
        for name in "abc":
            clock.advance(10.0)
            ref = Write.of(name, latents(ord(name)), namespace="x").to(both.source)
            Write.of(name, latents(ord(name) + 1), step_index=9, namespace="x").to(both.source)
            both.source.commit_entry("x", name)
        save(both.source, "d", namespace="y")
        both.source.pin_entries("x", ["b"], True)
        clock.advance(10.0)
        both.source.read_latent("x", ref)
        clock.advance(10.0)
        before = contents(both.source)
        (step,) = both.run_pass()
        assert (step.compared, step.copied, step.removed, step.source_entries) == (4, 4, 0, 4)
        assert step.copied_bytes == 7 * LATENT_BYTES
        assert contents(both.source) == before
        assert contents(both.target) == before
        (step,) = both.run_pass(verify=True)
        assert (step.compared, step.copied, step.refused) == (4, 0, ())

    def test_what_is_deleted_meanwhile_does_not_come_back(
        self, make_both: MakeBoth, pair: tuple[Open, Open]
    ) -> None:
        """Deleted before it was copied, after it was, and while no service mirrored at all."""
        both = make_both(*pair)
        for name in ("before", "after", "without", "kept"):
            save(both.source, name)
        save(both.source, "entry", namespace="gone")
        both.store.delete_entries("", ["before"])
        both.run_pass()
        assert both.store.delete_entries("", ["after", "never"]) == [True, False]
        assert both.store.delete_namespace("gone") == 1
        both.source.delete_entries("", ["without"])
        both.begin()
        assert sum(step.removed for step in both.run_pass()) == 1
        assert list_ids(both.target) == ["kept"]
        assert both.target.namespaces() == ["default"]

    def test_what_is_written_meanwhile_is_in_both_at_once(
        self, make_both: MakeBoth, pair: tuple[Open, Open]
    ) -> None:
        both = make_both(*pair)
        save(both.source, "old", latents(1))
        both.run_pass()
        new = save(both.store, "new", latents(2))
        again = save(both.store, "old", latents(3))
        both.store.pin_entries("", ["old", "new"], True)
        both.store.pin_entries("", ["new"], False)
        for ref in (new, again):
            assert both.target.peek_latent("", ref).ref == ref
        assert [entry.pinned for entry in list_all(both.target)] == [False, True]
        both.move()

    def test_the_target_evicts_in_the_order_of_use_in_the_source(
        self, make_both: MakeBoth, pair: tuple[Open, Open], clock: Clock
    ) -> None:
        both = make_both(*pair, quotas=Quotas(total_bytes=4 * LATENT_BYTES))
        refs = {}
        for name in "abcd":
            clock.advance(1.0)
            refs[name] = save(both.source, name)
        for name in "ca":
            clock.advance(1.0)
            both.source.read_latent("", refs[name])
        both.move()
        clock.advance(1.0)
        left = []
        for new in "wxyz":
            save(both.target, new)
            left.append("".join(list_ids(both.target)))
        assert left == ["acdw", "acwx", "awxy", "wxyz"]

    def test_a_time_to_live_counts_from_the_creation_in_the_source(
        self, make_both: MakeBoth, pair: tuple[Open, Open], clock: Clock
    ) -> None:
        both = make_both(*pair, ttl_s=100.0)
        save(both.source, "old")
        clock.advance(60.0)
        save(both.store, "young")
        both.move()
        clock.advance(40.0)
        assert list_ids(both.target) == ["young"]

    def test_a_save_under_way_goes_on_after_the_switch(
        self, make_both: MakeBoth, pair: tuple[Open, Open], clock: Clock
    ) -> None:
        """A run that began before the move and ends after it."""
        both = make_both(*pair)
        first = Write.of("entry", latents(1), lease_s=60.0).to(both.source)
        both.move()
        (entry,) = _all_entries(both.target, "")
        assert entry.lease_expire_time == pytest.approx(clock.now + 60.0)
        Write.of("entry", latents(2), step_index=9).to(both.target)
        entry = both.target.commit_entry("", "entry")
        assert [s.ref.step_index for s in entry.snapshots] == [5, 9]
        assert both.target.read_latent("", first).ref == first


class TestOrder:
    def test_first_in_first_out_goes_by_creation_in_the_source(
        self, make_both: MakeBoth, clock: Clock
    ) -> None:
        both = make_both(quotas=Quotas(total_bytes=2 * LATENT_BYTES), policy=FirstInFirstOut())
        for name in "ba":
            clock.advance(1.0)
            save(both.source, name)
        both.move()
        save(both.target, "c")
        assert list_ids(both.target) == ["a", "c"]

    def test_a_target_with_less_room_keeps_what_was_used_last(
        self, make_both: MakeBoth, clock: Clock
    ) -> None:
        both = make_both(of_target={"quotas": Quotas(total_bytes=3 * LATENT_BYTES)})
        for name in "febdca":
            clock.advance(1.0)
            save(both.source, name)
        both.run_pass()
        kept = set(list_ids(both.target))
        assert len(kept) == 3
        assert {"a", "c"} <= kept  # the last one copied stands in for one place
        assert any(step.copied for step in both.run_pass()), "it never has everything"


class TestEvictionsOfTheSource:
    def test_what_the_source_evicts_is_removed_from_the_target(self, make_both: MakeBoth) -> None:
        both = make_both(
            quotas=Quotas(total_bytes=2 * LATENT_BYTES), of_target={"quotas": Quotas()}
        )
        save(both.source, "a")
        both.run_pass()
        for name in "bc":
            save(both.store, name)
        assert list_ids(both.source) == ["b", "c"]
        assert list_ids(both.target) == ["a", "b", "c"]
        both.move()

    def test_a_source_that_evicts_all_the_time_is_in_step(self, make_both: MakeBoth) -> None:
        """Every pass finds what was evicted meanwhile, removes it, and has nothing to copy."""
        both = make_both(
            quotas=Quotas(total_bytes=3 * LATENT_BYTES), of_target={"quotas": Quotas()}
        )
        saved = [save(both.store, f"e{number}").entry_id for number in range(3)]

        def step(page_token: str, *, max_bytes: int, verify: bool) -> MigrationStep:
            saved.append(save(both.store, f"e{len(saved)}", namespace=f"n{len(saved)}").entry_id)
            return both.mover.step(page_token, max_bytes, verify)

        move = Mover(step, lambda: [both.mover.missed_writes()], MoveOptions()).run()
        assert (move.in_step, move.copied, move.left) == (True, 0, 0)
        assert move.removed > 0
        held = contents(both.target)
        assert all(held[key] == entry for key, entry in contents(both.source).items())

    def test_an_entry_made_anew_with_fewer_snapshots_loses_the_others(self, both: Both) -> None:
        save(both.source, "entry")
        Write.of("entry", step_index=9).to(both.source)
        both.run_pass()
        both.source.delete_entries("", ["entry"])
        save(both.source, "entry")
        both.move()


class TestInterruptions:
    @pytest.mark.parametrize("broken_off_after", range(5))
    def test_a_pass_broken_off_anywhere_is_taken_up_by_the_next_process(
        self, both: Both, broken_off_after: int
    ) -> None:
        for number in range(6):
            save(both.source, f"e{number}", latents(number), namespace=f"n{number % 2}")
        token = ""
        for _ in range(broken_off_after):
            token = both.mover.step(token, 1, False).next_page_token
        both.begin()
        assert sum(step.copied for step in both.run_pass()) == 6 - broken_off_after
        both.move()

    def test_a_step_ends_with_the_entry_that_fills_it(self, both: Both) -> None:
        for name in "abcde":
            save(both.source, name)
        save(both.target, "stranger")
        steps = both.run_pass(max_bytes=2 * LATENT_BYTES)
        assert [(s.copied, s.removed) for s in steps] == [(2, 0), (2, 0), (1, 1)]

    @pytest.mark.parametrize("kept", ["e000", "e150", "z"])
    def test_a_call_asks_a_target_full_of_strangers_for_one_page(
        self, both: Both, kept: str
    ) -> None:
        """All of them in one call might never be told in time, and the move would never end."""
        for number in range(250):
            save(both.target, f"e{number:03}")
        save(both.source, kept)
        asked: list[str] = []
        both.target = Listed(both.target, asked)  # type: ignore[assignment] # has all methods
        both.begin()
        steps = both.run_pass()
        assert asked == ["", "e099", "e199"]
        assert sum(step.compared for step in steps) == 1
        assert list_ids(both.target) == list_ids(both.source) == [kept]

    def test_a_copy_cut_off_in_the_middle_of_an_entry_is_made_whole(self, both: Both) -> None:
        """A kill between two snapshots leaves an uncommitted part in the target."""
        first = Write.of("entry", latents(1))
        first.to(both.source)
        Write.of("entry", latents(2), step_index=9).to(both.source)
        both.source.commit_entry("", "entry")
        first.to(both.target)
        both.move()

    def test_a_damaged_copy_is_found_by_verifying_and_made_anew(self, both: Both) -> None:
        ref = save(both.source, "entry")
        both.run_pass()
        lossy = Lossy(both.target)
        both.mover = StoreMover(MirroredStore(both.source, lossy), both.clock)
        assert [s.copied for s in both.run_pass()] == [0]
        lossy.lost.add(ref.entry_id)
        (step,) = both.run_pass(verify=True)
        assert (step.copied, step.refused[0].entry_id) == (0, "entry")
        lossy.lost.clear()
        assert [s.copied for s in both.run_pass(verify=True)] == [1]

    def test_a_bad_token_is_refused(self, both: Both) -> None:
        for token in ("a b/x", "a/b/c", "ns/ä", "ns"):
            with pytest.raises(InvalidArgument) as refused:
                both.mover.step(token, 1, False)
            assert refused.value.field == "page_token"


class Listed:
    """A store that tells after which ids it was listed."""

    def __init__(self, store: MovableStore, asked: list[str]) -> None:
        self.inner = store
        self.asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def list_entries(self, namespace: str, size: int, after: str, **options: Any) -> Any:
        self.asked.append(after)
        return self.inner.list_entries(namespace, size, after, **options)


class Lossy(ForwardingStore):
    """A memory store that has lost the bytes of some entries and does not know."""

    def __init__(self, store: MovableStore) -> None:
        super().__init__(store)
        self.inner = store
        self.lost: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def peek_latent(self, namespace: str, ref: Any) -> Any:
        if ref.entry_id in self.lost:
            raise LatentNotFound("gone")
        return self.inner.peek_latent(namespace, ref)


class Away(ForwardingStore):
    """A memory store that can be gone for a while."""

    def __init__(self, store: MovableStore) -> None:
        super().__init__(store)
        self.inner = store
        self.is_away = False

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("inner", "is_away"):
            return object.__getattribute__(self, name)
        if self.is_away:
            raise Unavailable("it is away")
        return getattr(self.inner, name)


class TestATargetThatIsAway:
    @pytest.fixture
    def away(self, both: Both) -> Away:
        away = Away(both.target)
        both.target = movable(away)
        both.begin()
        return away

    def test_callers_do_not_notice_and_the_next_pass_catches_up(
        self, both: Both, away: Away
    ) -> None:
        save(both.store, "early", latents(1))
        away.is_away = True
        ref = save(both.store, "late", latents(2))
        both.store.pin_entries("", ["early"], True)
        assert both.store.read_latent("", ref).ref == ref
        assert both.store.sweep() == 0
        assert both.missed == 3
        with pytest.raises(Unavailable):
            both.mover.step("", STEP_BYTES, False)
        away.is_away = False
        both.move()
        save(both.store, "after")
        assert both.missed == 3, "the pass has shown that it is there again"

    def test_a_deletion_fails_and_deletes_nothing(self, both: Both, away: Away) -> None:
        """What a caller was told is deleted must be nowhere; so they are told that it is not."""
        save(both.store, "entry")
        away.is_away = True
        for delete in (
            lambda: both.store.delete_entries("", ["entry"]),
            lambda: both.store.delete_namespace(""),
        ):
            with pytest.raises(Unavailable):
                delete()
        assert list_ids(both.source) == ["entry"]
        away.is_away = False
        both.monotonic += AWAY_S
        assert both.store.delete_entries("", ["entry"]) == [True]
        with pytest.raises(EntryNotFound):
            both.target.get_entry("", "entry")

    def test_what_it_does_not_have_of_an_entry_is_counted(self, both: Both) -> None:
        """It evicted it, or another process wrote it to the source alone."""
        save(both.source, "pinned")
        Write.of("saved").to(both.source)
        both.store.pin_entries("", ["pinned", "never"], True)
        both.store.commit_entry("", "saved")
        assert both.missed == 2
        both.store.pin_entries("", ["never"], True)
        assert both.missed == 2
        both.move()


class TestATargetThatHangs:
    """It swallows what it is told, and answers much later or never."""

    @pytest.fixture
    def hanging(self, both: Both) -> Iterator[Hanging]:
        for name in ("early", "other"):
            save(both.store, name, latents(1))
        hanging = Hanging(both.target, "write_latent", "delete_entries", "sweep")
        both.target = movable(hanging)  # type: ignore[arg-type] # it has all methods of the store
        both.begin(SHORT_S)
        yield hanging
        hanging.goes_on.set()

    def test_no_write_waits_for_it_but_the_first(self, both: Both, hanging: Hanging) -> None:
        ref = Write.of("early", latents(2)).to(both.store)
        assert hanging.entered.is_set()
        hanging.entered.clear()
        save(both.store, "late", latents(3))
        ref = Write.of("early", latents(4)).to(both.store)
        assert both.store.read_latent("", ref).ref == ref
        assert both.store.sweep() == 0
        for delete in (
            lambda: both.store.delete_entries("", ["other"]),
            lambda: both.store.delete_namespace(""),
            lambda: both.mover.step("", STEP_BYTES, False),
            both.mover.missed_writes,
        ):
            with pytest.raises(Unavailable):
                delete()
        assert both.missed == 4
        hanging.goes_on.set()
        wait_settled(both)
        both.move()

    def test_a_step_that_it_hangs_in_holds_no_writer(self, both: Both, hanging: Hanging) -> None:
        save(both.source, "entry", latents(2))
        with pytest.raises(Unavailable):
            both.mover.step("", STEP_BYTES, False)
        assert hanging.entered.is_set()
        ref = Write.of("entry", latents(3)).to(both.store)
        assert both.store.read_latent("", ref).ref == ref
        hanging.goes_on.set()
        wait_settled(both)
        both.move()


def test_the_count_waits_for_what_the_source_had_begun_when_its_time_was_over(
    make_both: MakeBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a disk that stalls: the commit is made later, and a pass before that finds none."""
    disk = StalledDisk(monkeypatch)
    both = make_both(source=open_lmdb)
    Write.of("entry").to(both.store)
    disk.stall()
    with request_scope(timeout_s=WAIT_S), pytest.raises(DeadlineExceeded, match="not finished"):
        both.store.commit_entry("", "entry")
    with ThreadPoolExecutor() as threads:
        counting = threads.submit(both.mover.missed_writes)
        try:
            with pytest.raises(TimeoutError):
                counting.result(SHORT_S)
        finally:
            disk.goes_on.set()
        before = counting.result(WAIT_S)
    assert before.count == 1
    assert both.source.get_entry("", "entry").committed
    both.move()
    assert both.mover.missed_writes() == before


class StalledDisk:
    """LMDB transactions that are not committed before they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        inner = LmdbEnvironment.write

        @contextmanager
        def write(env: LmdbEnvironment) -> Iterator[Any]:
            with inner(env) as txn:
                yield txn
                self.entered.set()
                assert self.goes_on.wait(WAIT_S)

        def left_s() -> float | None:
            """Requests have time until the disk has stalled; what is no request has no end."""
            if remaining_s() is None:
                return None
            assert self.entered.wait(WAIT_S)
            return 0.0

        monkeypatch.setattr(LmdbEnvironment, "write", write)
        monkeypatch.setattr(group_commit, "remaining_s", left_s)

    def stall(self) -> None:
        self.entered.clear()
        self.goes_on.clear()


def test_a_caller_without_time_takes_no_target_for_away(make_both: MakeBoth) -> None:
    """LMDB answers nobody whose time is over; that says nothing about the target."""
    both = make_both(target=open_lmdb)
    with request_scope(timeout_s=0.0):
        save(both.store, "impatient", latents(1))
    save(both.store, "patient", latents(2))
    assert both.store.delete_entries("", ["patient"]) == [True]
    assert both.missed == 0
    assert contents(both.source) == contents(both.target)


def test_a_redis_that_stops_answering_for_a_while_holds_no_writer_and_catches_up(
    both: Both, clock: Clock
) -> None:
    """As behind a network that swallows packets: connections stay open, nothing comes back."""
    with running_redis() as server, ExitStack() as stack:
        address = dataclasses.replace(server.address, timeout_s=0.3)
        both.target = movable(open_redis_at(address, stack, clock, Options()).store)
        both.begin()
        for number in range(3):
            save(both.store, f"e{number}", latents(number))
        both.begin(SHORT_S)
        with server.hung():
            for number in range(1, 5):
                save(both.store, f"e{number}", latents(10 * number))
            assert both.missed == 8
            wait_settled(both)  # the client of Redis gives up, and may have been heard all the same
        both.begin()
        both.move()
        assert list_ids(both.target) == [f"e{number}" for number in range(5)]


def wait_settled(both: Both) -> None:
    """Waits until the target has answered all that it was told."""

    def is_settled() -> bool:
        with suppress(Unavailable):
            both.mover.missed_writes()
            return True
        return False

    wait_until(is_settled, "the target has answered")


@pytest.mark.parametrize("held", ["entry", "namespace"])
def test_who_has_no_time_left_does_not_wait_for_what_is_held(both: Both, held: str) -> None:
    save(both.store, "entry")
    holding = (
        both.store.locks.hold(("default", "entry"))
        if held == "entry"
        else both.store.locks.hold_namespace("default")
    )
    with holding, request_scope(timeout_s=0.0):
        for refused in (
            lambda: Write.of("entry", latents(2)).to(both.store),
            lambda: both.store.delete_entries("", ["entry"]),
            lambda: both.store.delete_namespace(""),
        ):
            with pytest.raises(DeadlineExceeded, match="nothing was changed"):
                refused()
        save(both.store, "other", namespace="other")
    assert both.missed == 0
    assert contents(both.source) == contents(both.target)
    assert both.store.delete_namespace("") == 1


class WatchedLocks(EntryLocks):
    """Tells who is about to wait for a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: queue.Queue[object] = queue.Queue()

    def hold(self, *keys: EntryKey) -> Any:
        self.asked.put(keys)
        return super().hold(*keys)

    def hold_namespace(self, namespace: str) -> Any:
        self.asked.put(namespace)
        return super().hold_namespace(namespace)


class TestDeletionsBetweenTwoHalves:
    """What is deleted while it is written or copied would be brought back by the second half."""

    @pytest.mark.parametrize("deleted", ["entry", "namespace"])
    @pytest.mark.parametrize("half", ["written", "copied"])
    def test_they_wait_for_it(self, both: Both, half: str, deleted: str) -> None:
        hanging = Hanging(both.target, "write_latent")
        both.target = movable(hanging)  # type: ignore[arg-type] # it has all methods of the store
        both.begin()
        both.store.locks = locks = WatchedLocks()
        write = Write.of("entry")
        if half == "copied":
            write.to(both.source)
        with ThreadPoolExecutor() as threads:
            begun = threads.submit(
                both.run_pass if half == "copied" else partial(write.to, both.store)
            )
            assert hanging.entered.wait(WAIT_S)
            assert locks.asked.get(timeout=WAIT_S)
            deletion = threads.submit(
                partial(both.store.delete_entries, "", ["entry"])
                if deleted == "entry"
                else partial(both.store.delete_namespace, "")
            )
            assert locks.asked.get(timeout=WAIT_S)
            hanging.goes_on.set()
            begun.result(WAIT_S)
            assert deletion.result(WAIT_S) in ([True], 1)
        assert contents(both.source) == contents(both.target) == {}
        assert both.missed == 0


class Meanwhile:
    """A store in whose calls of one name something else happens first, once."""

    def __init__(self, store: MovableStore, name: str, happens: Callable[[], object]) -> None:
        self.inner = store
        self.name = name
        self.happens: Callable[[], object] | None = happens

    def __getattr__(self, name: str) -> Any:
        if name == self.name and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return getattr(self.inner, name)


class TestCallersInTheMiddleOfAStep:
    def test_what_is_written_between_the_two_listings_is_no_difference(self, both: Both) -> None:
        """Else a busy service would never be in step."""
        Write.of("saving").to(both.store)

        def happens() -> None:
            Write.of("saving", step_index=9).to(both.store)
            both.store.commit_entry("", "saving")
            save(both.store, "new")

        both.target = Meanwhile(both.target, "list_entries", happens)  # type: ignore[assignment]
        store = both.store
        both.begin()
        both.store.locks = store.locks
        (step,) = both.run_pass()
        assert (step.copied, step.removed) == (0, 0)
        both.move()

    def test_what_another_process_writes_while_it_is_removed_is_copied(self, both: Both) -> None:
        """Its locks are others: the removal would take what was written a moment ago."""
        save(both.target, "entry", latents(1))
        elsewhere = MirroredStore(both.source, both.target)

        def happens() -> None:
            save(elsewhere, "entry", latents(2))

        both.target = Meanwhile(both.target, "delete_entries", happens)  # type: ignore[assignment]
        both.begin()
        (step,) = both.run_pass()
        assert (step.copied, step.removed) == (1, 1)
        both.move()

    @pytest.mark.parametrize("change", ["pinned", "saved anew"])
    def test_what_another_process_changes_while_its_history_is_carried_is_looked_at_again(
        self, both: Both, change: str
    ) -> None:
        """Else the pin would be lost, or the half of a save be taken for whole, and in step."""
        save(both.store, "entry")
        both.source.pin_entries("", ["entry"], True)  # a history to be carried
        elsewhere = MirroredStore(both.source, both.target)

        def happens() -> None:
            if change == "pinned":
                elsewhere.pin_entries("", ["entry"], False)
            else:
                elsewhere.delete_entries("", ["entry"])
                Write.of("entry", latents(2)).to(elsewhere)

        both.target = Meanwhile(both.target, "adopt_entries", happens)  # type: ignore[assignment]
        both.begin()
        move = Mover(both.mover.step, lambda: [both.mover.missed_writes()], MoveOptions()).run()
        assert move.in_step
        assert contents(both.source) == contents(both.target)


def test_what_the_target_cannot_take_is_named_and_stays(both: Both, clock: Clock) -> None:
    save(both.source, "large", latents(1, 4096))
    save(both.source, "small")
    both.target = MemoryStore(max_snapshot_bytes=2048, clock=clock)
    both.begin()
    (step,) = both.run_pass()
    assert (step.copied, [r.entry_id for r in step.refused]) == (1, ["large"])
    assert "2048" in step.refused[0].reason or "4096" in step.refused[0].reason
    assert list_ids(both.store) == ["large", "small"]


def test_what_a_source_of_fewer_bits_gives_back_is_what_a_target_of_more_gets(
    make_both: MakeBoth, clock: Clock, tmp_path: Path
) -> None:
    """References name the checksum of what is read from the source."""
    with ExitStack() as stack:
        narrow = open_lmdb(tmp_path / "narrow", stack, clock, Options(), codec="int8")
        both = make_both()
        both.source = movable(narrow.store)
        both.begin()
        save(both.source, "before")
        ref = save(both.store, "meanwhile")
        assert both.missed == 0
        assert both.target.peek_latent("", ref).ref == ref
        (step,) = both.run_pass()
        assert (step.copied, step.refused) == (1, ())
        both.move()


def test_bytes_that_the_targets_codec_would_change_are_refused(
    make_both: MakeBoth, clock: Clock, tmp_path: Path
) -> None:
    """References name the checksum of what was written; other bytes would never be used again."""
    with ExitStack() as stack:
        narrow = open_lmdb(tmp_path / "narrow", stack, clock, Options(), codec="int8")
        both = make_both()
        save(both.source, "entry")
        both.target = movable(narrow.store)
        both.begin()
        (step,) = both.run_pass()
        assert [r.entry_id for r in step.refused] == ["entry"]
        assert "codec" in step.refused[0].reason
        save(both.store, "meanwhile")
        assert both.missed == 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_meanwhile_both_end_equal(
    make_both: MakeBoth, clock: Clock, seed: int
) -> None:
    """Random calls, evictions and expiries between the steps of passes that are broken off."""
    rng = random.Random(seed)
    quotas = Quotas(total_bytes=12 * LATENT_BYTES)
    both = make_both(source=open_lmdb, quotas=quotas, ttl_s=500.0, of_target={"quotas": Quotas()})
    ids = [f"e{number}" for number in range(20)]
    for name in ids[:10]:
        save(both.source, name, latents(rng.randrange(99)), namespace=rng.choice("xy"))
    token = ""
    for _ in range(400):
        clock.advance(rng.random() * 3)
        name, namespace = rng.choice(ids), rng.choice("xy")
        match rng.randrange(9):
            case 0 | 1:
                step, array = rng.choice([3, 5]), latents(rng.randrange(99))
                with suppress(QuotaExceeded):  # pinned and uncommitted ones fill it
                    Write.of(name, array, step, namespace=namespace).to(both.store)
            case 2:
                with suppress(QuotaExceeded):
                    save(both.store, name, latents(rng.randrange(99)), namespace=namespace)
            case 3:
                both.store.delete_entries(namespace, [name])
            case 4:
                both.store.pin_entries(namespace, [name], rng.random() < 0.3)
            case 5:
                for entry in both.store.list_entries(namespace).entries:
                    if entry.entry_id == name:
                        both.store.read_latent(namespace, entry.snapshots[0].ref)
            case 6:
                both.begin()
                token = ""
            case _:
                token = both.mover.step(token, rng.choice([1, STEP_BYTES]), False).next_page_token
    both.store.sweep()
    both.move()


def test_of_writers_of_one_step_the_same_one_wins_in_both(both: Both) -> None:
    start = threading.Barrier(4)

    def write(number: int) -> None:
        start.wait()
        for turn in range(25):
            Write.of("entry", latents(100 * number + turn)).to(both.store)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    both.store.commit_entry("", "entry")
    assert both.missed == 0
    assert [s.copied for s in both.run_pass()] == [0]


def test_callers_at_the_same_time_as_passes_leave_both_equal(make_both: MakeBoth) -> None:
    """Writes, commits, pins, deletions and reads of the same entries, from four threads."""
    both = make_both(source=open_lmdb)

    def work(number: int) -> None:
        rng = random.Random(number)
        for turn in range(60):
            name = f"e{rng.randrange(8)}"
            with suppress(EntryNotFound):  # another thread deleted it
                match rng.randrange(5):
                    case 0 | 1:
                        save(both.store, name, latents(100 * number + turn))
                    case 2:
                        both.store.delete_entries("", [name])
                    case 3:
                        both.store.pin_entries("", [name], rng.random() < 0.5)
                    case _:
                        both.store.get_entry("", name)

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(work, number) for number in range(4)]
        while not all(future.done() for future in running):
            both.run_pass()
        for future in running:
            future.result()
    both.store.delete_entries("", ["e0"])
    assert both.missed == 0
    both.move()
    assert "e0" not in list_ids(both.target)
