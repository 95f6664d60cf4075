"""One writer thread: operations that wait at the same moment share one transaction."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from skipstone_shared.errors import DeadlineExceeded, Unavailable
from skipstone_shared.request_context import remaining_s

T = TypeVar("T")

Operation = Callable[[Any], Any]
"""What to do inside a transaction, which is its argument. It may run again after a rollback."""

Outcome = tuple[Any, Exception | None]
"""Result of an operation, or its error."""

_MAX_BATCH_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class _Waiting:
    operation: Operation
    size_bytes: int
    outcome: Future[Any]


class GroupCommitter:
    """Runs operations on one thread and answers each when its transaction is committed.

    An fsync costs milliseconds whatever it covers, so the operations that arrive while one runs
    form the next batch: throughput rises with load while a lone caller waits for one fsync only.
    """

    def __init__(
        self, execute: Callable[[Sequence[Operation]], list[Outcome]], max_batch: int
    ) -> None:
        """Starts the thread.

        Args:
            execute: Runs operations in one transaction, commits, and returns their outcomes; when
                it raises, everything is rolled back.
            max_batch: Operations in one transaction.
        """
        self._execute = execute
        self._max_batch = max_batch
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="group-commit", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Operations that wait for the next transaction."""
        return self._queue.qsize()

    def run(self, operation: Callable[[Any], T], size_bytes: int = 0) -> T:
        """Runs an operation, waits for its commit and returns its result.

        It waits no longer than the request that it works for has time.

        Args:
            operation: What to do.
            size_bytes: About how many bytes it writes.

        Raises:
            Unavailable: the committer is closed.
            DeadlineExceeded: the time is over. The message says whether the operation had begun;
                what had not begun never will.
            Exception: what the operation or the commit raised.
        """
        waiting = _Waiting(operation, size_bytes, Future())
        with self._lock:
            if self._closed:
                raise Unavailable("the store is closed")
            self._queue.put(waiting)
        result: T = _result_in_time(waiting.outcome)
        return result

    def close(self) -> None:
        """Finishes what waits and ends the thread. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._next_batch()
            # Those whose callers have given up do not begin any more.
            begun = [w for w in batch if w.outcome.set_running_or_notify_cancel()]
            if begun:
                self._commit(begun)

    def _next_batch(self) -> tuple[list[_Waiting], bool]:
        """Waits for one operation and takes what else is there; True when it was the last."""
        batch: list[_Waiting] = []
        size_bytes = 0
        waiting = self._queue.get()
        while waiting is not None:
            batch.append(waiting)
            size_bytes += waiting.size_bytes
            if len(batch) == self._max_batch or size_bytes >= _MAX_BATCH_BYTES:
                return batch, False
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: Sequence[_Waiting]) -> None:
        try:
            outcomes = self._execute([waiting.operation for waiting in batch])
        except Exception as error:  # noqa: BLE001 - handed to the caller whose operation it was
            if len(batch) > 1:
                # One of them is at fault; the others must not share its error.
                for waiting in batch:
                    self._commit([waiting])
                return
            outcomes = [(None, error)]
        for waiting, (result, failure) in zip(batch, outcomes, strict=True):
            if failure is None:
                waiting.outcome.set_result(result)
            else:
                waiting.outcome.set_exception(failure)


def _result_in_time(outcome: Future[Any]) -> Any:
    """The result, waited for no longer than the request has time."""
    try:
        return outcome.result(remaining_s())
    except TimeoutError:
        if outcome.done():  # In the last moment, or the error is the operation's own.
            return outcome.result()
    if outcome.cancel():
        raise DeadlineExceeded("the store was busy with other changes; nothing was changed")
    raise DeadlineExceeded("the store has not finished in time; the next call shows what changed")
