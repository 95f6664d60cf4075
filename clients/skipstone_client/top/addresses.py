"""The replicas behind a target, as they come and go."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from skipstone_client._addresses import addresses_of
from skipstone_shared.errors import Unavailable

Resolve = Callable[[str], Sequence[str]]
"""Gives the addresses behind a target, none where it stands for itself, or raises Unavailable."""

LOOK_UP_EVERY_S = 2.0
"""Pause between two look-ups of a name, as that of the clients."""

FIRST_LOOK_UP_S = 2.0
"""Most that the first look waits for a name; a resolver that is away takes far longer to tell."""


def by_name(target: str) -> Sequence[str]:
    """Looks a target up as the clients do."""
    return addresses_of(target)[1]


class Addresses:
    """The replicas behind a target, looked up again and again.

    On a thread of its own: a resolver that hangs holds nobody up. Where the name is unknown what
    was known before stays, and the target stands for itself when nothing was.
    """

    def __init__(self, target: str, resolve: Resolve) -> None:
        """Begins to look up.

        Args:
            target: gRPC target.
            resolve: How it is looked up.
        """
        self._target = target
        self._resolve = resolve
        self._found: tuple[str, ...] = (target,)
        self._answered = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._look_up, name="top-addresses", daemon=True).start()

    def now(self) -> tuple[str, ...]:
        """What was found last. Waits FIRST_LOOK_UP_S for the first answer."""
        self._answered.wait(FIRST_LOOK_UP_S)
        return self._found

    def close(self) -> None:
        """Ends the look-ups."""
        self._closed.set()

    def _look_up(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(Unavailable):
                self._found = tuple(self._resolve(self._target)) or (self._target,)
            self._answered.set()
            self._closed.wait(LOOK_UP_EVERY_S)
