"""What all running streams may hold together, and the end of those whose peer does not keep up."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from prometheus_client import Counter as EventCounter
from prometheus_client import Gauge
from prometheus_client.registry import Collector

from skipstone_latent_kv.heap import give_back_freed
from skipstone_shared.errors import Cancelled, ResourceExhausted
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")

_Place = tuple[int, int]
"""A place in a line: number of the last arrival that goes first, number of its own arrival."""

_MIN_BYTES_PER_S = 256 << 10
"""What a peer must move on average. A gigabit moves 400 times as much."""

_PATIENCE_WHEN_FULL_S = 1.0
"""How far behind a stream must be to give way to one that waits for room."""

_LOOK_AGAIN_S = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds on running streams.

    Attributes:
        max_streams: Streams at a time.
        max_bytes: Bytes of snapshots that they hold together.
        stall_timeout_s: How many seconds a peer may fall behind before its stream is ended.
        wait_s: How many seconds a stream waits for room before it is refused.
    """

    max_streams: int = 256
    max_bytes: int = 1 << 30
    stall_timeout_s: float = 10.0
    wait_s: float = 5.0


class StreamBudget:
    """Admits streams, counts the bytes they hold, and ends those whose peer does not keep up.

    Time that a stream waits for its peer puts it behind; every byte that moves makes up for
    ``1 / _MIN_BYTES_PER_S`` seconds of it. So a peer that stops and one that trickles are both
    found, while work of the store (a commit, an fsync) never counts against the peer. A stream that
    is behind by ``stall_timeout_s`` is ended by ``sweep``; one that is behind by a second is ended
    when another needs its room, the furthest behind first. Who waits for room is served in turns:
    one stream of every peer before the second of any, so that nobody waits behind a crowd that one
    peer sent; in each turn in order of arrival. A turn takes ``max_streams`` arrivals at most, so
    that newcomers do not go first for ever. Every method may be called from any thread.
    """

    def __init__(
        self,
        limits: StreamLimits = StreamLimits(),
        clock: Callable[[], float] = time.monotonic,
        free_memory: Callable[[], None] = give_back_freed,
    ) -> None:
        """Creates a budget that nothing uses yet.

        Args:
            limits: The bounds.
            clock: Seconds, from anywhere.
            free_memory: Called by ``sweep`` when streams were ended, who may have held much.
        """
        self._free_memory = free_memory
        self._ended_lately = 0
        self._limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._streams: set[Stream] = set()
        self._held_bytes = 0
        # Two lines: one who waits for bytes is a stream already, and must not stand behind one that
        # waits for a stream to be over.
        self._line_for_streams: list[_Place] = []
        self._line_for_bytes: list[_Place] = []
        self._arrivals = itertools.count()
        self._calls_of: Counter[str] = Counter()
        self._running_gauge = Gauge(
            "skipstone_latent_kv_streams", "Running writes and reads.", registry=None
        )
        self._running_gauge.set_function(lambda: self.running)
        self._held_gauge = Gauge(
            "skipstone_latent_kv_stream_bytes",
            "Bytes of snapshots that running writes and reads hold.",
            registry=None,
        )
        self._held_gauge.set_function(lambda: self.held_bytes)
        self._ended = EventCounter(
            "skipstone_latent_kv_stalled_streams_total",
            "Writes and reads that were ended since their caller did not keep up.",
            registry=None,
        )

    @property
    def limits(self) -> StreamLimits:
        """The bounds."""
        return self._limits

    @property
    def running(self) -> int:
        """Streams that are admitted."""
        return len(self._streams)

    @property
    def held_bytes(self) -> int:
        """Bytes of snapshots that they hold."""
        return self._held_bytes

    @property
    def waiting(self) -> int:
        """Calls that wait for room."""
        return len(self._line_for_streams) + len(self._line_for_bytes)

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metrics, to be registered by the server."""
        return self._running_gauge, self._held_gauge, self._ended

    @contextmanager
    def admit(
        self,
        end: Callable[[], object],
        peer: str = "",
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Iterator[Stream]:
        """Counts a stream while the block runs.

        Args:
            end: Ends the stream from another thread, so that the block is left soon.
            peer: Whose it is; see the class.
            is_wanted: Whether its caller is still there; asked while it waits.

        Raises:
            ResourceExhausted: there was no room for one more.
            Cancelled: its caller went away while it waited.
        """
        with self._changed:
            arrival = next(self._arrivals)
            place = arrival + self._calls_of[peer] * self._limits.max_streams, arrival
            self._calls_of[peer] += 1
        stream = Stream(self, end, place, is_wanted)
        try:
            with self._changed:
                with self._room(
                    self._line_for_streams,
                    stream,
                    lambda: len(self._streams) < self._limits.max_streams,
                ):
                    self._streams.add(stream)
            yield stream
        finally:
            with self._changed:
                self._calls_of[peer] -= 1
                if not self._calls_of[peer]:
                    del self._calls_of[peer]
                self._streams.discard(stream)
                self._held_bytes -= stream.held_bytes
                self._changed.notify_all()

    def sweep(self) -> int:
        """Ends the streams that are too far behind; returns how many. To be called every second."""
        with self._changed:
            late = [s for s in self._running() if s.behind_s() >= self._limits.stall_timeout_s]
            for stream in late:
                self._give_up(stream)
            # What those of this sweep hold is free by the next one.
            ended_before, self._ended_lately = self._ended_lately - len(late), len(late)
        if ended_before:
            self._free_memory()
        return len(late)

    def _hold(self, stream: Stream, size_bytes: int) -> None:
        # What is larger than the whole budget is refused elsewhere, by the name of its own bound.
        size_bytes = min(size_bytes, self._limits.max_bytes)
        with self._changed:
            with self._room(
                self._line_for_bytes,
                stream,
                lambda: self._held_bytes + size_bytes <= self._limits.max_bytes,
            ):
                stream.held_bytes += size_bytes
                self._held_bytes += size_bytes

    @contextmanager
    def _room(
        self, line: list[_Place], stream: Stream, is_free: Callable[[], bool]
    ) -> Iterator[None]:
        """Waits until there is room, at the cost of the stream that is furthest behind."""
        deadline = self._clock() + self._limits.wait_s
        place = stream.place
        bisect.insort(line, place)
        try:
            while line[0] != place or not is_free():
                if not stream.is_wanted():
                    raise Cancelled("caller went away while its stream waited for room")
                if self._clock() >= deadline:
                    raise ResourceExhausted(
                        f"{len(self._streams)} streams hold {self._held_bytes} bytes, the bounds "
                        f"are {self._limits.max_streams} and {self._limits.max_bytes}; try again "
                        "later, or raise max_streams or stream_bytes"
                    )
                if line[0] == place:
                    self._end_slowest()
                self._changed.wait(_LOOK_AGAIN_S)
            yield
        finally:
            line.remove(place)
            self._changed.notify_all()

    def _end_slowest(self) -> None:
        slowest = max(self._running(), key=Stream.behind_s, default=None)
        if slowest is not None and slowest.behind_s() >= _PATIENCE_WHEN_FULL_S:
            self._give_up(slowest)

    def _give_up(self, stream: Stream) -> None:
        get_logger().warning(
            "stalled stream ended",
            behind_s=round(stream.behind_s(), 3),
            held_bytes=stream.held_bytes,
        )
        self._ended.inc()
        self._ended_lately += 1
        stream.is_ended = True
        stream._end()

    def _running(self) -> Iterator[Stream]:
        return (stream for stream in self._streams if not stream.is_ended)


class Stream:
    """One admitted stream; made by ``StreamBudget.admit``."""

    def __init__(
        self,
        budget: StreamBudget,
        end: Callable[[], object],
        place: _Place,
        is_wanted: Callable[[], bool],
    ) -> None:
        self.held_bytes = 0
        self.is_wanted = is_wanted
        self.place = place
        self.is_ended = False
        self._budget = budget
        self._end = end
        # Seconds behind when the present wait began, and when that was; one attribute, so that
        # other threads never see half of a change.
        self._lag: tuple[float, float | None] = 0.0, None

    def hold(self, size_bytes: int) -> None:
        """Takes bytes from the budget until the stream is over; waits for them.

        Raises:
            ResourceExhausted: others held too much for too long.
        """
        self._budget._hold(self, size_bytes)

    def incoming(self, messages: Iterator[T], size_of: Callable[[T], int]) -> Iterator[T]:
        """The messages of the peer; waiting for the next one puts the stream behind."""
        while True:
            self._begin_wait()
            try:
                message = next(messages)
            except StopIteration:
                return
            finally:
                self._end_wait()
            self._moved(size_of(message))
            yield message

    def outgoing(self, messages: Iterable[T], size_of: Callable[[T], int]) -> Iterator[T]:
        """Messages to the peer, of whom the next is asked for when one is on its way."""
        for message in messages:
            self._begin_wait()
            yield message
            self._end_wait()
            self._moved(size_of(message))

    def behind_s(self) -> float:
        """Seconds that the peer is behind."""
        behind_s, since = self._lag
        return behind_s + (0.0 if since is None else self._budget._clock() - since)

    def _begin_wait(self) -> None:
        self._lag = self.behind_s(), self._budget._clock()

    def _end_wait(self) -> None:
        self._lag = self.behind_s(), None

    def _moved(self, size_bytes: int) -> None:
        self._lag = max(0.0, self.behind_s() - size_bytes / _MIN_BYTES_PER_S), None
