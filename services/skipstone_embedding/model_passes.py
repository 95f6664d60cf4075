"""Passes through a model that callers share: bounded in memory, and none for callers that left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from skipstone_shared.errors import DeadlineExceeded
from skipstone_shared.request_context import remaining_s

_IN_MEMORY = 2
"""One that runs, and one that is prepared meanwhile."""


class ModelPasses:
    """Lets passes through a model one at a time, and two be in memory. Threads share it."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._room = threading.BoundedSemaphore(_IN_MEMORY)
        self._model = threading.Lock()

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """A block that prepares a pass and runs it.

        Raises:
            DeadlineExceeded: The current request's deadline came first.
        """
        check_time_left()
        if not self._room.acquire(timeout=remaining_s()):
            raise _too_late()
        try:
            check_time_left()
            yield
        finally:
            self._room.release()

    @contextmanager
    def running(self) -> Iterator[None]:
        """A block that runs the model."""
        with self._model:
            yield


def check_time_left() -> None:
    """Ends what nobody waits for any more.

    Raises:
        DeadlineExceeded: The current request's deadline is over.
    """
    if remaining_s() == 0:
        raise _too_late()


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded("the candidates were not scored in time")
