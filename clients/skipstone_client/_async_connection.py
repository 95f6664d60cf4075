"""The connection of asynchronous clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from skipstone_client._channel_access import ChannelAccess
from skipstone_client._connection import Connection
from skipstone_client._errors import closed
from skipstone_shared.errors import FailedPrecondition

StubT = TypeVar("StubT")


class AsyncConnection(Connection[StubT, grpc.aio.Channel]):
    """A channel and its stub. Clients of one event loop that differ in their token share it."""

    def __init__(
        self, target: str, service: str, make_stub: Callable[[Any], Any], access: ChannelAccess
    ) -> None:
        """Creates it without connecting; see `Connection`."""
        super().__init__(target, service, make_stub, access, grpc.aio)
        self._loop: asyncio.AbstractEventLoop | None = None

    def stub(self) -> StubT:
        """The stub, opened when needed.

        Raises:
            Unavailable: it is closed.
            FailedPrecondition: it belongs to another event loop.
        """
        if self.is_closed:
            raise closed(self._service)
        loop = asyncio.get_running_loop()
        if self._stub is None:
            self._loop = loop
            return self._open()
        if self._loop is not loop:
            raise FailedPrecondition(
                f"the client of {self._service} was used in another event loop; "
                "create one in this loop"
            )
        return self._current(self._stub)

    async def close(self) -> None:
        """Ends running calls and closes the channel. Idempotent."""
        for channel in self._taken():
            await channel.close()
