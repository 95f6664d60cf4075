"""A move is driven to its end: passes, waiting, rate, and when it is no use to go on."""

from __future__ import annotations

import dataclasses

import pytest

from skipstone_client.migration_run import Move, MoveOptions, Mover
from skipstone_shared.errors import SkipstoneError, Unavailable
from skipstone_shared.migration import MigrationStep, RefusedEntry

STEP = MigrationStep(10, 0, 0, 0, (), 0, 10, "", "lmdb", "redis")


class Script:
    """Answers steps in turn, the last one for ever; its clock goes as it is waited for."""

    def __init__(self, *answers: MigrationStep | SkipstoneError) -> None:
        self.answers = list(answers)
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
            MoveOptions(**options),  # type: ignore[arg-type]
            on_wait=self._count,
            clock=lambda: self.now,
            pause=self._wait,
        )
        return mover.run()

    def _count(self, error: SkipstoneError) -> None:
        self.troubles += 1

    def _wait(self, seconds: float) -> None:
        self.now += seconds


def but(**fields: object) -> MigrationStep:
    return dataclasses.replace(STEP, **fields)  # type: ignore[arg-type]


def test_it_ends_with_the_first_pass_that_finds_nothing_to_do() -> None:
    first = but(copied=5, copied_bytes=50, next_page_token="x/1")
    script = Script(first, but(copied=2, copied_bytes=20), but(removed=1), STEP)
    move = script.run()
    assert (move.in_step, move.passes, move.copied, move.removed) == (True, 3, 7, 1)
    assert (move.copied_bytes, move.compared, move.left) == (70, 10, 0)
    assert [token for token, _, _ in script.asked] == ["", "x/1", "", ""]


def test_writes_that_the_target_missed_during_the_pass_need_another() -> None:
    missed = but(missed_writes=3)
    assert Script(but(missed_writes=2, next_page_token="a/"), missed, missed).run().passes == 2
    assert Script(missed).run().passes == 1, "those from before the pass were copied by it"


def test_a_service_that_was_started_anew_during_the_pass_needs_another() -> None:
    """It counts from 0 again and may have missed as many."""
    assert Script(but(missed_writes=2, next_page_token="a/"), STEP, STEP).run().passes == 2


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


def test_it_waits_no_longer_than_it_was_told() -> None:
    script = Script(but(next_page_token="a/e"), Unavailable("away"))
    with pytest.raises(Unavailable):
        script.run(retry_for_s=10.0)
    assert script.now == 10.0


def test_it_does_not_wait_for_what_was_never_there() -> None:
    script = Script(Unavailable("away"))
    with pytest.raises(Unavailable):
        script.run(retry_for_s=10.0)
    assert (script.now, len(script.asked)) == (0.0, 1)


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
