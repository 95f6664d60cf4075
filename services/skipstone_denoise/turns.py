"""Turns of computations each of which moves away the weights of the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lets one thread at a time compute with a model, first come, first served.

    A model that is offloaded is on the device in part: who encodes a picture for a plan moves away
    the transformer that a run is in the middle of. Between two of its steps a run gives way
    (`let_others`), so that a plan waits for one step, or while a run encodes or decodes, and not
    for a video.
    """

    def __init__(self) -> None:
        """Nobody has the turn."""
        self._changed = threading.Condition()
        self._tickets = 0
        self._served = 0

    @property
    def waiting(self) -> int:
        """Threads that wait for their turn."""
        with self._changed:
            return max(0, self._tickets - self._served - 1)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for the turn and holds it. Not reentrant."""
        self._take()
        try:
            yield
        finally:
            self._pass_on()

    def let_others(self) -> None:
        """Gives the turn to those who wait by now, and goes on after them. Only in a turn."""
        self._pass_on()
        self._take()

    def _take(self) -> None:
        with self._changed:
            ticket = self._tickets
            self._tickets += 1
            self._changed.wait_for(lambda: self._served == ticket)

    def _pass_on(self) -> None:
        with self._changed:
            self._served += 1
            self._changed.notify_all()
