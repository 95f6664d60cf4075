"""Which model is behind a URL? What is known of it, shared by all callers.

A remote service can get another model at any time. Now and then one call asks for that, beside what
it wants itself.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NoReturn, Protocol, TypeVar

from skipstone_shared.errors import FailedPrecondition, Unavailable
from skipstone_shared.structured_logging import get_logger

CHECK_INTERVAL_S = 10.0
"""Seconds after which the next call also asks whether it is still the same model: so long what
another one, put behind the same URL, gives may be taken for that of the one before."""


class KnownModel(Protocol):
    """What is known of a model."""

    @property
    def model_id(self) -> str:
        """Id of what it gives."""
        ...


Known = TypeVar("Known", bound=KnownModel)


@dataclasses.dataclass(slots=True, eq=False)
class Turn(Generic[Known]):
    """One call of a service.

    Attributes:
        known: The model that the call works with.
        asks: Whether it must ask if that is still the one, and then `confirm` or tell of `another`.
    """

    known: Known
    asks: bool


class ModelWatch(Generic[Known]):
    """What is known of the model behind a URL. Threads share it, and none waits for another.

    When a check is due one call makes it, and the others go on with what is known. Two things end
    that: another model has been seen, or checks have failed for `CHECK_INTERVAL_S`. Then all calls
    are refused but one at a time, which asks: nothing of one model gets the id of another.
    """

    def __init__(
        self,
        what: str,
        look: Callable[[float | None], Known],
        is_same: Callable[[Known, Known], bool],
        setting: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Looks at the model.

        Args:
            what: What the service is, for errors.
            look: Asks the service for its model until a deadline on the monotonic clock; None gives
                each request its own time.
            is_same: Whether two models give the same.
            setting: Name of the setting that tells models apart.
            clock: Seconds on a clock that never goes back.

        Raises:
            SkipstoneError: What `look` raises.
        """
        self._what = what
        self._look = look
        self._is_same = is_same
        self._setting = setting
        self._clock = clock
        self._lock = threading.Lock()  # never held while the service is asked
        self._asking = False
        self._known = look(None)
        self._next_check = clock() + CHECK_INTERVAL_S
        self._trusted_until = math.inf

    @property
    def known(self) -> Known:
        """The model as last seen."""
        return self._known

    @contextmanager
    def turn(self) -> Iterator[Turn[Known]]:
        """A block that calls the service.

        Raises:
            Unavailable: The service has another model, found out before or during the block; or it
                could not be told for too long.
        """
        turn = self._begin()
        try:
            yield turn
        finally:
            if turn.asks:
                self._fail()
        with self._lock:
            is_sure = self._known is turn.known and self._clock() < self._trusted_until
        if not is_sure:
            raise self._unsure()

    def confirm(self, turn: Turn[Known]) -> None:
        """Says that the model is still the same; the call must be the one that asks."""
        self._settle(turn, turn.known)

    def another(self, turn: Turn[Known], deadline: float) -> NoReturn:
        """Says that the model is another one; the call that asks looks which.

        Args:
            turn: Of the call that noticed.
            deadline: When it must be over, on the monotonic clock.

        Raises:
            Unavailable: There is another one; the next call gets what that one gives.
            FailedPrecondition: There is one that cannot be used.
            SkipstoneError: It cannot be looked at; the next call tries again.
        """
        with self._lock:
            if self._known is turn.known:
                self._next_check = self._trusted_until = self._clock()
        if not turn.asks:
            raise self._unsure()
        before, found = turn.known, self._look(deadline)
        if found.model_id != before.model_id:
            get_logger().warning(
                f"the {self._what} has another model now",
                before=before.model_id,
                now=found.model_id,
            )
        elif not self._is_same(found, before):
            raise FailedPrecondition(
                f"what the {self._what} gives is not of {before.model_id} any more; give the "
                f"setting {self._setting} another value, or leave it empty"
            )
        self._settle(turn, found)
        raise self._unsure()

    def _begin(self) -> Turn[Known]:
        with self._lock:
            now = self._clock()
            if not self._asking:
                self._asking = now >= self._next_check
                return Turn(self._known, self._asking)
            if now >= self._trusted_until:
                raise self._unsure()
            return Turn(self._known, False)

    def _settle(self, turn: Turn[Known], found: Known) -> None:
        with self._lock:
            self._known = found
            self._next_check = self._clock() + CHECK_INTERVAL_S
            self._trusted_until = math.inf
            self._asking = turn.asks = False

    def _fail(self) -> None:
        """Gives the turn back; the next call asks."""
        with self._lock:
            until = self._clock() + CHECK_INTERVAL_S
            self._trusted_until = min(self._trusted_until, until)
            self._asking = False

    def _unsure(self) -> Unavailable:
        return Unavailable(f"the {self._what} has another model now, or may have; ask again")
