"""Removals as they happen in Redis, whichever process makes them."""

from __future__ import annotations

import threading
from collections import deque

from skipstone_latent_kv.redis_catalog import RedisCatalog
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind

_POLL_S = 0.1
"""Seconds between two looks. Not a blocking read: that would hold a connection, would not end when
the watch is closed, and would be cut off by the timeout that finds a dead server."""

_PAGE = 256


class RedisWatch:
    """One watcher's place among the events; an ``EvictionWatch``.

    ``next`` raises ``Unavailable`` when Redis does not answer; it may be called again.
    """

    def __init__(
        self,
        catalog: RedisCatalog,
        namespace: str,
        after_sequence: int,
        store_closed: threading.Event,
    ) -> None:
        """Begins a watch.

        Args:
            catalog: Has the events.
            namespace: Namespace to watch; empty for all.
            after_sequence: Number of the last event seen; 0 for only what happens from now on.
            store_closed: Set when the store closes.

        Raises:
            InvalidArgument: a negative number, or one that no event has had yet.
        """
        last, _ = catalog.events(max(0, after_sequence), 1)
        if not 0 <= after_sequence <= last:
            raise InvalidArgument(
                f"after_sequence {after_sequence} is not the number of an event",
                field="after_sequence",
                allowed=f"0 to {last}, the number of the last event",
            )
        self._catalog = catalog
        self._namespace = namespace
        self._position = after_sequence or last
        self._store_closed = store_closed
        self._closed = threading.Event()
        self._found: deque[EvictionEvent] = deque()

    def __iter__(self) -> RedisWatch:
        return self

    def __next__(self) -> EvictionEvent:
        while not self._over():
            if not self._found:
                self._look()
            while self._found:
                event = self._found.popleft()
                if event.kind is EvictionKind.GAP or self._namespace in ("", event.namespace):
                    return event
            self._closed.wait(_POLL_S)
        raise StopIteration

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()

    def _over(self) -> bool:
        return self._closed.is_set() or self._store_closed.is_set()

    def _look(self) -> None:
        last, events = self._catalog.events(self._position, _PAGE)
        first = events[0].sequence if events else last + 1
        # Numbers that went back: Redis was emptied, and with it everything that was stored.
        if last < self._position or first > self._position + 1:
            self._found.append(EvictionEvent(first - 1, EvictionKind.GAP))
        self._found.extend(events)
        self._position = events[-1].sequence if events else last
