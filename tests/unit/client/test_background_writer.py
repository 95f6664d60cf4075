"""The background of a reuse session: in order, bounded, and never in the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from skipstone_client._background_writer import BackgroundWriter


class Gate:
    """A job that begins, and ends when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.let.wait(30.0)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.let.set()


def test_jobs_run_in_the_order_in_which_they_came() -> None:
    writer = BackgroundWriter(100, "test")
    done: list[int] = []
    for number in range(50):
        assert writer.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    assert writer.flush(30.0)
    assert done == list(range(50))
    assert writer.close(30.0) == 0


def test_a_job_that_raises_does_not_end_those_after_it() -> None:
    writer = BackgroundWriter(10, "test")
    done = threading.Event()
    writer.submit(lambda: [][0])
    writer.submit(done.set)
    assert done.wait(30.0)
    assert writer.close(30.0) == 0


def test_a_full_queue_refuses_at_once_and_takes_again_when_there_is_room(gate: Gate) -> None:
    writer = BackgroundWriter(2, "test")
    done = threading.Event()
    assert writer.submit(gate)
    assert gate.begun.wait(30.0)
    assert [writer.submit(done.set) for _ in range(3)] == [True, True, False]
    assert not writer.flush(0.0)
    gate.let.set()
    assert writer.flush(30.0)
    assert writer.submit(done.set)
    writer.close(30.0)


def test_closing_does_not_wait_for_a_job_that_hangs_and_tells_what_never_ran(gate: Gate) -> None:
    writer = BackgroundWriter(10, "test")
    writer.submit(gate)
    assert gate.begun.wait(30.0)
    for _ in range(3):
        writer.submit(gate)
    assert writer.close(0.0) == 3
    assert writer.close(0.0) == 0
    assert not writer.submit(gate)


def test_a_job_that_closes_does_not_wait_for_itself() -> None:
    """As when the last reference to a session is lost in its own background."""
    writer = BackgroundWriter(10, "test")
    lost: list[int] = []
    done = threading.Event()

    def end() -> None:
        lost.append(writer.close(3600.0))
        done.set()

    writer.submit(end)
    assert done.wait(30.0)
    assert lost == [0]


def test_there_is_no_thread_before_the_first_job() -> None:
    before = threading.active_count()
    writer = BackgroundWriter(10, "test")
    assert writer.flush(0.0)
    assert threading.active_count() == before
    assert writer.close(0.0) == 0
