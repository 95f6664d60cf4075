"""What the connections of both kinds of clients share: channels and their renewal."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc

from skipstone_client._channel_access import ChannelAccess

StubT = TypeVar("StubT")
ChannelT = TypeVar("ChannelT")


class Connection(Generic[StubT, ChannelT]):
    """A channel and its stub, opened when needed and anew when certificates change."""

    def __init__(
        self,
        target: str,
        service: str,
        make_stub: Callable[[Any], Any],
        access: ChannelAccess,
        library: Any,
    ) -> None:
        """Creates it without connecting.

        Args:
            target: gRPC target.
            service: Name of what is behind it.
            make_stub: Class of the stub; it becomes an asynchronous one by the channel it gets.
            access: Gives the credentials of channels.
            library: Opens channels: ``grpc`` or ``grpc.aio``.
        """
        self._target = target
        self._service = service
        self._make_stub = make_stub
        self._access = access
        self._library = library
        self.channel: ChannelT | None = None
        self._opened_with: grpc.ChannelCredentials | None = None
        self._replaced: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stub: StubT | None = None
        self.is_closed = False

    def _current(self, stub: StubT) -> StubT:
        """The stub that is open, or the next one: certificates count only when one begins."""
        if self._access.channel_credentials() is not self._opened_with:
            return self._open()
        return stub

    def _open(self) -> StubT:
        if self.channel is not None:
            self._replaced.add(self.channel)  # held by the calls under way alone
        credentials = self._access.channel_credentials()
        options = self._access.options()
        self.channel = (
            self._library.insecure_channel(self._target, options)
            if credentials is None
            else self._library.secure_channel(self._target, credentials, options)
        )
        self._opened_with = credentials
        stub: StubT = self._make_stub(self.channel)
        self._stub = stub
        return stub

    def _taken(self) -> list[ChannelT]:
        """Closes it for new calls; all its channels, which are to be closed."""
        self.is_closed = True
        channels = [*self._replaced, *([self.channel] if self.channel is not None else [])]
        self.channel, self._stub = None, None
        return channels
