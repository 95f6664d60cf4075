"""Circuit breaker of one service: a dead service costs a request microseconds, not its deadline.

    CLOSED     calls go through; an unreachable service opens it at once, slow or failing ones after
               `failure_threshold` in a row
    OPEN       calls are answered at once; a good probe, or the end of `open_period_s`, ends it
    HALF_OPEN  one trial call at a time goes through; its outcome closes or opens the breaker

A good probe closes a breaker that opened because nobody answered, calls or probes. One that opened
because only calls took too long becomes half-open: a service can answer probes and not do its work.
When the trial shows that, probes count for nothing until one fails or `open_period_s` is over.
"""

from __future__ import annotations

from collections.abc import Callable

from skipstone_shared.errors import (
    Cancelled,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.orchestration import BreakerState

Clock = Callable[[], float]
"""Seconds on a clock that never goes back."""


class BreakerOpen(Unavailable):
    """The service was not asked, since it did not answer before."""

    reason = "BREAKER_OPEN"


def is_trouble(error: SkipstoneError) -> bool:
    """Whether an error tells of a sick service; a miss or a refused argument does not."""
    return not isinstance(error, NotFound | InvalidArgument | FailedPrecondition | Cancelled)


class CircuitBreaker:
    """The breaker of one service. For one event loop; nothing in it waits."""

    def __init__(
        self, service: str, *, failure_threshold: int, open_period_s: float, clock: Clock
    ) -> None:
        """Creates a closed breaker.

        Args:
            service: Name for messages.
            failure_threshold: Failures in a row that open it, at least 1.
            open_period_s: Seconds after which an open breaker allows a trial without a probe.
            clock: Seconds.
        """
        self.service = service
        self.last_error = ""
        self._failure_threshold = failure_threshold
        self._open_period_s = open_period_s
        self._clock = clock
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._opened_at = 0.0
        self._unreachable = False
        self._gone = False
        self._trial_running = False
        self._probes_mislead = False

    @property
    def state(self) -> BreakerState:
        """The state now."""
        if self._state is BreakerState.OPEN and self._open_period_over():
            return BreakerState.HALF_OPEN
        return self._state

    @property
    def is_gone(self) -> bool:
        """Whether it is open because connections are refused, rather than unanswered."""
        return self.state is BreakerState.OPEN and self._gone

    def enter(self) -> None:
        """Asks to make a call; afterwards exactly one of the three `record_...` or `leave`.

        Raises:
            BreakerOpen: The call must not be made.
        """
        state = self.state
        if state is BreakerState.CLOSED:
            return
        if state is BreakerState.OPEN or self._trial_running:
            raise BreakerOpen(f"{self.service} is not asked: {self.last_error}")
        self._state = BreakerState.HALF_OPEN
        self._trial_running = True

    def record_success(self) -> None:
        """The call came back with an answer, be it a miss."""
        self._close()

    def record_failure(self, error: SkipstoneError) -> None:
        """The call failed in a way that tells of a sick service."""
        self._trial_running = False
        self._failures += 1
        self.last_error = error.message
        unreachable = isinstance(error, Unavailable)
        self._gone = unreachable
        if self._state is BreakerState.HALF_OPEN and not unreachable:
            self._probes_mislead = True
        if (
            unreachable
            or self._state is not BreakerState.CLOSED
            or self._failures >= self._failure_threshold
        ):
            self._open(unreachable)

    def leave(self) -> None:
        """The call was given up before it told anything."""
        self._trial_running = False

    def record_probe(self, error: SkipstoneError | None) -> None:
        """A background probe came back, with an error or without."""
        if error is not None:
            self._failures += 1
            self._gone = isinstance(error, Unavailable)
            self._probes_mislead = False
            self.last_error = error.message
            if (
                self._gone
                or self._state is not BreakerState.CLOSED
                or self._failures >= self._failure_threshold
            ):
                self._open(unreachable=True)
        elif self.state is not BreakerState.CLOSED and not self._trial_running:
            if self._unreachable:
                self._close()
            elif not self._probes_mislead:
                self._state = BreakerState.HALF_OPEN

    def _open(self, unreachable: bool) -> None:
        self._state = BreakerState.OPEN
        self._opened_at = self._clock()
        self._unreachable = unreachable

    def _close(self) -> None:
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._trial_running = False
        self._probes_mislead = False

    def _open_period_over(self) -> bool:
        return self._clock() - self._opened_at >= self._open_period_s


class Monitor(CircuitBreaker):
    """Keeps the state of a service that a request cannot do without, and never refuses a call."""

    def enter(self) -> None:
        """Lets every call through: without an answer of its own the caller has nothing."""
