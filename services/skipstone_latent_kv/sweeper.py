"""The thread that removes what ended and saves use times, every few seconds."""

from __future__ import annotations

import threading
from typing import Protocol

from skipstone_shared.errors import SkipstoneError
from skipstone_shared.structured_logging import get_logger


class Sweepable(Protocol):
    """A store that needs regular care."""

    def sweep(self) -> int:
        """Removes what ended; returns how many entries."""
        ...


class Sweeper:
    """Sweeps a store until it is stopped. Correctness does not depend on it, only freed space."""

    def __init__(self, store: Sweepable, interval_s: float) -> None:
        """Starts the thread.

        Args:
            store: What to sweep.
            interval_s: Seconds between two sweeps.
        """
        self._store = store
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sweeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a running sweep finishes first."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        log = get_logger()
        while not self._stopping.wait(self._interval_s):
            try:
                ended = self._store.sweep()
            except SkipstoneError as error:
                # For example a full disk; the next sweep may find it better.
                log.error("sweep failed", error=error.message)
                continue
            except Exception as error:
                log.error("sweep failed", exc_info=error)
                continue
            if ended:
                log.info("swept", ended=ended)
