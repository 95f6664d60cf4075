"""Drives a move of entries to its end: passes until one finds nothing to do, at a bounded rate.

When is the target complete? An entry that a pass has compared can differ only by a later write that
the target missed. So both are in step when a pass had nothing to copy, and every process that
writes to the source counted as many missed writes after the pass as before it. Counts belong to
processes, which have another id after every start: one that ended meanwhile may have written to the
source alone as it ended.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from skipstone_shared.errors import DeadlineExceeded, SkipstoneError, Unavailable
from skipstone_shared.migration import MigrationStep, MissedWrites, RefusedEntry

_STEP_BYTES = 64 << 20
_RETRY_S = 1.0

T = TypeVar("T")


class Stepping(Protocol):
    """Does one step of a pass: `MigrationClient.migrate_entries`."""

    def __call__(self, page_token: str, *, max_bytes: int, verify: bool) -> MigrationStep:
        """Does it."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class MoveOptions:
    """How entries are moved.

    Attributes:
        bytes_per_s: Most bytes copied per second; 0 for no bound.
        verify: Whether the first pass reads back all that the target has.
        most_passes: After how many passes it gives up.
        retry_for_s: For how long it waits for a side that does not answer any more, in seconds.
    """

    bytes_per_s: float = 0.0
    verify: bool = False
    most_passes: int = 10
    retry_for_s: float = 60.0


@dataclasses.dataclass
class Move:
    """What was done so far.

    Attributes:
        source: Engine that served.
        target: Engine that entries moved to.
        in_step: Whether the last pass had nothing to copy and the target missed nothing during it:
            the service may switch.
        passes: Passes that were finished.
        compared: Entries that the last pass compared.
        copied: Entries copied, by all passes together.
        copied_bytes: Their bytes.
        removed: Entries removed from the target.
        left: Entries that the last pass had to copy. Those that it removed do not count: the source
            had evicted them, as it may at any time.
        missed_writes: Writes that the target missed during the last pass.
        restarted: Whether other processes answered in the last pass than before it.
        refused: Entries that the target cannot take, from the last pass.
        seconds: How long it took.
    """

    source: str = ""
    target: str = ""
    in_step: bool = False
    passes: int = 0
    compared: int = 0
    copied: int = 0
    copied_bytes: int = 0
    removed: int = 0
    left: int = 0
    missed_writes: int = 0
    restarted: bool = False
    refused: list[RefusedEntry] = dataclasses.field(default_factory=list)
    seconds: float = 0.0


class Mover:
    """Moves entries by asking a service for one step after the other."""

    def __init__(
        self,
        step: Stepping,
        missed_writes: Callable[[], Iterable[MissedWrites]],
        options: MoveOptions,
        *,
        on_step: Callable[[Move, MigrationStep], None] = lambda move, step: None,
        on_wait: Callable[[SkipstoneError], None] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Creates it.

        Args:
            step: Does one step, in any process that serves.
            missed_writes: Asks every process that serves for its count.
            options: How entries are moved.
            on_step: Told after every step.
            on_wait: Told why when it begins to wait for a side that does not answer.
            clock: Seconds on a clock that never goes back.
            pause: Waits for some seconds.
        """
        self._step = step
        self._missed_writes = missed_writes
        self._options = options
        self._on_step = on_step
        self._on_wait = on_wait
        self._clock = clock
        self._pause = pause
        self._has_begun = False
        # A step is the unit in which a rate is kept.
        rate = int(options.bytes_per_s)
        self._step_bytes = max(1, min(_STEP_BYTES, rate)) if rate else _STEP_BYTES

    def run(self) -> Move:
        """Runs passes until one finds nothing to do or nothing more can be done.

        Raises:
            SkipstoneError: A side did not answer for longer than it was to be waited for, or the
                target is full. Running again goes on.
        """
        move, begun = Move(), self._clock()
        while not move.in_step and move.passes < self._options.most_passes:
            self._run_pass(move)
            move.seconds = self._clock() - begun
            if move.refused and not (move.left or move.missed_writes or move.restarted):
                break
        return move

    def _run_pass(self, move: Move) -> None:
        before = self._patiently(self._counts)
        answered = self._run_steps(move)
        after = self._patiently(self._counts)
        move.passes += 1
        move.missed_writes = sum(
            count - before[process] for process, count in after.items() if process in before
        )
        move.restarted = not answered <= before.keys() == after.keys()
        move.in_step = not (move.left or move.refused or move.missed_writes or move.restarted)

    def _run_steps(self, move: Move) -> set[str]:
        """Runs the steps of a pass; the ids of the processes that answered."""
        move.compared, move.left, move.refused = 0, 0, []
        verify = self._options.verify and not move.passes
        answered = set()
        token = ""
        while True:
            begun = self._clock()
            ask = partial(self._step, token, max_bytes=self._step_bytes, verify=verify)
            step = self._patiently(ask)
            answered.add(step.process_id)
            _add(move, step)
            self._on_step(move, step)
            token = step.next_page_token
            if not token:
                return answered
            if self._options.bytes_per_s:
                due = step.copied_bytes / self._options.bytes_per_s
                self._pause(max(0.0, due - (self._clock() - begun)))

    def _counts(self) -> dict[str, int]:
        """Missed writes by process."""
        return {missed.process_id: missed.count for missed in self._missed_writes()}

    def _patiently(self, ask: Callable[[], T]) -> T:
        waiting_since: float | None = None
        while True:
            try:
                answer = ask()
            except (Unavailable, DeadlineExceeded) as error:
                now = self._clock()
                if not self._has_begun:
                    raise  # It was never there: most likely the address is wrong.
                if waiting_since is None:
                    waiting_since = now
                    self._on_wait(error)
                if now - waiting_since >= self._options.retry_for_s:
                    raise
                self._pause(_RETRY_S)
            else:
                self._has_begun = True
                return answer


def _add(move: Move, step: MigrationStep) -> None:
    move.source, move.target = step.source, step.target
    move.compared += step.compared
    move.copied += step.copied
    move.copied_bytes += step.copied_bytes
    move.removed += step.removed
    move.left += step.copied
    move.refused += step.refused
