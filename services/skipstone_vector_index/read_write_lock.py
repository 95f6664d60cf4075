"""A lock that many readers share and one writer has alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """Lets readers run together and a writer alone; a waiting writer goes before new readers.

    Needed because hnswlib forbids a query during an insert. Not reentrant.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0

    @property
    def has_waiting_writer(self) -> bool:
        """Whether a writer waits, so that new readers wait too."""
        return self._writers_waiting > 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Holds off writers inside the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self.has_waiting_writer)
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
            self._changed.wait_for(lambda: not self._writing and not self._readers)
            self._writers_waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
