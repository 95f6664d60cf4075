"""What became of one request of a reuse session, told by its own thread and the background."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Mapping
from types import MappingProxyType

from skipstone_shared.orchestration import Fallback, HitTier

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SessionStats:
    """What a session did so far.

    Attributes:
        exact: Requests whose result was stored.
        approximate: Requests resumed from a donor.
        misses: Requests that ran from noise.
        saved_entries: Runs that can be found.
        lost_entries: Runs that could not be saved.
        failed_snapshots: Snapshots that could not be stored.
        dropped_snapshots: Snapshots that the full queue refused.
    """

    exact: int = 0
    approximate: int = 0
    misses: int = 0
    saved_entries: int = 0
    lost_entries: int = 0
    failed_snapshots: int = 0
    dropped_snapshots: int = 0


class ReuseCounts:
    """Counts for one session. Threads may share it."""

    def __init__(self) -> None:
        """Starts at 0."""
        self._stats = SessionStats()
        self._lock = threading.Lock()

    @property
    def stats(self) -> SessionStats:
        """The counts."""
        with self._lock:
            return self._stats

    def add(self, **counts: int) -> None:
        """Adds to counts by their name."""
        with self._lock:
            sums = {name: getattr(self._stats, name) + count for name, count in counts.items()}
            self._stats = dataclasses.replace(self._stats, **sums)


class ReuseOutcome:
    """Gathers what happened. Threads may share it."""

    def __init__(self, counts: ReuseCounts) -> None:
        """Starts with nothing.

        Args:
            counts: Where the session counts the same.
        """
        self._counts = counts
        self._lock = threading.Lock()
        self._fallbacks: list[Fallback] = []
        self._failures: dict[int, str] = {}
        self._written = 0
        self._saved: bool | None = None
        self._save_failure = ""

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """What went wrong on the way to the start."""
        with self._lock:
            return tuple(self._fallbacks)

    @property
    def failures(self) -> Mapping[int, str]:
        """Why snapshots are not stored, by step."""
        with self._lock:
            return MappingProxyType(dict(self._failures))

    @property
    def written(self) -> int:
        """Snapshots stored."""
        with self._lock:
            return self._written

    @property
    def saved(self) -> bool | None:
        """Whether the entry can be found; None until that is known."""
        with self._lock:
            return self._saved

    @property
    def save_failure(self) -> str:
        """Why it cannot."""
        with self._lock:
            return self._save_failure

    def started(self, tier: HitTier) -> None:
        """It is decided where the run starts."""
        name = "misses" if tier is HitTier.MISS else tier.value
        self._counts.add(**{name: 1})

    def missed_after_all(self, tier: HitTier) -> None:
        """The engine cannot use a donor that was counted as a hit."""
        self._counts.add(**{tier.value: -1, "misses": 1})

    def fell_back(self, stage: str, service: str, reason: str, message: str) -> None:
        """Notes what went wrong before the start."""
        self.fallbacks_of((Fallback(stage, service, reason, message),))

    def fallbacks_of(self, fallbacks: tuple[Fallback, ...]) -> None:
        """Notes what the orchestrator told."""
        with self._lock:
            self._fallbacks.extend(fallbacks)

    def wrote(self) -> None:
        """A snapshot is stored."""
        with self._lock:
            self._written += 1

    def fail(self, step_index: int, reason: str) -> None:
        """A snapshot is not stored."""
        with self._lock:
            self._failures[step_index] = reason
        self._counts.add(failed_snapshots=1)
        _log.warning("snapshot of step %d not stored: %s", step_index, reason)

    def drop(self, step_index: int) -> None:
        """A snapshot is not stored because the background has too much to do."""
        with self._lock:
            self._failures[step_index] = "QUEUE_FULL: the background has too much to do"
        self._counts.add(dropped_snapshots=1)

    def was_saved(self) -> None:
        """The entry can be found."""
        with self._lock:
            self._saved = True
        self._counts.add(saved_entries=1)

    def not_saved(self, reason: str) -> None:
        """The entry cannot be found."""
        with self._lock:
            self._saved, self._save_failure = False, reason
        self._counts.add(lost_entries=1)
        _log.warning("run not saved: %s", reason)
