"""A lock that many readers share and one writer has alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """Lets readers run together and a writer alone, in turns: neither can starve the other.

    A waiting writer goes before readers that come after it. When it is done, the readers that
    wait by then go before the next writer, also before one that comes back at once, as an upsert of
    many vectors does between its pieces.

    Needed because hnswlib forbids a query during an insert. Not reentrant.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._readers_waiting = 0
        self._readers_first = 0
        self._writing = False
        self._writers_waiting = 0

    @property
    def has_waiting_writer(self) -> bool:
        """Whether a writer waits, so that new readers wait too."""
        return self._writers_waiting > 0

    @property
    def has_waiting_reader(self) -> bool:
        """Whether a reader waits for a writer."""
        return self._readers_waiting > 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Holds off writers inside the block."""
        with self._changed:
            self._readers_waiting += 1
            self._changed.wait_for(self._may_read)
            self._readers_waiting -= 1
            self._readers_first = max(0, self._readers_first - 1)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds off everybody else inside the block."""
        with self._changed:
            self._writers_waiting += 1
            self._changed.wait_for(self._may_write)
            self._writers_waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._readers_first = self._readers_waiting
                self._changed.notify_all()

    def _may_read(self) -> bool:
        return not self._writing and (self._readers_first > 0 or not self.has_waiting_writer)

    def _may_write(self) -> bool:
        return not self._writing and not self._readers and not self._readers_first
