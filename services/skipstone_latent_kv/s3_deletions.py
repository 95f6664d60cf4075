"""Deletes values that no entry has any more, and remembers which: the log learns it by and by.

Whatever a change takes from an entry is deleted right after it, by the process that made the
change. Every process knows from the log which values these are; so when S3 fails at that moment, or
the process dies, another one can do it, and nobody is told meanwhile that they are gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from skipstone_latent_kv.s3_values import ValueName


class S3Deletions:
    """Deletions that the log does not know yet. Every method may be called from any thread."""

    def __init__(self, delete: Callable[[Sequence[ValueName]], None]) -> None:
        """None so far.

        Args:
            delete: Deletes values in S3.
        """
        self._delete = delete
        self._lock = threading.Lock()
        self._untold: dict[ValueName, None] = {}

    def delete(self, names: Sequence[ValueName]) -> None:
        """Deletes values; those that are not there are no error.

        Raises:
            Unavailable: S3 does not answer; some may be left.
            FailedPrecondition: S3 refuses it.
        """
        self._delete(names)
        self.give_back(names)

    def take(self) -> list[ValueName]:
        """Takes out what the log is to be told."""
        with self._lock:
            untold, self._untold = self._untold, {}
            return list(untold)

    def give_back(self, names: Sequence[ValueName]) -> None:
        """Puts back what the log has not been told after all."""
        with self._lock:
            self._untold.update(dict.fromkeys(names))
