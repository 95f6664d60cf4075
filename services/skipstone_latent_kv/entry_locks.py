"""One lock per entry that somebody holds or waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from skipstone_latent_kv.entry_table import EntryKey


class EntryLocks:
    """Lets one thread at a time work on an entry; work on others goes on."""

    def __init__(self) -> None:
        """Creates it; nothing is locked."""
        self._held: set[EntryKey] = set()
        self._freed = threading.Condition()

    @contextmanager
    def hold(self, key: EntryKey) -> Iterator[None]:
        """Waits until nobody holds an entry, and holds it for the block. Not reentrant."""
        with self._freed:
            self._freed.wait_for(lambda: key not in self._held)
            self._held.add(key)
        try:
            yield
        finally:
            with self._freed:
                self._held.remove(key)
                self._freed.notify_all()
