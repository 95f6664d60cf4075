"""Counts of runs since the start."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from skipstone_shared.denoise_runs import BlockCacheSteps, DenoiseStats
from skipstone_shared.errors import Cancelled
from skipstone_shared.generation import BlockCacheReport, BranchReport


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

    def block_cache(self, report: BlockCacheReport) -> None:
        """Counts what block caching did in one run."""
        self._add(block_calls=report.block_calls, block_calls_full=report.block_calls_full)
        with self._lock:
            steps = {known.transformer: known for known in self._stats.block_cache_steps}
            for branch in report.branches:
                known = steps.get(branch.transformer, BlockCacheSteps(branch.transformer))
                steps[branch.transformer] = _with_branch(known, branch)
            self._stats = dataclasses.replace(
                self._stats, block_cache_steps=tuple(steps[name] for name in sorted(steps))
            )

    def _add(self, **counts: int) -> None:
        with self._lock:
            sums = {name: getattr(self._stats, name) + count for name, count in counts.items()}
            self._stats = dataclasses.replace(self._stats, **sums)


def _with_branch(steps: BlockCacheSteps, branch: BranchReport) -> BlockCacheSteps:
    return BlockCacheSteps(
        steps.transformer,
        steps.computed_steps + len(branch.computed_steps),
        steps.reused_steps + len(branch.reused_steps),
        dict(Counter(steps.reasons) + Counter(branch.reasons)),
    )
