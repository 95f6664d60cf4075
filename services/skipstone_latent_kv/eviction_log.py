"""The numbered list of removals: the last ones are kept, watchers wait for the next."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind


class EvictionLog:
    """Removals by ascending sequence number, the last ``capacity`` of them.

    A store that persists events passes them in at its start and publishes new ones once they are
    safe. Every method may be called from any thread.
    """

    def __init__(self, capacity: int, events: Iterable[EvictionEvent] = ()) -> None:
        """Creates the log.

        Args:
            capacity: Events kept; older ones become a GAP.
            events: Those of an earlier process, ascending without holes.
        """
        self.capacity = capacity
        self._events: deque[EvictionEvent] = deque(events, maxlen=capacity)
        self._last_sequence = self._events[-1].sequence if self._events else 0
        self.published: Counter[EvictionKind] = Counter()
        """Removals since this object was made, by why."""
        self._changed = threading.Condition()
        self._closed = False

    @property
    def events(self) -> list[EvictionEvent]:
        """Those that are kept."""
        with self._changed:
            return list(self._events)

    @property
    def last_sequence(self) -> int:
        """Number of the last event; 0 when there was none."""
        return self._last_sequence

    def number(self, removals: Iterable[tuple[EvictionKind, str, str]]) -> list[EvictionEvent]:
        """The events that these removals (kind, namespace, entry id) would be; not yet published.

        Only one thread at a time may be between ``number`` and ``publish``.
        """
        first = self._last_sequence + 1
        return [
            EvictionEvent(sequence, kind, namespace, entry_id)
            for sequence, (kind, namespace, entry_id) in enumerate(removals, first)
        ]

    def publish(self, events: Iterable[EvictionEvent]) -> None:
        """Appends events and wakes the watchers; a hole before one becomes a GAP."""
        with self._changed:
            for event in events:
                if event.sequence != self._last_sequence + 1:
                    self._events.clear()
                self._events.append(event)
                self._last_sequence = event.sequence
                self.published[event.kind] += 1
            self._changed.notify_all()

    def watch(self, namespace: str, after_sequence: int) -> LogWatch:
        """A watch as ``LatentStore.watch_evictions`` promises it.

        Raises:
            InvalidArgument: a negative number, or one that no event has had yet.
        """
        last = self._last_sequence
        if not 0 <= after_sequence <= last:
            raise InvalidArgument(
                f"after_sequence {after_sequence} is not the number of an event",
                field="after_sequence",
                allowed=f"0 to {last}, the number of the last event",
            )
        return LogWatch(self, namespace, after_sequence or last)

    def close(self) -> None:
        """Ends all watches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self, watch: LogWatch) -> EvictionEvent | None:
        """The next event of a watch, waiting for it; None when the watch or the log closed."""
        with self._changed:
            while not (self._closed or watch.closed):
                event = self._after(watch.position)
                if event is None:
                    self._changed.wait()
                    continue
                watch.position = event.sequence
                if event.kind is EvictionKind.GAP or watch.namespace in ("", event.namespace):
                    return event
            return None

    def _after(self, sequence: int) -> EvictionEvent | None:
        if sequence >= self._last_sequence:
            return None
        first = self._events[0].sequence
        if sequence < first - 1:
            return EvictionEvent(first - 1, EvictionKind.GAP)
        return self._events[sequence + 1 - first]

    def _wake(self, watch: LogWatch) -> None:
        with self._changed:
            watch.closed = True
            self._changed.notify_all()


class LogWatch:
    """One watcher's place in the log; an ``EvictionWatch``."""

    def __init__(self, log: EvictionLog, namespace: str, position: int) -> None:
        self.namespace = namespace
        self.position = position
        self.closed = False
        self._log = log

    def __iter__(self) -> LogWatch:
        return self

    def __next__(self) -> EvictionEvent:
        event = self._log._next(self)
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Ends the watch."""
        self._log._wake(self)
