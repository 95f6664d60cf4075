"""A move is driven to its end: passes, waiting, rate, and when it is no use to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from skipstone_client.migration_run import Move, MoveOptions, Mover
from skipstone_shared.errors import SkipstoneError, Unavailable
from skipstone_shared.migration import MigrationStep, MissedWrites, RefusedEntry

STEP = MigrationStep(10, 0, 0, 0, (), 0, 10, "", "lmdb", "redis", "p")
Counts = dict[str, int] | SkipstoneError


class Script:
    """Answers steps and counts in turn, the last one for ever; its clock goes as it is waited for.

    Counts are asked for before and after every pass.
    """

    def __init__(
        self, *answers: MigrationStep | SkipstoneError, counts: Sequence[Counts] = ({"p": 0},)
    ) -> None:
        self.answers = list(answers)
        self.counts = list(counts)
        self.asked: list[tuple[str, int, bool]] = []
        self.now = 0.0
        self.troubles = 0

    def __call__(self, page_token: str, *, max_bytes: int, verify: bool) -> MigrationStep:
        self.asked.append((page_token, max_bytes, verify))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, SkipstoneError):
            raise answer
        return answer

    def run(self, **options: float) -> Move:
        mover = Mover(
            self,
            self._count_missed,
            MoveOptions(**options),  # type: ignore[arg-type]
            on_wait=self._count,
            clock=lambda: self.now,
            pause=self._wait,
        )
        return mover.run()

    def _count_missed(self) -> list[MissedWrites]:
        answer = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        if isinstance(answer, SkipstoneError):
            raise answer
        return [MissedWrites(process, count) for process, count in answer.items()]

    def _count(self, error: SkipstoneError) -> None:
        self.troubles += 1

    def _wait(self, seconds: float) -> None:
        self.now += seconds


def but(**fields: object) -> MigrationStep:
    return dataclasses.replace(STEP, **fields)  # type: ignore[arg-type]


def test_it_ends_with_the_first_pass_that_finds_nothing_to_copy() -> None:
    first = but(copied=5, copied_bytes=50, next_page_token="x/1")
    script = Script(first, but(copied=2, copied_bytes=20), STEP)
    move = script.run()
    assert (move.in_step, move.passes, move.copied) == (True, 2, 7)
    assert (move.copied_bytes, move.compared, move.left) == (70, 10, 0)
    assert [token for token, _, _ in script.asked] == ["", "x/1", ""]


def test_what_the_source_evicts_all_the_time_does_not_hold_it_back() -> None:
    """It is told, but what is removed from the target is missing in neither."""
    move = Script(but(removed=3)).run()
    assert (move.in_step, move.passes, move.removed) == (True, 1, 3)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_write_that_the_target_missed_during_any_step_of_a_pass_needs_another(steps: int) -> None:
    """Also during the only one: nobody copies what was missed after its entry was compared."""
    parts = [but(next_page_token=f"a/{number}") for number in range(1, steps)]
    move = Script(*parts, STEP, counts=[{"p": 2}, {"p": 3}]).run()
    assert (move.in_step, move.passes, move.missed_writes) == (True, 2, 0)


def test_writes_missed_before_a_pass_are_copied_by_it() -> None:
    assert Script(STEP, counts=[{"p": 5}]).run().passes == 1
    between = [{"p": 0}, {"p": 1}, {"p": 5}]
    assert Script(but(copied=1), STEP, counts=between).run().passes == 2


def test_a_target_that_misses_writes_in_every_pass_is_never_in_step() -> None:
    counts = [{"p": number} for number in range(99)]
    move = Script(STEP, counts=counts).run(most_passes=4)
    assert (move.in_step, move.passes, move.missed_writes) == (False, 4, 1)


@pytest.mark.parametrize("missed", [0, 2])
def test_a_service_that_was_started_anew_during_the_pass_needs_another(missed: int) -> None:
    """Its last writes may have reached the source alone, whatever the new process counts."""
    move = Script(STEP, counts=[{"p": missed}, {"q": 0}]).run(most_passes=1)
    assert (move.in_step, move.restarted) == (False, True)
    both = Script(STEP, but(process_id="q"), counts=[{"p": missed}, {"q": 0}]).run()
    assert (both.in_step, both.passes, both.restarted) == (True, 2, False)


def test_every_process_that_serves_counts() -> None:
    """Steps are answered by any of them, and each writes."""
    replicas = {"p": 4, "q": 7}
    parts = [but(next_page_token="a/1", process_id="q"), STEP]
    assert Script(*parts, counts=[replicas]).run().passes == 1
    assert Script(*parts, counts=[replicas, {"p": 4, "q": 8}]).run().passes == 2
    assert Script(*parts, counts=[replicas, {"p": 4}, replicas]).run().passes == 2
    assert Script(*parts, counts=[{"p": 4}, replicas]).run().passes == 2


def test_a_step_of_a_process_that_nobody_counts_for_is_not_trusted() -> None:
    move = Script(but(process_id="q")).run(most_passes=2)
    assert (move.in_step, move.restarted, move.passes) == (False, True, 2)


def test_refused_entries_do_not_end_it_while_writes_are_missed() -> None:
    refused = (RefusedEntry("default", "large", "too large"),)
    move = Script(but(refused=refused), counts=[{"p": 0}, {"p": 1}]).run()
    assert (move.in_step, move.passes, move.missed_writes) == (False, 2, 0)


def test_entries_that_the_target_cannot_take_end_it_once_nothing_else_is_left() -> None:
    refused = (RefusedEntry("default", "large", "too large"),)
    move = Script(but(copied=1, refused=refused), but(refused=refused)).run()
    assert (move.in_step, move.passes, move.refused) == (False, 2, list(refused))


def test_a_target_that_never_has_everything_ends_it_too() -> None:
    move = Script(but(copied=1)).run(most_passes=3)
    assert (move.in_step, move.passes, move.left) == (False, 3, 1)


def test_it_waits_for_a_side_that_went_away_and_goes_on_where_it_was() -> None:
    away = Unavailable("away")
    script = Script(but(copied=1, next_page_token="a/e"), away, away, STEP)
    assert script.run(retry_for_s=10.0).in_step
    assert [token for token, _, _ in script.asked] == ["", "a/e", "a/e", "a/e", ""]
    assert script.troubles == 1


def test_it_waits_for_a_count_too() -> None:
    """A call to the target has no end yet: what it does cannot be counted."""
    away = Unavailable("away")
    script = Script(STEP, counts=[{"p": 0}, away, away, {"p": 1}])
    assert script.run(retry_for_s=10.0).passes == 2
    assert script.troubles == 1


def test_it_waits_no_longer_than_it_was_told() -> None:
    script = Script(but(next_page_token="a/e"), Unavailable("away"))
    with pytest.raises(Unavailable):
        script.run(retry_for_s=10.0)
    assert script.now == 10.0


def test_it_does_not_wait_for_what_was_never_there() -> None:
    script = Script(STEP, counts=[Unavailable("away")])
    with pytest.raises(Unavailable):
        script.run(retry_for_s=10.0)
    assert (script.now, len(script.asked)) == (0.0, 0)


def test_it_copies_no_faster_than_it_was_told() -> None:
    steps = [but(copied=1, copied_bytes=1000, next_page_token=f"a/{n}") for n in range(4)]
    script = Script(*steps, STEP, STEP)
    script.run(bytes_per_s=500.0)
    assert script.now == 8.0
    assert {max_bytes for _, max_bytes, _ in script.asked} == {500}


def test_only_the_first_pass_reads_everything_back() -> None:
    script = Script(but(copied=1, next_page_token="a/"), STEP, STEP)
    script.run(verify=True)
    assert [verify for _, _, verify in script.asked] == [True, True, False]
