"""Reads that the log does not know yet: they go along with the next change, or with a sweep."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from skipstone_latent_kv.entry_table import EntryKey

Use = tuple[EntryKey, float, int]
"""An entry, when it was read last (seconds since the epoch), and how often."""


class UnsavedUses:
    """Reads of entries, those of an entry together, in the order of the last ones.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        """None so far."""
        self._lock = threading.Lock()
        self._uses: dict[EntryKey, tuple[float, int]] = {}

    def count(self, key: EntryKey, now: float) -> None:
        """Counts a read."""
        with self._lock:
            _, reads = self._uses.pop(key, (now, 0))
            self._uses[key] = now, reads + 1

    def take(self) -> list[Use]:
        """Takes all of them out."""
        with self._lock:
            uses, self._uses = self._uses, {}
            return [(key, *use) for key, use in uses.items()]

    def give_back(self, uses: Sequence[Use]) -> None:
        """Puts back what could not be saved; what was counted since comes after it."""
        with self._lock:
            since, self._uses = self._uses, {key: (time, reads) for key, time, reads in uses}
            for key, (time, reads) in since.items():
                _, before = self._uses.pop(key, (time, 0))
                self._uses[key] = time, before + reads
