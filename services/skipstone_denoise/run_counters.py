"""Counts of runs since the start."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from skipstone_shared.denoise_runs import DenoiseStats
from skipstone_shared.errors import Cancelled


class RunCounters:
    """Counts how runs end. Threads may share it."""

    def __init__(self) -> None:
        """Starts at zero."""
        self._lock = threading.Lock()
        self._stats = DenoiseStats()

    def stats(self) -> DenoiseStats:
        """The counts."""
        with self._lock:
            return self._stats

    @contextmanager
    def run(self) -> Iterator[None]:
        """Counts the run inside the block by how it ends."""
        try:
            yield
        except Cancelled:
            self.cancelled()
            raise
        except BaseException:
            self._add(failed_count=1)
            raise
        self._add(finished_count=1)

    def cancelled(self) -> None:
        """Counts a run whose caller went away."""
        self._add(cancelled_count=1)

    def steps(self, executed: int, skipped: int) -> None:
        """Counts steps that were run and steps that were not needed."""
        self._add(executed_steps=executed, skipped_steps=skipped)

    def _add(self, **counts: int) -> None:
        with self._lock:
            sums = {name: getattr(self._stats, name) + count for name, count in counts.items()}
            self._stats = dataclasses.replace(self._stats, **sums)
