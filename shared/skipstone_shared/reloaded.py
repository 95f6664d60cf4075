"""A value that is read from files, and read again when they have changed: keys, tokens.

Files are looked at when the value is asked for, so nothing runs in the background. Kubernetes
replaces a mounted secret by switching a symbolic link; the file behind it counts, so that is seen.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

CHECK_INTERVAL_S = 1.0
"""Pause between two looks at the files."""

_log = logging.getLogger(__name__)  # clients are installed without structlog

T = TypeVar("T")
_Fingerprint = tuple[tuple[int, int, int] | None, ...]


class Reloaded(Generic[T]):
    """A value of files. Threads may share it.

    A new state of the files that cannot be read is logged once, and the value before it stays: two
    files of a pair are rarely replaced at the same moment.
    """

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        load: Callable[[], T],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads the value.

        Args:
            what: Name of it in the log.
            paths: Files it is read from.
            load: Reads it.
            clock: Seconds on a clock that never goes back.

        Raises:
            Exception: What `load` raises.
        """
        self._what = what
        self._paths = tuple(paths)
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        # Taken before reading: a change in between is seen at the next look.
        self._seen = self._fingerprint()
        self._value = load()
        self._next_look = clock() + CHECK_INTERVAL_S

    def get(self) -> T:
        """The value of what the files hold now; what they held a second ago is new enough."""
        with self._lock:
            now = self._clock()
            if now >= self._next_look:
                self._next_look = now + CHECK_INTERVAL_S
                self._look()
            return self._value

    def _look(self) -> None:
        found = self._fingerprint()
        if found == self._seen:
            return
        self._seen = found
        try:
            self._value = self._load()
        except Exception as error:  # noqa: BLE001 - whatever it is, the old value still holds
            _log.error("cannot reload %s, what was there before still holds: %s", self._what, error)
        else:
            _log.info("reloaded %s", self._what)

    def _fingerprint(self) -> _Fingerprint:
        return tuple(_state_of(path) for path in self._paths)


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
