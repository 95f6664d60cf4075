"""How many requests run and how many may wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from skipstone_shared.errors import QueueFull, Unavailable


class Admission:
    """Runs work on a fixed number of threads and bounds what waits. Threads may share it."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        """Creates the threads lazily.

        Args:
            max_running: Requests that run at once.
            max_waiting: Requests that may wait beyond these.
        """
        self._pool = ThreadPoolExecutor(max_running, thread_name_prefix="denoise")
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._admitted = 0
        self._running = 0
        self._closed = False

    @property
    def running_count(self) -> int:
        """Requests that run."""
        with self._lock:
            return self._running

    @property
    def waiting_count(self) -> int:
        """Requests that wait."""
        with self._lock:
            return self._admitted - self._running

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Runs `work` as soon as a thread is free; first come, first served.

        Cancelling the future before that gives its place to others at once.

        Raises:
            QueueFull: as many requests wait as may.
            Unavailable: the executor is closed.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("the executor is shutting down")
            if self._admitted >= self._max_running + self._max_waiting:
                raise QueueFull(
                    f"{self._max_running} generations run and {self._max_waiting} wait; "
                    "try again later or elsewhere"
                )
            self._admitted += 1
        future = self._pool.submit(self._run, work)
        future.add_done_callback(self._leave)
        return future

    def close(self) -> None:
        """Cancels what waits and returns when nothing runs any more."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._running += 1
        try:
            work()
        finally:
            with self._lock:
                self._running -= 1

    def _leave(self, _future: Future[None]) -> None:
        with self._lock:
            self._admitted -= 1
