"""What one operation costs: CPU of every process that takes part in it, and time on the wall."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_OF_ALL_THREADS = 2
"""CPUCLOCK_SCHED in the Linux kernel: nanoseconds that a process ran. The times of
`/proc/PID/stat` come in steps of 10 ms, longer than most of what is measured here."""

_AT_REST_S = 30e-6
"""CPU in a millisecond that idle threads of a gRPC server may use."""
_LONGEST_REST_S = 0.05


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of one operation."""

    cpu_ms: float
    wall_ms: float


def process_cpu_s(pid: int) -> float:
    """CPU seconds of another process so far, all its threads together."""
    return time.clock_gettime((~pid << 3) | _OF_ALL_THREADS)


class AtRest:
    """CPU of this process and of others from now on, told once all of them are at rest.

    What servers still do after their answer (logging, freeing) is in it; what this process takes to
    look at them is not.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        """Begins to count.

        Args:
            pids: Processes that take part, beside this one.
        """
        self._pids = pids
        self._waited_s = 0.0
        self._own, self._others = time.process_time(), _cpu_s(pids)

    def cpu_s(self) -> float:
        """Waits for rest; returns CPU seconds since the beginning."""
        waiting = time.thread_time()
        _wait_for_rest(self._pids)
        self._waited_s += time.thread_time() - waiting
        own = time.process_time() - self._own - self._waited_s
        return own + _cpu_s(self._pids) - self._others


def measured(run: Callable[[], object], pids: Sequence[int]) -> Cost:
    """Runs an operation; see `AtRest` for what counts.

    Args:
        run: The operation.
        pids: Processes that take part, beside this one.
    """
    counted = AtRest(pids)
    start = time.perf_counter()
    run()
    wall_s = time.perf_counter() - start
    return Cost(1000 * counted.cpu_s(), 1000 * wall_s)


def _wait_for_rest(pids: Sequence[int]) -> None:
    end = time.perf_counter() + _LONGEST_REST_S
    before = _cpu_s(pids)
    while pids and time.perf_counter() < end:
        time.sleep(0.001)
        now = _cpu_s(pids)
        if now - before < _AT_REST_S:
            return
        before = now


def _cpu_s(pids: Sequence[int]) -> float:
    return sum(process_cpu_s(pid) for pid in pids)
