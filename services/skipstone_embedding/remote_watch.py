"""Which model is behind a URL? What is known of it, shared by all callers.

A remote service can get another model at any time. Now and then it is asked for that, beside what a
call wants of it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, NoReturn, Protocol, TypeVar

from skipstone_shared.errors import DeadlineExceeded, FailedPrecondition, Unavailable
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


class ModelWatch(Generic[Known]):
    """What is known of the model behind a URL. Threads share it, and none waits for another.

    When a check is due, a call starts it on a thread of its own and wants its answer before it
    gives its own; the others go on with what is known. A check has the service's own time: it goes
    on when its caller has less, and the next call has its answer. Two things end the others' going
    on: another model was seen, or checks have failed for `CHECK_INTERVAL_S`. Then all are refused
    but one at a time, which asks: nothing of one model gets the id of another.
    """

    def __init__(
        self,
        what: str,
        look: Callable[[], Known],
        is_still: Callable[[Known], bool],
        is_same: Callable[[Known, Known], bool],
        setting: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Looks at the model.

        Args:
            what: What the service is, for errors.
            look: Asks the service which model it has.
            is_still: Asks the service whether it still has that one.
            is_same: Whether two models give the same.
            setting: Name of the setting that tells models apart.
            clock: Seconds on a clock that never goes back.

        Raises:
            SkipstoneError: What `look` raises.
        """
        self._what = what
        self._look = look
        self._is_still = is_still
        self._is_same = is_same
        self._setting = setting
        self._clock = clock
        self._lock = threading.Lock()  # never held while the service is asked
        self._asking = False
        self._known = look()
        self._next_check = clock() + CHECK_INTERVAL_S
        self._trusted_until = math.inf

    @property
    def known(self) -> Known:
        """The model as last seen."""
        return self._known

    @contextmanager
    def turn(self, deadline: float) -> Iterator[Known]:
        """A block that calls the service, which has the model that it is given.

        Args:
            deadline: When the call must be over, on the monotonic clock.

        Raises:
            Unavailable: The service has another model, found out before or during the block; or it
                could not be told for too long.
            FailedPrecondition: It has one that cannot be used.
            DeadlineExceeded: This call asked for the model, and has no time left.
        """
        known, question = self._begin()
        yield known
        if question is not None:
            try:
                question.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise DeadlineExceeded(
                    f"it was not told in time whether the {self._what} has the same model"
                ) from None
        with self._lock:
            is_sure = self._known is known and self._clock() < self._trusted_until
        if not is_sure:
            raise self._unsure()

    def another(self, known: Known) -> NoReturn:
        """Says that an answer was of another model; the next call asks which.

        Raises:
            Unavailable: Always.
        """
        self._doubt(known)
        raise self._unsure()

    def _begin(self) -> tuple[Known, Future[None] | None]:
        """The model to go on with, and the question for it when this call is the one that asks."""
        with self._lock:
            now = self._clock()
            if self._asking and now >= self._trusted_until:
                raise self._unsure()
            if self._asking or now < self._next_check:
                return self._known, None
            self._asking = True
            known = self._known
        question: Future[None] = Future()
        threading.Thread(
            target=self._ask, args=(known, question), name="remote-watch", daemon=True
        ).start()
        return known, question

    def _ask(self, known: Known, question: Future[None]) -> None:
        """Asks whether it is still that model, and if not which; tells the call that waits."""
        try:
            if self._is_still(known):
                self._settle(known)
            else:
                self._doubt(known)
                self._settle(self._learn(known))
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            self._fail(error)
            question.set_exception(error)
        else:
            question.set_result(None)

    def _learn(self, before: Known) -> Known:
        found = self._look()
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
        return found

    def _doubt(self, known: Known) -> None:
        with self._lock:
            if self._known is known:
                self._next_check = self._trusted_until = self._clock()

    def _settle(self, found: Known) -> None:
        with self._lock:
            self._known = found
            self._next_check = self._clock() + CHECK_INTERVAL_S
            self._trusted_until = math.inf
            self._asking = False

    def _fail(self, error: Exception) -> None:
        with self._lock:
            is_first = self._trusted_until == math.inf
            until = self._clock() + CHECK_INTERVAL_S
            self._trusted_until = min(self._trusted_until, until)
            self._asking = False
        if is_first:
            get_logger().warning(f"the {self._what} does not tell its model", error=str(error))

    def _unsure(self) -> Unavailable:
        return Unavailable(f"the {self._what} has another model now, or may have; ask again")
