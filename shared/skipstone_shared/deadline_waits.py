"""Waits for other threads that end when the time of the request is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from skipstone_shared.errors import DeadlineExceeded
from skipstone_shared.request_context import remaining_s


class DeadlineLock:
    """A lock for ``with``; not reentrant."""

    def __init__(self, busy: str) -> None:
        """Creates it; nobody holds it.

        Args:
            busy: What to tell who could not get it in time.
        """
        self._busy = busy
        self._lock = threading.Lock()

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._lock.locked()

    def __enter__(self) -> None:
        """Waits until nobody holds it, and holds it.

        Raises:
            DeadlineExceeded: The time of the request was over first.
        """
        left = remaining_s()
        if not self._lock.acquire(timeout=-1 if left is None else left):
            raise DeadlineExceeded(self._busy)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


def wait_in_time(
    condition: threading.Condition, predicate: Callable[[], bool], overdue: str
) -> None:
    """Waits until something is so.

    Args:
        condition: Held; notified when it may be so.
        predicate: Whether it is.
        overdue: What to tell who could not wait that long.

    Raises:
        DeadlineExceeded: The time of the request was over first.
    """
    if not condition.wait_for(predicate, remaining_s()):
        raise DeadlineExceeded(overdue)
