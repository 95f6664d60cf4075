"""How a backend that serves and the one that it moves to are written together."""

from __future__ import annotations

import contextvars
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

from prometheus_client import Counter
from prometheus_client.registry import Collector

from skipstone_shared.deadline_waits import wait_in_time
from skipstone_shared.errors import (
    DataCorrupt,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.migration import MissedWrites
from skipstone_shared.request_context import clear_deadline
from skipstone_shared.structured_logging import get_logger

AWAY_S = 5.0
"""After the target did not answer, for how long nothing asks it again."""

_BYTES_PER_S = 16 << 20
"""What the target is expected to take at least, beyond the bound of a call."""

_REFUSALS = (InvalidArgument, NotFound, FailedPrecondition, ResourceExhausted, DataCorrupt)
"""Errors after which nothing has changed; after others a backend may have done what it was told."""

T = TypeVar("T")


class Mirror:
    """Repeats on the target what the source was told, and counts what the target missed.

    The target can slow a caller down by one bound: who has waited that long for it goes on, and
    until it has answered again its writes are counted as missed at once. What tries it then is a
    write that nobody waits for, or the next question of a mover.

    A call that nobody waits for any more may still have its effect, at any time, over a later
    write. So nothing is asked of the target until the last of them has ended, and neither is it
    told how many writes were missed: after that, what a pass finds stays as it was found.

    Whoever writes or deletes holds a lock, so that nothing comes between the two halves.
    """

    def __init__(
        self, service: str, bound_s: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates the mirror of a process that has just started.

        Args:
            service: Python name of the service, for the metric.
            bound_s: Seconds that the target may take where a call gives none of its own.
            monotonic: Seconds on a clock that never goes back.
        """
        self._bound_s = bound_s
        self._monotonic = monotonic
        self._process_id = secrets.token_hex(8)
        self._changed = threading.Condition()
        self._under_way: set[int] = set()
        self._begun = 0
        self._left_alone = 0
        self._is_doubted = False
        self._away_until = 0.0
        self._missed = 0
        self._counter = Counter(
            f"skipstone_{service}_migration_missed_writes_total",
            "Writes that the backend which entries move to did not take.",
            registry=None,
        )

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metric, to be registered by the server."""
        return (self._counter,)

    def write(
        self,
        operation: str,
        of_source: Callable[[], T],
        of_target: Callable[[T], object],
        size_bytes: int = 0,
    ) -> T:
        """Writes to the source, and then to the target, whose trouble is counted and not raised.

        Args:
            operation: Name for the log.
            of_source: Writes to the source.
            of_target: Writes to the target, given what the source answered. It may go on after this
                method has returned.
            size_bytes: How much is written, for which the target gets more time.
        """
        with self._registered():
            with self._counting_failures(but_for=_REFUSALS):
                answer = of_source()
            bound_s = self._bound_s + size_bytes / _BYTES_PER_S
            self._repeat(operation, lambda: of_target(answer), bound_s)
            return answer

    def delete(
        self,
        of_target: Callable[[], object],
        of_source: Callable[[], T],
        bound_s: float | None = None,
    ) -> T:
        """Deletes in the target and then in the source; fails with either, and may be repeated.

        Raises:
            Unavailable: The target does not answer.
        """
        self._refuse_if_away(though_doubted=False)
        with self._registered():
            with self._counting_failures(but_for=_REFUSALS):
                self.ask(of_target, bound_s)
            with self._counting_failures():
                return of_source()

    def ask(
        self, run: Callable[[], T], bound_s: float | None = None, *, though_doubted: bool = False
    ) -> T:
        """Asks the target.

        Args:
            run: What to do.
            bound_s: Seconds that it may take.
            though_doubted: Ask also soon after it did not answer. For questions that hold no lock.

        Raises:
            Unavailable: It does not answer, or did not a moment ago.
            SkipstoneError: What it answers.
        """
        self._refuse_if_away(though_doubted)
        future = self._start(run)
        bound_s = bound_s or self._bound_s
        if not wait([future], bound_s).done:
            self._leave_alone(future)
            raise Unavailable(f"the target did not answer within {bound_s:g} s")
        self._learn(future)
        return future.result()

    def missed(self) -> MissedWrites:
        """Writes that the target missed so far; not those under way."""
        return MissedWrites(self._process_id, self._missed)

    def settled(self) -> MissedWrites:
        """Writes that the target missed, of all that began before.

        Raises:
            Unavailable: A call that nobody waits for any more has not ended.
            DeadlineExceeded: One of those writes has not ended in time.
        """
        with self._changed:
            before = set(self._under_way)
            wait_in_time(
                self._changed,
                lambda: not before & self._under_way,
                "writes under way have not ended in time",
            )
            if self._left_alone:
                raise _away()
            return self.missed()

    def close(self, close_target: Callable[[], object], bound_s: float) -> None:
        """Closes the target, if it can, and logs the count, which no metric tells any more."""
        try:
            self.ask(close_target, bound_s, though_doubted=True)
        except SkipstoneError as error:
            get_logger().warning("the target was not closed", error=error.message)
        get_logger().info("mirroring ended", missed_writes=self._missed)

    def _repeat(self, operation: str, run: Callable[[], object], bound_s: float) -> None:
        with self._changed:
            is_doubted = self._is_doubted
            is_away = self._is_away()
        if is_doubted or is_away:
            self._count_missed()
            if not is_away:
                self._leave_alone(self._start(run))
            return
        try:
            self.ask(run, bound_s)
        except SkipstoneError as error:
            self._count_missed()
            get_logger().warning(
                "the target missed a write", operation=operation, error=error.message
            )
        except Exception as error:  # noqa: BLE001 - nobody depends on the target
            self._count_missed()
            get_logger().error("the target missed a write", operation=operation, exc_info=error)

    def _start(self, run: Callable[[], T]) -> Future[T]:
        """Runs a call in a thread of its own: one that hangs keeps no process from ending.

        It has the caller's request id and not the caller's deadline: a store that gave up when that
        is over would look as if it were away, to all others too.
        """
        future: Future[T] = Future()
        context = contextvars.copy_context()
        context.run(clear_deadline)
        threading.Thread(
            target=context.run, args=(_fulfil, future, run), name="migration target", daemon=True
        ).start()
        return future

    def _leave_alone(self, future: Future[T]) -> None:
        """Waits for a call no more; nothing is asked until it has ended."""
        with self._changed:
            self._left_alone += 1
            self._is_doubted = True

        def end(future: Future[T]) -> None:
            with self._changed:
                self._left_alone -= 1
                self._learn(future)

        future.add_done_callback(end)

    def _learn(self, future: Future[T]) -> None:
        """Takes in whether the target answered."""
        error = future.exception()
        with self._changed:
            self._is_doubted = isinstance(error, Unavailable | DeadlineExceeded)
            if self._is_doubted:
                self._away_until = self._monotonic() + AWAY_S

    def _refuse_if_away(self, though_doubted: bool) -> None:
        with self._changed:
            if self._left_alone or (self._is_away() and not though_doubted):
                raise _away()

    def _is_away(self) -> bool:
        """Whether nothing may ask the target now."""
        return self._left_alone > 0 or (self._is_doubted and self._monotonic() < self._away_until)

    @contextmanager
    def _registered(self) -> Iterator[None]:
        with self._changed:
            self._begun += 1
            number = self._begun
            self._under_way.add(number)
        try:
            yield
        finally:
            with self._changed:
                self._under_way.remove(number)
                self._changed.notify_all()

    @contextmanager
    def _counting_failures(self, but_for: tuple[type[SkipstoneError], ...] = ()) -> Iterator[None]:
        """Counts what failed half way: the source may have what the target lacks."""
        try:
            yield
        except but_for:
            raise
        except BaseException:
            self._count_missed()
            raise

    def _count_missed(self) -> None:
        with self._changed:
            self._missed += 1
        self._counter.inc()


def _fulfil(future: Future[T], run: Callable[[], T]) -> None:
    try:
        answer = run()
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        future.set_exception(error)
    else:
        future.set_result(answer)


def _away() -> Unavailable:
    return Unavailable("the target does not answer", retry_after_s=AWAY_S)
