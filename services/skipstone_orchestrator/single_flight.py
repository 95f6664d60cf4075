"""Equal work at the same time is done once, and everyone who asked for it gets all of it.

The work belongs to nobody: it goes on while anyone waits for it, whoever asked first, and ends when
the last one has left. Who comes late is told everything from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import aclosing
from typing import Generic, TypeVar

E = TypeVar("E")
R = TypeVar("R")

Emit = Callable[[E], Awaitable[None]]
"""Tells one event; returns when somebody wants the next, so that work never runs ahead."""

_MAX_FAILURES = 2
"""Failed works that one place sees before it gives up: its own, or two that it had joined."""


class SingleFlight(Generic[E, R]):
    """The works under way, by key. For one event loop."""

    def __init__(self) -> None:
        """Starts without any."""
        self._flights: dict[Hashable, Flight[E, R]] = {}

    def board(
        self, key: Hashable | None, name: str, work: Callable[[Emit[E]], Awaitable[R]]
    ) -> Place[E, R]:
        """A place at the work under way under a key, or at new work.

        Args:
            key: Equal for equal work; None: never shared.
            name: Of the place, for others at the same work.
            work: Does it: tells events and returns the result. Runs in a task of its own, which
                is cancelled when nobody waits any more.
        """
        return Place(self, key, name, work)

    def find_or_start(
        self, key: Hashable | None, work: Callable[[Emit[E]], Awaitable[R]]
    ) -> Flight[E, R]:
        """The work under way under a key, else new work; for `Place`."""
        if key is None:
            return Flight(work)
        running = self._flights.get(key)
        if running is None:
            running = self._flights[key] = Flight(work, lambda ended: self._forget(key, ended))
        return running

    def _forget(self, key: Hashable, ended: Flight[E, R]) -> None:
        if self._flights.get(key) is ended:
            del self._flights[key]


class Place(Generic[E, R]):
    """One who waits for a work. Iterate `events` to the end, then ask for `result`."""

    def __init__(
        self,
        flights: SingleFlight[E, R],
        key: Hashable | None,
        name: str,
        work: Callable[[Emit[E]], Awaitable[R]],
    ) -> None:
        """Takes the place; made by `SingleFlight.board`."""
        self.name = name
        self._flights = flights
        self._key = key
        self._work = work
        self._flight: Flight[E, R] | None = None

    async def events(self) -> AsyncGenerator[E, None]:
        """Everything the work tells, from its start; closing the generator leaves the place.

        When a work fails, it fails for the one who has waited longest; the others go on with a new
        one, begin with its first event, and share it again.

        Raises:
            Exception: What the work raised.
        """
        for failures in range(1, _MAX_FAILURES + 1):
            flight = self._flight = self._flights.find_or_start(self._key, self._work)
            flight.enter(self)
            try:
                async with aclosing(flight.watch()) as events:
                    async for event in events:
                        yield event
                flight.finish(self)
                return
            except Exception:
                if flight.longest_waiting is self or failures == _MAX_FAILURES:
                    raise
            finally:
                await flight.leave(self)

    @property
    def is_owner(self) -> bool:
        """Whether the work counts as this one's: it was the first to be told all of it.

        Whoever leaves before that gets no result, so that a work that anybody got counts once.
        """
        return self._flight is not None and self._flight.owner is self

    @property
    def owner_name(self) -> str:
        """Name of the place that the work counts for; after `events` has ended."""
        owner = self._flight.owner if self._flight is not None else None
        assert owner is not None, "nothing was awaited"
        return owner.name

    @property
    def result(self) -> R:
        """What the work returned; after `events` has ended."""
        assert self._flight is not None, "nothing was awaited"
        return self._flight.result


class Flight(Generic[E, R]):
    """One work and who waits for it; `owner` is the first who was told all of it."""

    def __init__(
        self,
        work: Callable[[Emit[E]], Awaitable[R]],
        on_end: Callable[[Flight[E, R]], None] | None = None,
    ) -> None:
        """Starts the work.

        Args:
            work: The work.
            on_end: Told when nobody can join any more: it has ended or is given up. Maybe twice.
        """
        self._on_end = on_end
        self._told: list[E] = []
        self._results: list[R] = []
        self._error: BaseException | None = None
        self._ended = False
        self._waiting: list[Place[E, R]] = []
        self._first_at_end: Place[E, R] | None = None
        self.owner: Place[E, R] | None = None
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._task = asyncio.create_task(self._run(work))

    @property
    def longest_waiting(self) -> Place[E, R] | None:
        """The first of those who wait, or who waited when the work ended."""
        return self._first_at_end if self._ended else next(iter(self._waiting), None)

    @property
    def result(self) -> R:
        """What the work returned."""
        return self._results[0]

    def enter(self, place: Place[E, R]) -> None:
        """Begins to wait."""
        self._waiting.append(place)

    def finish(self, place: Place[E, R]) -> None:
        """Notes that a place was told everything; the first one is the owner."""
        if self.owner is None:
            self.owner = place

    async def leave(self, place: Place[E, R]) -> None:
        """Ends waiting; the last one to leave cancels the work and waits for its end."""
        self._waiting.remove(place)
        if self._waiting or self._ended:
            return
        self._close()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def watch(self) -> AsyncGenerator[E, None]:
        """Everything told so far, then what comes.

        Raises:
            BaseException: What the work raised.
        """
        position = 0
        while True:
            while position < len(self._told):
                position += 1
                yield self._told[position - 1]
            if self._ended:
                break
            news = self._news
            self._wanted.set()
            await news.wait()
        if self._error is not None:
            raise self._error

    async def _run(self, work: Callable[[Emit[E]], Awaitable[R]]) -> None:
        try:
            self._results.append(await work(self._emit))
        except BaseException as error:  # noqa: BLE001 - raised again by those who wait
            self._error = error
        self._first_at_end = next(iter(self._waiting), None)
        self._ended = True
        self._close()
        self._news.set()

    async def _emit(self, event: E) -> None:
        self._told.append(event)
        self._wanted.clear()
        news, self._news = self._news, asyncio.Event()
        news.set()
        await self._wanted.wait()

    def _close(self) -> None:
        if self._on_end is not None:
            self._on_end(self)
