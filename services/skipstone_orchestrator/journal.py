"""What happened to one request: time per stage and everything that went wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from skipstone_orchestrator.breaker import Clock
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.orchestration import Fallback

BUILD_QUERY = "build_query"
LOOKUP = "lookup"
RERANK = "rerank"
RESUME = "resume"
DENOISE = "denoise"
DECODE = "decode"
SNAPSHOT = "snapshot"
SAVE = "save"
TOTAL = "total"


class Journal:
    """The record of one request; belongs to it alone."""

    def __init__(self, clock: Clock) -> None:
        """Starts the record.

        Args:
            clock: Seconds.
        """
        self._clock = clock
        self._started = clock()
        self._times: dict[str, float] = {}
        self._fallbacks: list[Fallback] = []

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """What went wrong, in order."""
        return tuple(self._fallbacks)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to a stage."""
        started = self._clock()
        try:
            yield
        finally:
            self.add_time(name, self._clock() - started)

    def add_time(self, name: str, seconds: float) -> None:
        """Adds time that was measured elsewhere."""
        self._times[name] = self._times.get(name, 0.0) + seconds

    def times(self) -> dict[str, float]:
        """Seconds per stage, with the total so far."""
        return {**self._times, TOTAL: self._clock() - self._started}

    def fall_back(self, stage: str, service: str) -> Attempt:
        """A block whose errors become a fallback, with the time they cost."""
        return Attempt(self, stage, service, self._clock)

    def add(self, fallback: Fallback) -> None:
        """Notes something that went wrong."""
        self._fallbacks.append(fallback)


class Attempt:
    """A block of a request that may fail without failing the request."""

    def __init__(self, journal: Journal, stage: str, service: str, clock: Clock) -> None:
        """Prepares the block; made by `Journal.fall_back`."""
        self.failed = False
        self._journal = journal
        self._stage = stage
        self._service = service
        self._clock = clock
        self._started = 0.0

    def __enter__(self) -> Self:
        self._started = self._clock()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(exc, SkipstoneError):
            return False
        self.failed = True
        delay = self._clock() - self._started
        self._journal.add(Fallback(self._stage, self._service, exc.reason, exc.message, delay))
        return True
