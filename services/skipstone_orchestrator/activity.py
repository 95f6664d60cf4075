"""Whether this replica has requests to serve: what can wait does so meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Activity:
    """Counts the requests under way. For one event loop."""

    def __init__(self) -> None:
        """Starts without any."""
        self._running = 0
        self._busy = asyncio.Event()

    @property
    def running(self) -> int:
        """Requests under way."""
        return self._running

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._running > 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is under way inside the block."""
        self._running += 1
        self._busy.set()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._busy.clear()

    async def until_busy(self) -> None:
        """Waits until a request is under way."""
        await self._busy.wait()
