"""The connection of synchronous clients: opened with the first call, renewed with certificates."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

from skipstone_client._channel_access import ChannelAccess
from skipstone_client._errors import closed
from skipstone_shared.errors import FailedPrecondition

StubT = TypeVar("StubT")


class SyncConnection(Generic[StubT]):
    """A channel and its stub. Clients that differ in their token share it; threads may too."""

    def __init__(
        self,
        target: str,
        service: str,
        make_stub: Callable[[grpc.Channel], StubT],
        access: ChannelAccess,
    ) -> None:
        """Creates it without connecting.

        Args:
            target: gRPC target.
            service: Name of what is behind it.
            make_stub: Class of the stub.
            access: Gives the credentials of channels.
        """
        self._target = target
        self._service = service
        self._make_stub = make_stub
        self._access = access
        self._lock = threading.Lock()
        self.channel: grpc.Channel | None = None
        self._opened_with: grpc.ChannelCredentials | None = None
        self._replaced: weakref.WeakSet[grpc.Channel] = weakref.WeakSet()
        self._stub: StubT | None = None
        self._opened_by = 0
        self.is_closed = False

    def stub(self) -> StubT:
        """The stub, opened when needed.

        Raises:
            Unavailable: it is closed.
            FailedPrecondition: it was used before this process was forked.
        """
        with self._lock:
            if self.is_closed:
                raise closed(self._service)
            if self._stub is None:
                return self._open()
            if self._opened_by != os.getpid():
                raise FailedPrecondition(
                    f"the client of {self._service} was used before this process was forked; "
                    "create one in the child"
                )
            if self._access.channel_credentials() is not self._opened_with:
                return self._open()
            return self._stub

    def close(self) -> None:
        """Ends running calls and closes the channel. Idempotent."""
        with self._lock:
            self.is_closed = True
            channels = [*self._replaced, *([self.channel] if self.channel is not None else [])]
            self.channel, self._stub = None, None
        for channel in channels:
            if self._opened_by == os.getpid():
                channel.close()

    def _open(self) -> StubT:
        """Opens the channel, or the next one: certificates count only when a connection begins."""
        if self.channel is not None:
            self._replaced.add(self.channel)  # held by the calls under way alone
        credentials = self._access.channel_credentials()
        options = self._access.options()
        self.channel = (
            grpc.insecure_channel(self._target, options)
            if credentials is None
            else grpc.secure_channel(self._target, credentials, options)
        )
        self._opened_with = credentials
        self._stub = self._make_stub(self.channel)
        self._opened_by = os.getpid()
        return self._stub
