"""The connection of asynchronous clients: opened with the first call, renewed with certificates."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc

from skipstone_client._channel_access import ChannelAccess
from skipstone_client._errors import closed
from skipstone_shared.errors import FailedPrecondition

StubT = TypeVar("StubT")


class AsyncConnection(Generic[StubT]):
    """A channel and its stub. Clients of one event loop that differ in their token share it."""

    def __init__(
        self, target: str, service: str, make_stub: Callable[[Any], Any], access: ChannelAccess
    ) -> None:
        """Creates it without connecting.

        Args:
            target: gRPC target.
            service: Name of what is behind it.
            make_stub: Class of the stub; it becomes an asynchronous one by the channel it gets.
            access: Gives the credentials of channels.
        """
        self._target = target
        self._service = service
        self._make_stub = make_stub
        self._access = access
        self.channel: grpc.aio.Channel | None = None
        self._opened_with: grpc.ChannelCredentials | None = None
        self._replaced: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()
        self._stub: StubT | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closed = False

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
        if self._access.channel_credentials() is not self._opened_with:
            return self._open()
        return self._stub

    async def close(self) -> None:
        """Ends running calls and closes the channel. Idempotent."""
        self.is_closed = True
        channels = [*self._replaced, *([self.channel] if self.channel is not None else [])]
        self.channel, self._stub = None, None
        for channel in channels:
            await channel.close()

    def _open(self) -> StubT:
        """Opens the channel, or the next one: certificates count only when a connection begins."""
        if self.channel is not None:
            self._replaced.add(self.channel)  # held by the calls under way alone
        credentials = self._access.channel_credentials()
        options = self._access.options()
        self.channel = (
            grpc.aio.insecure_channel(self._target, options)
            if credentials is None
            else grpc.aio.secure_channel(self._target, credentials, options)
        )
        self._opened_with = credentials
        stub: StubT = self._make_stub(self.channel)
        self._stub = stub
        return stub
