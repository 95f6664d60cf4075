"""Entries move from one index to another while both are used, whatever the indexes are."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.contract.test_vector_index import (
    KEY,
    all_ids,
    clock,
    entry,
    ids,
    make_flat,
    make_hnsw,
    make_milvus,
    make_pgvector,
    make_qdrant,
    put,
    vec,
)
from tests.e2e.processes import wait_until
from tests.hanging import Hanging

from skipstone_shared.errors import DeadlineExceeded, EntryNotFound, InvalidArgument, Unavailable
from skipstone_shared.index_entries import IndexEntry, LocatedEntry, VectorEntry
from skipstone_shared.latents import DType, LatentRef, TensorSpec
from skipstone_shared.migration import MigrationStep
from skipstone_shared.migration_mirror import AWAY_S, Mirror
from skipstone_shared.request_context import request_scope
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.index import MovableIndex, VectorIndex
from skipstone_vector_index.index_mover import IndexMover
from skipstone_vector_index.mirrored_index import MirroredIndex
from skipstone_vector_index.record_log import RecordLog

OTHER_KEY = "b2" * 16
WAIT_S = 60.0
SHORT_S = 0.05
Make = Callable[[Path, ExitStack], Any]


class Both:
    """A source, a target, and what moves entries between them."""

    def __init__(self, source: MovableIndex, target: MovableIndex) -> None:
        self.source = source
        self.target = target
        self.monotonic = 0.0
        self.begin()

    def begin(self, bound_s: float = WAIT_S) -> None:
        """As a service that starts: with the indexes as they are and no memory of its own."""
        mirror = Mirror("vector_index", bound_s, lambda: self.monotonic)
        self.index = MirroredIndex(self.source, self.target, clock, mirror)
        self.mover = IndexMover(self.index, bound_s)

    @property
    def missed(self) -> int:
        return self.index.mirror.missed().count

    def run_pass(self) -> list[MigrationStep]:
        steps = [self.mover.step("", 1, False)]
        while steps[-1].next_page_token:
            steps.append(self.mover.step(steps[-1].next_page_token, 1, False))
        return steps

    def move(self) -> None:
        """Passes until one finds nothing to do; the indexes are equal then."""
        while any(s.copied or s.removed or s.refused for s in self.run_pass()):
            pass
        assert_equal(self.target, self.source)


def assert_equal(one: VectorIndex, other: VectorIndex) -> None:
    """All entries, their partitions and vectors."""
    found, expected = contents(one), contents(other)
    assert found == expected
    for key, located in found.items():
        assert unit(located) == pytest.approx(unit(expected[key]), abs=1e-5)


def contents(index: VectorIndex) -> dict[tuple[str, str], LocatedEntry]:
    found = {}
    for namespace in index.list_namespaces(1000).namespaces:
        for entry_id in all_ids(index, 100, namespace=namespace):
            found[namespace, entry_id] = index.get_entry(namespace, entry_id, include_vector=True)
    return found


def unit(located: LocatedEntry) -> list[float]:
    assert located.vector is not None
    return [float(element) for element in located.vector / np.linalg.norm(located.vector)]


def total(steps: list[MigrationStep], field: str) -> int:
    return sum(getattr(step, field) for step in steps)


PAIRS = [
    pytest.param((make_flat, make_flat), id="flat-flat"),
    pytest.param((make_hnsw, make_milvus), id="hnswlib-milvus"),
    pytest.param((make_hnsw, make_pgvector), id="hnswlib-pgvector"),
    pytest.param((make_qdrant, make_hnsw), id="qdrant-hnswlib"),
    pytest.param((make_milvus, make_hnsw), id="milvus-hnswlib"),
    pytest.param((make_pgvector, make_qdrant), id="pgvector-qdrant"),
]


def _both(pair: tuple[Make, Make], tmp_path: Path) -> Iterator[Both]:
    with capture_logs(), ExitStack() as stack:
        both = Both(pair[0](tmp_path / "source", stack), pair[1](tmp_path / "target", stack))
        yield both
        both.index.close()


@pytest.fixture(params=PAIRS)
def any_pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    yield from _both(request.param, tmp_path)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    yield from _both((make_flat, make_flat), tmp_path)


def test_every_entry_moves_with_every_field_and_is_found_as_before(any_pair: Both) -> None:
    both = any_pair
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((105, 8)).astype(np.float32)
    saved = [
        VectorEntry(
            IndexEntry(
                f"e{number}",
                prompt=f"prompt {number} — 赤い狐",
                seed=number,
                snapshots=(LatentRef("default", f"e{number}", 5, compatibility_key=KEY),),
                depth=number % 2,
                create_time=1_600_000_000.25 + number,
                embedding_model_id="minilm",
                labels={"user": "ü"},
            ),
            row,
        )
        for number, row in enumerate(rows)
    ]
    put(both.source, *saved)
    put(both.source, entry("e1", vec(1, 2, 3)), namespace="other", key=OTHER_KEY)
    steps = both.run_pass()
    assert steps[0].source_entries == 106
    assert [total(steps, name) for name in ("compared", "copied", "removed")] == [106, 106, 0]
    assert_equal(both.target, both.source)
    assert all_ids(both.target, 100) == all_ids(both.source, 100)
    queries = list(rows[:5])
    for before, after in zip(
        *(index.search_entries("", KEY, queries, 7) for index in (both.source, both.target)),
        strict=True,
    ):
        assert ids(after) == ids(before)
        assert [h.similarity for h in after] == pytest.approx(
            [h.similarity for h in before], abs=1e-6
        )
    steps = both.run_pass()
    assert [total(steps, name) for name in ("compared", "copied", "removed")] == [106, 0, 0]


def test_what_is_deleted_meanwhile_does_not_come_back(any_pair: Both) -> None:
    """Deleted before it was copied, after it was, and while no service mirrored at all."""
    both = any_pair
    put(both.source, *[entry(n, vec(1, 2)) for n in ("before", "after", "without", "kept")])
    put(both.source, entry("gone", vec(1, 2)), namespace="x", key=OTHER_KEY)
    assert both.index.delete_entries("", ["before"]) == [True]
    both.run_pass()
    assert both.index.delete_entries("", ["after", "never"]) == [True, False]
    assert both.index.delete_partition("x") == 1
    both.source.delete_entries("", ["without"])
    both.begin()
    assert total(both.run_pass(), "removed") == 1
    assert all_ids(both.target, 10) == ["kept"]
    assert both.target.list_namespaces().namespaces == ("default",)


def test_what_is_written_meanwhile_is_in_both_at_once(any_pair: Both) -> None:
    both = any_pair
    put(both.source, entry("old", vec(1, 0)))
    both.run_pass()
    put(both.index, entry("new", vec(1, 1)), entry("old", vec(0, 1), seed=7))
    assert sorted(all_ids(both.target, 10)) == ["new", "old"]
    assert_equal(both.target, both.source)
    assert total(both.run_pass(), "copied") == 0


def test_an_entry_overwritten_while_nobody_mirrored_is_copied_anew(both: Both) -> None:
    """Another vector, another payload, another partition, another dimension."""
    put(both.source, *[entry(name, vec(1, 2)) for name in "abc"])
    put(both.source, entry("d", vec(1, 2)), key=OTHER_KEY)
    both.run_pass()
    both.source.delete_entries("", ["c", "d"])
    put(both.source, entry("a", vec(2, 1)), entry("b", vec(1, 2), seed=5))
    put(both.source, entry("c", vec(1, 2, 3)), entry("d", vec(1, 2, 3)), key=OTHER_KEY)
    both.move()


@pytest.mark.parametrize("broken_off_after", range(1, 5))
def test_a_pass_broken_off_anywhere_is_taken_up_by_the_next_process(
    both: Both, broken_off_after: int
) -> None:
    for namespace in "xyz":
        put(both.source, entry("e", vec(1, 2)), namespace=namespace)
    put(both.target, entry("stranger", vec(1, 2)), namespace="x")
    token = ""
    for _ in range(broken_off_after):
        token = both.mover.step(token, 1, False).next_page_token
    both.begin()
    assert total(both.run_pass(), "copied") == max(0, 3 - broken_off_after)
    both.move()


def test_what_is_in_half_precision_moves_and_is_found_equal(tmp_path: Path) -> None:
    log = RecordLog(tmp_path / "half", 1 << 28, fsync=False)
    both = Both(HnswIndex(log, half=True, clock=clock), FlatIndex(clock))
    rows = np.random.default_rng(1).standard_normal((20, 384)).astype(np.float32)
    put(both.source, *[entry(f"e{number}", row) for number, row in enumerate(rows)])
    both.move()
    both.index.close()


def test_an_id_in_two_partitions_moves_with_both(any_pair: Both) -> None:
    both = any_pair
    for seed, key in enumerate((KEY, OTHER_KEY)):
        put(both.source, entry("twice", vec(1, 2 + seed), seed=seed), key=key)
    both.run_pass()
    for key in (KEY, OTHER_KEY):
        (here, there) = (
            index.list_entries("", key).entries for index in (both.source, both.target)
        )
        assert here == there
        assert len(here) == 1
    assert total(both.run_pass(), "copied") == 0


def test_what_the_target_cannot_take_is_named_and_stays(tmp_path: Path) -> None:
    with ExitStack() as stack:
        both = Both(make_flat(tmp_path, stack), make_milvus(tmp_path, stack))
        spec = TensorSpec(DType.BFLOAT16, (1, 2, 3, 4, 5, 6))
        refs = [
            LatentRef("default", "large", step, spec=spec, compatibility_key=KEY, store="s" * 200)
            for step in range(250)
        ]
        large = entry("large", vec(1, 2), prompt="x" * 20_000, snapshots=tuple(refs))
        put(both.source, large, entry("small", vec(1, 2)))
        steps = both.run_pass()
        assert [r.entry_id for step in steps for r in step.refused] == ["large"]
        assert all_ids(both.target, 10) == ["small"]
        assert sorted(all_ids(both.index, 10)) == ["large", "small"]
        both.index.close()


def test_bad_tokens_are_refused(both: Both) -> None:
    for token in ("x", "source/a b/", "elsewhere/x/", "source/x/y/z"):
        with pytest.raises(InvalidArgument) as refused:
            both.mover.step(token, 1, False)
        assert refused.value.field == "page_token"


class Away:
    """An index that can be gone for a while."""

    def __init__(self, index: MovableIndex) -> None:
        self.index = index
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        if self.is_away:
            raise Unavailable("it is away")
        return getattr(self.index, name)


@pytest.fixture
def away(both: Both) -> Away:
    away = Away(both.target)
    both.target = away  # type: ignore[assignment] # it has all of the index's methods
    both.begin()
    return away


def test_callers_do_not_notice_a_target_that_is_away(both: Both, away: Away) -> None:
    put(both.index, entry("early", vec(1, 2)))
    away.is_away = True
    put(both.index, entry("late", vec(1, 2)))
    put(both.index, entry("later", vec(1, 2)))
    assert all_ids(both.index, 10) == ["early", "late", "later"]
    assert both.missed == 2
    with pytest.raises(Unavailable):
        both.run_pass()
    away.is_away = False
    both.move()


def test_a_deletion_fails_with_the_target_and_deletes_nothing(both: Both, away: Away) -> None:
    """What a caller was told is deleted must be nowhere; so they are told that it is not."""
    put(both.index, entry("e", vec(1, 2)))
    away.is_away = True
    for delete in (
        lambda: both.index.delete_entries("", ["e"]),
        lambda: both.index.delete_partition("", KEY),
    ):
        with pytest.raises(Unavailable):
            delete()
    assert all_ids(both.source, 10) == ["e"]
    away.is_away = False
    both.monotonic += AWAY_S
    assert both.index.delete_entries("", ["e"]) == [True]
    with pytest.raises(EntryNotFound):
        both.target.get_entry("", "e")


class TestATargetThatHangs:
    """It swallows what it is told, and answers much later or never."""

    @pytest.fixture
    def hanging(self, both: Both) -> Iterator[Hanging]:
        put(both.index, entry("early", vec(1, 2)))
        hanging = Hanging(both.target, "upsert_entries", "delete_entries")
        both.target = hanging  # type: ignore[assignment] # it has all of the index's methods
        both.begin(SHORT_S)
        yield hanging
        hanging.goes_on.set()

    def test_no_write_waits_for_it_but_the_first(self, both: Both, hanging: Hanging) -> None:
        put(both.index, entry("early", vec(2, 1), seed=1))
        assert hanging.entered.is_set()
        hanging.entered.clear()
        put(both.index, entry("late", vec(1, 2)))
        put(both.index, entry("early", vec(1, 1), seed=2))
        assert sorted(all_ids(both.index, 10)) == ["early", "late"]
        for refused in (
            lambda: both.index.delete_entries("", ["early"]),
            lambda: both.index.delete_partition("", KEY),
            both.run_pass,
            both.mover.missed_writes,
        ):
            with pytest.raises(Unavailable):
                refused()
        assert (both.missed, hanging.entered.is_set()) == (3, False)
        hanging.goes_on.set()
        wait_settled(both)
        both.move()

    def test_a_step_that_it_hangs_in_holds_no_writer(self, both: Both, hanging: Hanging) -> None:
        put(both.source, entry("new", vec(1, 2)))
        with pytest.raises(Unavailable):
            both.run_pass()
        assert hanging.entered.is_set()
        put(both.index, entry("new", vec(2, 1)))
        assert not both.index.writing.locked()
        hanging.goes_on.set()
        wait_settled(both)
        both.move()


def wait_settled(both: Both) -> None:
    """Waits until the target has answered all that it was told."""

    def is_settled() -> bool:
        with suppress(Unavailable):
            both.mover.missed_writes()
            return True
        return False

    wait_until(is_settled, "the target has answered")


def test_writers_wait_for_a_slow_target_for_one_bound_in_all(both: Both) -> None:
    """It answers every call in time; together they take longer than anyone should wait."""
    put(both.source, entry("new", vec(1, 2)))
    both.target = slow = Slow(both.target)  # type: ignore[assignment] # it has all methods
    both.begin()
    both.mover = IndexMover(both.index, WAIT_S, slow.monotonic)
    slow.asked.clear()
    slow.call_s = WAIT_S / 2
    with pytest.raises(Unavailable, match="all 60 s"):
        both.run_pass()
    assert slow.asked == ["locate_entries", "locate_entries", "delete_entries"]
    assert not both.index.writing.locked()
    slow.call_s = WAIT_S / 4
    both.move()
    assert both.missed == 0


def test_who_has_no_time_left_does_not_wait_for_other_writers(both: Both) -> None:
    put(both.index, entry("e", vec(1, 2)))
    with both.index.writing, request_scope(timeout_s=0.0):
        for refused in (
            lambda: put(both.index, entry("late", vec(1, 2))),
            lambda: both.index.delete_entries("", ["e"]),
            lambda: both.index.delete_partition("", KEY),
        ):
            with pytest.raises(DeadlineExceeded, match="nothing was changed"):
                refused()
    assert (all_ids(both.source, 10), all_ids(both.target, 10)) == (["e"], ["e"])
    assert both.missed == 0
    put(both.index, entry("later", vec(1, 2)))


class Slow:
    """An index whose calls take some seconds of a clock of their own."""

    def __init__(self, index: MovableIndex) -> None:
        self.index = index
        self.now = 0.0
        self.call_s = 0.0
        self.asked: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.index, name)

        def call(*args: Any, **options: Any) -> Any:
            self.asked.append(name)
            self.now += self.call_s
            return method(*args, **options)

        return call


class Meanwhile:
    """An index in whose calls of one name something else happens first, once."""

    def __init__(self, index: MovableIndex, name: str, happens: Callable[[], object]) -> None:
        self.index = index
        self.name = name
        self.happens: Callable[[], object] | None = happens

    def __getattr__(self, name: str) -> Any:
        if name == self.name and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return getattr(self.index, name)


def test_what_is_written_between_the_two_looks_is_no_difference(both: Both) -> None:
    """Else a busy service would never be in step."""
    put(both.index, entry("e", vec(1, 2)))
    mirrored = both.index

    def happens() -> None:
        put(mirrored, entry("e", vec(2, 1), seed=7))

    both.target = Meanwhile(both.target, "locate_entries", happens)  # type: ignore[assignment]
    both.begin()
    assert total(both.run_pass(), "copied") == 0
    both.move()


def test_what_another_process_writes_while_it_is_removed_is_copied(both: Both) -> None:
    """Its lock is another: the removal would take what was written a moment ago."""
    put(both.target, entry("e", vec(1, 2)))
    elsewhere = MirroredIndex(both.source, both.target, clock)

    def happens() -> None:
        put(elsewhere, entry("e", vec(2, 1)))

    both.target = Meanwhile(both.target, "delete_entries", happens)  # type: ignore[assignment]
    both.begin()
    steps = both.run_pass()
    assert (total(steps, "copied"), total(steps, "removed")) == (1, 1)
    both.move()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_meanwhile_both_end_equal(both: Both, seed: int) -> None:
    """Random calls between the steps of passes that are broken off."""
    rng = random.Random(seed)
    names = [f"e{number}" for number in range(12)]
    token = ""
    for _ in range(300):
        name, namespace = rng.choice(names), rng.choice("xy")
        new = VectorEntry(IndexEntry(name, seed=rng.randrange(99)), vec(rng.random(), 1))
        match rng.randrange(8):
            case 0 | 1:
                put(both.index, new, namespace=namespace)
            case 2:
                put(both.source, new, namespace=namespace)
            case 3:
                both.index.delete_entries(namespace, [name])
            case 4:
                both.source.delete_entries(namespace, [name])
            case 5:
                both.begin()
                token = ""
            case _:
                token = both.mover.step(token, 1, False).next_page_token
    both.move()
    assert dataclasses.astuple(both.source.get_stats("x")) == dataclasses.astuple(
        both.target.get_stats("x")
    )


def test_callers_at_the_same_time_as_passes_leave_both_equal(tmp_path: Path) -> None:
    """Upserts and deletions of the same entries, from four threads."""
    with ExitStack() as stack:
        both = Both(make_hnsw(tmp_path, stack), make_flat(tmp_path, stack))

        def work(number: int) -> None:
            rng = random.Random(number)
            for _ in range(100):
                name = f"e{rng.randrange(8)}"
                if rng.random() < 0.7:
                    put(both.index, entry(name, vec(rng.random(), 1), seed=rng.randrange(99)))
                else:
                    both.index.delete_entries("", [name])

        with ThreadPoolExecutor(4) as threads:
            running = [threads.submit(work, number) for number in range(4)]
            while not all(future.done() for future in running):
                both.run_pass()
            for future in running:
                future.result()
        assert both.missed == 0
        both.move()
        both.index.close()
