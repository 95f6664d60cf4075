"""Runs the rows of a batch several at a time, in threads; asks again while Skipstone is away."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar

from skipstone_client.batch.rows import Row
from skipstone_shared.errors import (
    Aborted,
    PermissionDenied,
    ResourceExhausted,
    SkipstoneError,
    Unauthenticated,
    Unavailable,
)

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_SIGNAL_POLL_S = 0.2
_WORTH_ANOTHER_TRY = (Unavailable, ResourceExhausted, Aborted)
_OF_ALL_ROWS = (Unavailable, Unauthenticated, PermissionDenied)
"""Errors that every other row would meet too."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """A row that is done, with what was made of it."""

    row: Row
    made: T


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A row that failed, with why."""

    row: Row
    error: SkipstoneError


class BatchStopped(Exception):
    """The batch cannot go on: every row that is left would fail like the last one."""

    def __init__(self, error: SkipstoneError) -> None:
        """Keeps what the last row failed with."""
        super().__init__(str(error))
        self.error = error


def run_rows(
    rows: Sequence[Row],
    make: Callable[[Row], T],
    *,
    concurrency: int,
    retry_for_s: float,
    cancel: Callable[[], None],
) -> Generator[Made[T] | Failed, None, None]:
    """Runs rows and gives each as it ends, in any order.

    Closing the generator, an interrupt in it too, ends what runs and begins nothing more.

    Args:
        rows: What to run, in this order.
        make: Makes what a row asks for; called from several threads.
        concurrency: Rows at a time.
        retry_for_s: Seconds that a row goes on asking when Skipstone is away or full.
        cancel: Ends the calls that run, so that nobody waits for them.

    Raises:
        BatchStopped: while iterating: Skipstone stayed away, or lets this caller do nothing.
    """
    waiting: queue.SimpleQueue[Row] = queue.SimpleQueue()
    for row in rows:
        waiting.put(row)
    ended: queue.SimpleQueue[Made[T] | Failed | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    work = _Work(make, waiting, ended, stop, retry_for_s)
    threads = [
        threading.Thread(target=work.run, name=f"batch {n}", daemon=True)
        for n in range(min(concurrency, len(rows)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in rows:
            yield _next(ended)
    finally:
        stop.set()
        cancel()
        for thread in threads:
            thread.join()


def _next(ended: queue.SimpleQueue[Made[T] | Failed | BaseException]) -> Made[T] | Failed:
    # In short pieces: a signal is handled in the main thread, which a plain wait keeps asleep.
    while True:
        try:
            found = ended.get(timeout=_SIGNAL_POLL_S)
        except queue.Empty:
            continue
        if isinstance(found, BaseException):
            raise found
        if isinstance(found, Failed) and isinstance(found.error, _OF_ALL_ROWS):
            raise BatchStopped(found.error)
        return found


class _Work(Generic[T]):
    """What every thread of a batch does."""

    def __init__(
        self,
        make: Callable[[Row], T],
        waiting: queue.SimpleQueue[Row],
        ended: queue.SimpleQueue[Made[T] | Failed | BaseException],
        stop: threading.Event,
        retry_for_s: float,
    ) -> None:
        self._make = make
        self._waiting = waiting
        self._ended = ended
        self._stop = stop
        self._retry_for_s = retry_for_s

    def run(self) -> None:
        """Runs rows until none waits, or the batch is stopped."""
        while not self._stop.is_set():
            try:
                row = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                self._ended.put(Made(row, self._made(row)))
            except SkipstoneError as error:
                if isinstance(error, _OF_ALL_ROWS):
                    self._stop.set()
                self._ended.put(Failed(row, error))
            except BaseException as error:  # noqa: BLE001 - raised again in the main thread
                self._stop.set()
                self._ended.put(error)

    def _made(self, row: Row) -> T:
        return patiently(lambda: self._make(row), self._retry_for_s, self._stop)


def patiently(call: Callable[[], T], retry_for_s: float, stop: threading.Event) -> T:
    """Calls, again and again while Skipstone is away or full.

    Args:
        call: What to call.
        retry_for_s: Seconds in which it is called again.
        stop: Ends the waiting.

    Raises:
        SkipstoneError: what the last call raised.
    """
    end = time.monotonic() + retry_for_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except _WORTH_ANOTHER_TRY as error:
            wait_s = max(pause_s, error.retry_after_s or 0.0)
            if time.monotonic() + wait_s > end or stop.wait(wait_s):
                raise
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
