"""The connection of synchronous clients."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

import grpc

from skipstone_client._channel_access import ChannelAccess
from skipstone_client._connection import Connection
from skipstone_client._errors import closed
from skipstone_shared.errors import FailedPrecondition

StubT = TypeVar("StubT")


class SyncConnection(Connection[StubT, grpc.Channel]):
    """A channel and its stub. Clients that differ in their token share it; threads may too."""

    def __init__(
        self,
        target: str,
        service: str,
        make_stub: Callable[[grpc.Channel], StubT],
        access: ChannelAccess,
    ) -> None:
        """Creates it without connecting; see `Connection`."""
        super().__init__(target, service, make_stub, access, grpc)
        self._lock = threading.Lock()
        self._opened_by = 0

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
                self._opened_by = os.getpid()
                return self._open()
            if self._opened_by != os.getpid():
                raise FailedPrecondition(
                    f"the client of {self._service} was used before this process was forked; "
                    "create one in the child"
                )
            return self._current(self._stub)

    def close(self) -> None:
        """Ends running calls and closes the channel. Idempotent."""
        with self._lock:
            channels = self._taken()
        for channel in channels:
            if self._opened_by == os.getpid():
                channel.close()
