"""Locks of entries, and of all that a namespace has or will have."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from skipstone_latent_kv.entry_table import EntryKey
from skipstone_shared.deadline_waits import wait_in_time

_BUSY = "other calls work on it, or it is being moved; nothing was changed"


class EntryLocks:
    """Lets one thread at a time work on an entry; work on others goes on.

    Nobody waits longer than the request that they work for has time: DeadlineExceeded.
    """

    def __init__(self) -> None:
        """Creates it; nothing is locked."""
        self._held: set[EntryKey] = set()
        self._namespaces: set[str] = set()
        self._freed = threading.Condition()

    @contextmanager
    def hold(self, *keys: EntryKey) -> Iterator[None]:
        """Waits until nobody holds any of these entries, and holds them. Not reentrant."""
        wanted = set(keys)
        with self._freed:
            wait_in_time(self._freed, lambda: not self._is_held(wanted), _BUSY)
            self._held |= wanted
        try:
            yield
        finally:
            with self._freed:
                self._held -= wanted
                self._freed.notify_all()

    @contextmanager
    def hold_namespace(self, namespace: str) -> Iterator[None]:
        """Holds every entry that a namespace has or will have. Not reentrant.

        Who holds one of them ends first; who comes later waits, so that it gets its turn.
        """
        with self._freed:
            wait_in_time(self._freed, lambda: namespace not in self._namespaces, _BUSY)
            self._namespaces.add(namespace)
        try:
            with self._freed:
                wait_in_time(self._freed, lambda: self._is_free(namespace), _BUSY)
            yield
        finally:
            with self._freed:
                self._namespaces.remove(namespace)
                self._freed.notify_all()

    def _is_free(self, namespace: str) -> bool:
        return all(held != namespace for held, _ in self._held)

    def _is_held(self, wanted: set[EntryKey]) -> bool:
        return not wanted.isdisjoint(self._held) or any(
            namespace in self._namespaces for namespace, _ in wanted
        )
