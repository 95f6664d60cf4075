"""Work beside an engine's loop: one thread, a bounded queue, a bounded wait at the end."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)


class BackgroundWriter:
    """Runs jobs in order on a thread of its own, which starts with the first. Threads may share it.

    A full queue refuses a job: what is stored late is worth less than an engine that is not held
    up.
    """

    def __init__(self, queue_size: int, name: str) -> None:
        """Creates the writer without starting its thread, so that it may be made before a fork.

        Args:
            queue_size: Jobs that may wait.
            name: Name of the thread.
        """
        self._queue_size = queue_size
        self._name = name
        self._jobs: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._when_idle: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False

    def submit(self, job: Callable[[], None]) -> bool:
        """Runs a job soon; False when the queue is full or closed and it never runs."""
        with self._changed:
            if self._closed or len(self._jobs) >= self._queue_size:
                return False
            self._jobs.append(job)
            if self._thread is None:
                # A daemon, so that a store that hangs cannot hold up the end of the program.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def flush(self, timeout_s: float) -> bool:
        """Waits until all jobs are done; whether they are. Called by a job it does not wait."""
        if threading.current_thread() is self._thread:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, timeout_s)

    def call_when_idle(self, tell: Callable[[], None]) -> None:
        """Calls once when all jobs are done: at once, or by the thread; it must not raise."""
        with self._changed:
            if self._jobs or self._busy:
                self._when_idle.append(tell)
                return
        tell()

    def close(self, timeout_s: float) -> int:
        """Waits for the jobs, then ends; how many never ran. Idempotent."""
        with self._changed:
            self._closed = True
        self.flush(timeout_s)
        with self._changed:
            left = len(self._jobs)
            self._jobs.clear()
            self._changed.notify_all()
        return left

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                job = self._jobs.popleft()
                self._busy = True
            try:
                job()
            except Exception:  # noqa: BLE001 - logged; the next job may be fine
                _log.exception("a job of %s failed", self._name)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
                    told = [] if self._jobs else self._when_idle
                    self._when_idle = self._when_idle if self._jobs else []
                for tell in told:
                    tell()
