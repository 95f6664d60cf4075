"""What all synchronous clients share: one channel, deadlines, errors, streams of answers."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import grpc

from skipstone_client._channel import Service
from skipstone_client._channel_access import ChannelAccess
from skipstone_client._errors import Peer, closed, deadline_exceeded, decoded, on_the_way
from skipstone_client._sync_connection import SyncConnection
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.request_context import call_timeout_s, outgoing_metadata

StubT = TypeVar("StubT")
ResponseT = TypeVar("ResponseT")
RequestT = TypeVar("RequestT")
ResponseCoT = TypeVar("ResponseCoT", covariant=True)
RequestContraT = TypeVar("RequestContraT", contravariant=True)


class UnaryMethod(Protocol[RequestContraT, ResponseCoT]):
    """An rpc with one answer; the request is a message or an iterator of messages."""

    def __call__(
        self,
        request: RequestContraT,
        /,
        *,
        timeout: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> ResponseCoT:
        """Calls it."""
        ...


class StreamCall(Protocol[ResponseCoT]):
    """A running rpc with several answers."""

    def __next__(self) -> ResponseCoT:
        """Waits for the next answer."""
        ...

    def initial_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        """Waits for what comes before the first answer."""
        ...

    def cancel(self) -> bool:
        """Ends it."""
        ...


class StreamMethod(Protocol[RequestContraT, ResponseCoT]):
    """An rpc with several answers."""

    def __call__(
        self,
        request: RequestContraT,
        /,
        *,
        timeout: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> StreamCall[ResponseCoT]:
        """Calls it."""
        ...


class SyncClient(Generic[StubT]):
    """Base of the synchronous clients. Any method may be called from any thread.

    The channel opens with the first call, so a client may be made before a fork and used after it.
    A client that was used cannot be used in a forked child: gRPC's threads are not in the child.
    When the files of its certificates change, the next call opens a new channel, and calls under
    way end on the one before.
    """

    def __init__(
        self,
        target: str,
        service: Service,
        make_stub: Callable[[grpc.Channel], StubT],
        timeout_s: float,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target: ``host:port``, or ``dns:///name:port`` to spread calls over all
                addresses of a name.
            service: What is behind it.
            make_stub: Class of the stub.
            timeout_s: Deadline of a call that gives none of its own, in seconds.
            credentials: Certificates and token; None: none, in plain text.

        Raises:
            InvalidArgument: A file of the credentials cannot be used.
        """
        self._target = target
        self._service = service
        self._timeout_s = timeout_s
        self._access = ChannelAccess(target, service, credentials)
        self._connection: SyncConnection[StubT] = SyncConnection(
            target, service.name, make_stub, self._access
        )

    @property
    def target(self) -> str:
        """The gRPC target."""
        return self._target

    def with_token(self, token: str) -> Self:
        """This client for another caller: its calls carry that token, over the same connection.

        Closing either closes the connection of both.
        """
        twin = copy.copy(self)
        twin._access = self._access.with_token(token)
        return twin

    def close(self) -> None:
        """Ends running calls and closes the connection. Idempotent."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _stub(self) -> StubT:
        return self._connection.stub()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return outgoing_metadata(self._access.metadata())

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._connection.is_closed

    @property
    def _peer(self) -> Peer:
        return Peer(self._service.name, self._target)

    def _call(
        self,
        method: UnaryMethod[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None = None,
    ) -> ResponseT:
        """The answer of an rpc.

        Raises:
            SkipstoneError: what the service raised, or what happened on the way.
        """
        timeout = call_timeout_s(self._timeout_s if timeout_s is None else timeout_s)
        try:
            return method(request, timeout=timeout, metadata=self._metadata())
        except grpc.RpcError as error:
            raise self._decoded(error, timeout) from error
        except ValueError as error:
            # gRPC's way to say that another thread has closed the channel meanwhile.
            if self.is_closed:
                raise closed(self._service.name) from error
            raise

    def _stream(
        self,
        method: StreamMethod[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None,
        first_message_timeout_s: float | None = None,
    ) -> MessageStream[ResponseT]:
        """The answers of an rpc, as they come.

        Args:
            method: The rpc.
            request: Its request.
            timeout_s: Deadline of the whole stream; None for none.
            first_message_timeout_s: Deadline of the first message; None for none of its own.
        """
        timeout = call_timeout_s(timeout_s)
        try:
            call = method(request, timeout=timeout, metadata=self._metadata())
        except ValueError as error:
            if self.is_closed:
                raise closed(self._service.name) from error
            raise
        return MessageStream(call, self, method, timeout, first_message_timeout_s)

    def _decoded(self, error: grpc.RpcError, timeout_s: float | None) -> SkipstoneError:
        """The exception behind an rpc error; a call that ``close`` ended says so."""
        if self.is_closed:
            return closed(self._service.name)
        return decoded(error, self._peer, timeout_s)


class MessageStream(Iterator[ResponseT]):
    """Answers of one rpc. Closing it, also by losing it, ends the rpc; from any thread."""

    def __init__(
        self,
        call: StreamCall[ResponseT],
        client: SyncClient[Any],
        method: object,
        timeout_s: float | None,
        first_message_timeout_s: float | None,
    ) -> None:
        """Takes over a call.

        Args:
            call: What the stub returned.
            client: Who made the call.
            method: What the call was made with.
            timeout_s: Deadline the call was made with.
            first_message_timeout_s: Deadline of the first message.
        """
        self._call = call
        self._client = client
        # Held, since a channel that is replaced and lost ends its calls. Another thread may have
        # replaced it since the method was taken, which holds enough of its own.
        self._held = (client._connection.channel, method)
        self._timeout_s = timeout_s
        self._first_message_timeout_s = first_message_timeout_s
        self._is_closed = False
        self._is_late = False
        self._watchdog: threading.Timer | None = None
        limit = first_message_timeout_s
        if limit is not None and (timeout_s is None or limit < timeout_s):
            self._watchdog = threading.Timer(limit, self._give_up)
            self._watchdog.daemon = True
            self._watchdog.start()

    def __next__(self) -> ResponseT:
        try:
            message = next(self._call)
        except grpc.RpcError as error:
            if self._is_closed:
                raise StopIteration from None
            if self._is_late and self._first_message_timeout_s is not None:
                late = deadline_exceeded(self._first_message_timeout_s)
                raise on_the_way(late, self._client._peer) from error
            raise self._client._decoded(error, self._timeout_s) from error
        finally:
            self._stop_watchdog()
        return message

    def initial_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Waits for what the server sends before its first message; empty when the rpc failed."""
        return tuple((key, value) for key, value in self._call.initial_metadata())

    def close(self) -> None:
        """Ends the rpc; iterating ends then, in whatever thread. Idempotent."""
        self._is_closed = True
        self._stop_watchdog()
        self._call.cancel()

    def __del__(self) -> None:
        self.close()

    def _give_up(self) -> None:
        self._is_late = True
        self._call.cancel()

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
