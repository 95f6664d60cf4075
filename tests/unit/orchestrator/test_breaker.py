"""The circuit breaker: a dead service costs nothing, a returned one is used at once."""

from __future__ import annotations

import pytest

from skipstone_orchestrator.breaker import BreakerOpen, CircuitBreaker, is_trouble
from skipstone_shared.errors import (
    Cancelled,
    DeadlineExceeded,
    EntryNotFound,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    QueueFull,
    Unavailable,
)
from skipstone_shared.orchestration import BreakerState

GONE = Unavailable("connection refused")
SLOW = DeadlineExceeded("too slow")


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def breaker(clock: Time) -> CircuitBreaker:
    return CircuitBreaker("embedding", failure_threshold=2, open_period_s=30.0, clock=clock)


def fail(breaker: CircuitBreaker, error: Unavailable | DeadlineExceeded) -> None:
    breaker.enter()
    breaker.record_failure(error)


def succeed(breaker: CircuitBreaker) -> None:
    breaker.enter()
    breaker.record_success()


def test_a_refused_connection_opens_it_at_once(breaker: CircuitBreaker) -> None:
    fail(breaker, GONE)
    assert breaker.state is BreakerState.OPEN
    with pytest.raises(BreakerOpen, match="embedding is not asked: connection refused"):
        breaker.enter()


def test_slow_calls_open_it_only_in_a_row(breaker: CircuitBreaker) -> None:
    """A busy machine is late now and then; that must not switch the cache off."""
    for _ in range(5):
        fail(breaker, SLOW)
        succeed(breaker)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker, SLOW)
    fail(breaker, SLOW)
    assert breaker.state is BreakerState.OPEN


def test_a_good_probe_closes_it_when_nobody_had_answered(breaker: CircuitBreaker) -> None:
    fail(breaker, GONE)
    breaker.record_probe(GONE)
    assert breaker.state is BreakerState.OPEN
    breaker.record_probe(None)
    assert breaker.state is BreakerState.CLOSED
    succeed(breaker)


def test_a_service_that_answers_probes_but_not_calls_gets_one_trial(
    breaker: CircuitBreaker,
) -> None:
    fail(breaker, SLOW)
    fail(breaker, SLOW)
    breaker.record_probe(None)
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.enter()
    with pytest.raises(BreakerOpen):
        breaker.enter()
    breaker.record_failure(SLOW)
    assert breaker.state is BreakerState.OPEN


def test_probes_that_misled_once_count_for_nothing_until_one_fails_or_the_period_is_over(
    breaker: CircuitBreaker, clock: Time
) -> None:
    """Else every request would be the trial and pay the whole deadline."""
    for _ in range(2):
        fail(breaker, SLOW)
    breaker.record_probe(None)
    fail(breaker, SLOW)
    breaker.record_probe(None)
    assert breaker.state is BreakerState.OPEN
    clock.now = 30.0
    assert breaker.state is BreakerState.HALF_OPEN
    fail(breaker, SLOW)
    breaker.record_probe(SLOW)
    breaker.record_probe(None)
    assert breaker.state is BreakerState.CLOSED


def test_a_service_that_hung_as_a_whole_is_used_at_once_when_it_answers_probes_again(
    breaker: CircuitBreaker,
) -> None:
    fail(breaker, SLOW)
    fail(breaker, SLOW)
    breaker.record_probe(SLOW)
    breaker.record_probe(None)
    assert breaker.state is BreakerState.CLOSED


def test_a_good_trial_closes_it(breaker: CircuitBreaker) -> None:
    fail(breaker, SLOW)
    fail(breaker, SLOW)
    breaker.record_probe(None)
    succeed(breaker)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker, SLOW)
    assert breaker.state is BreakerState.CLOSED, "old failures count no more"


def test_a_trial_that_is_given_up_lets_the_next_call_try(breaker: CircuitBreaker) -> None:
    """The caller of the trial may go away; the breaker must not stay half-open for ever."""
    fail(breaker, SLOW)
    fail(breaker, SLOW)
    breaker.record_probe(None)
    breaker.enter()
    breaker.leave()
    succeed(breaker)
    assert breaker.state is BreakerState.CLOSED


def test_a_probe_does_not_disturb_a_running_trial(breaker: CircuitBreaker) -> None:
    fail(breaker, SLOW)
    fail(breaker, SLOW)
    breaker.record_probe(None)
    breaker.enter()
    breaker.record_probe(None)
    with pytest.raises(BreakerOpen):
        breaker.enter()


def test_without_probes_it_tries_again_after_its_period(
    breaker: CircuitBreaker, clock: Time
) -> None:
    fail(breaker, GONE)
    clock.now = 29.9
    with pytest.raises(BreakerOpen):
        breaker.enter()
    clock.now = 30.0
    assert breaker.state is BreakerState.HALF_OPEN
    succeed(breaker)
    assert breaker.state is BreakerState.CLOSED


def test_failed_probes_alone_open_it(breaker: CircuitBreaker) -> None:
    breaker.record_probe(SLOW)
    assert breaker.state is BreakerState.CLOSED
    breaker.record_probe(SLOW)
    assert breaker.state is BreakerState.OPEN
    assert breaker.last_error == "too slow"


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (EntryNotFound("x"), False),
        (InvalidArgument("x"), False),
        (FailedPrecondition("x"), False),
        (Cancelled("x"), False),
        (GONE, True),
        (SLOW, True),
        (Internal("x"), True),
        (QueueFull("x"), True),
    ],
)
def test_a_miss_or_a_refused_argument_is_no_trouble(error: Exception, trouble: bool) -> None:
    assert is_trouble(error) is trouble  # type: ignore[arg-type]
