"""As many requests run as may, in the order they came; the others wait or are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from skipstone_denoise.admission import Admission
from skipstone_shared.errors import QueueFull, Unavailable


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def admission(gate: threading.Event) -> Iterator[Admission]:
    admission = Admission(max_running=1, max_waiting=1)
    yield admission
    gate.set()
    admission.close()


def occupy(admission: Admission, gate: threading.Event) -> None:
    begun = threading.Event()

    def work() -> None:
        begun.set()
        assert gate.wait(60)

    admission.submit(work)
    assert begun.wait(60)


def test_what_exceeds_the_queue_is_refused(admission: Admission, gate: threading.Event) -> None:
    occupy(admission, gate)
    admission.submit(lambda: None)
    assert (admission.running_count, admission.waiting_count) == (1, 1)
    with pytest.raises(QueueFull):
        admission.submit(lambda: None)


def test_who_gives_up_waiting_makes_room_at_once(
    admission: Admission, gate: threading.Event
) -> None:
    occupy(admission, gate)
    assert admission.submit(lambda: None).cancel()
    order: list[str] = []
    waiting = admission.submit(lambda: order.append("ran"))
    gate.set()
    waiting.result(60)
    assert order == ["ran"]


def test_closing_cancels_what_waits_and_refuses_what_comes(
    admission: Admission, gate: threading.Event
) -> None:
    occupy(admission, gate)
    waiting = admission.submit(lambda: None)
    gate.set()
    admission.close()
    assert waiting.done()
    with pytest.raises(Unavailable):
        admission.submit(lambda: None)
