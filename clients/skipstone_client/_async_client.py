"""What all asynchronous clients share; the same promises as ``_sync_client``, on ``grpc.aio``."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import grpc

from skipstone_client._async_connection import AsyncConnection
from skipstone_client._channel import Service
from skipstone_client._channel_access import ChannelAccess
from skipstone_client._errors import Peer, closed, deadline_exceeded, decoded, on_the_way
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.request_context import call_timeout_s, outgoing_metadata

StubT = TypeVar("StubT")
ResponseT = TypeVar("ResponseT")
RequestT = TypeVar("RequestT")
ResponseCoT = TypeVar("ResponseCoT", covariant=True)
RequestContraT = TypeVar("RequestContraT", contravariant=True)


class AsyncUnaryMethod(Protocol[RequestContraT, ResponseCoT]):
    """An rpc with one answer; the request is a message or an iterator of messages."""

    def __call__(
        self,
        request: RequestContraT,
        /,
        *,
        timeout: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> Awaitable[ResponseCoT]:
        """Calls it."""
        ...


class AsyncStreamCall(Protocol[ResponseCoT]):
    """A running rpc with several answers."""

    def __aiter__(self) -> AsyncIterator[ResponseCoT]:
        """Its answers."""
        ...

    async def initial_metadata(self) -> Any:
        """Waits for what comes before the first answer."""
        ...

    def cancel(self) -> bool:
        """Ends it."""
        ...


class AsyncStreamMethod(Protocol[RequestContraT, ResponseCoT]):
    """An rpc with several answers."""

    def __call__(
        self,
        request: RequestContraT,
        /,
        *,
        timeout: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> AsyncStreamCall[ResponseCoT]:
        """Calls it."""
        ...


class AsyncClient(Generic[StubT]):
    """Base of the asynchronous clients. One client belongs to one event loop.

    The channel opens with the first call, so a client may be made outside of the loop. When the
    files of its certificates change, the next call opens a new channel, and calls under way end on
    the one before.
    """

    def __init__(
        self,
        target: str,
        service: Service,
        make_stub: Callable[[Any], Any],
        timeout_s: float,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target: ``host:port``, or ``dns:///name:port`` to spread calls over all
                addresses of a name.
            service: What is behind it.
            make_stub: Class of the stub; it becomes an asynchronous one by the channel it gets.
            timeout_s: Deadline of a call that gives none of its own, in seconds.
            credentials: Certificates and token; None: none, in plain text.

        Raises:
            InvalidArgument: A file of the credentials cannot be used.
        """
        self._target = target
        self._service = service
        self._timeout_s = timeout_s
        self._access = ChannelAccess(target, service, credentials)
        self._connection: AsyncConnection[StubT] = AsyncConnection(
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

    async def close(self) -> None:
        """Ends running calls and closes the connection. Idempotent."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

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

    async def _call(
        self,
        method: AsyncUnaryMethod[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None = None,
    ) -> ResponseT:
        """The answer of an rpc.

        Raises:
            SkipstoneError: what the service raised, or what happened on the way.
        """
        timeout = call_timeout_s(self._timeout_s if timeout_s is None else timeout_s)
        channel = self._connection.channel
        try:
            return await method(request, timeout=timeout, metadata=self._metadata())
        except grpc.RpcError as error:
            raise self._decoded(error, timeout) from error
        except asyncio.CancelledError:
            if self._was_closed_under():
                raise closed(self._service.name) from None
            raise
        finally:
            del channel  # held until here: one that is replaced and lost would end its calls

    def _stream(
        self,
        method: AsyncStreamMethod[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None,
        first_message_timeout_s: float | None = None,
    ) -> AsyncMessageStream[ResponseT]:
        """The answers of an rpc, as they come.

        Args:
            method: The rpc.
            request: Its request.
            timeout_s: Deadline of the whole stream; None for none.
            first_message_timeout_s: Deadline of the first message; None for none of its own.
        """
        timeout = call_timeout_s(timeout_s)
        call = method(request, timeout=timeout, metadata=self._metadata())
        return AsyncMessageStream(call, self, timeout, first_message_timeout_s)

    def _decoded(self, error: grpc.RpcError, timeout_s: float | None) -> SkipstoneError:
        """The exception behind an rpc error; a call that ``close`` ended says so."""
        if self.is_closed:
            return closed(self._service.name)
        return decoded(error, self._peer, timeout_s)

    def _was_closed_under(self) -> bool:
        """Whether a cancellation comes from ``close``: then nobody has cancelled the task."""
        task = asyncio.current_task()
        return self.is_closed and task is not None and not task.cancelling()


class AsyncMessageStream(AsyncIterator[ResponseT]):
    """Answers of one rpc. Closing it, also by losing it, ends the rpc."""

    def __init__(
        self,
        call: AsyncStreamCall[ResponseT],
        client: AsyncClient[Any],
        timeout_s: float | None,
        first_message_timeout_s: float | None,
    ) -> None:
        """Takes over a call.

        Args:
            call: What the stub returned.
            client: Who made the call.
            timeout_s: Deadline the call was made with.
            first_message_timeout_s: Deadline of the first message.
        """
        self._call = call
        self._messages = aiter(call)
        self._client = client
        # Held, since a channel that is replaced and lost ends its calls.
        self._channel = client._connection.channel
        self._timeout_s = timeout_s
        self._wait_s = first_message_timeout_s
        self._is_closed = False

    async def __anext__(self) -> ResponseT:
        try:
            async with asyncio.timeout(self._wait_s):
                message = await anext(self._messages)
        except TimeoutError as error:
            self._call.cancel()
            late = deadline_exceeded(self._wait_s or 0.0)
            raise on_the_way(late, self._client._peer) from error
        except grpc.RpcError as error:
            if self._is_closed:
                raise StopAsyncIteration from None
            raise self._client._decoded(error, self._timeout_s) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise StopAsyncIteration from None
            if self._client._was_closed_under():
                raise closed(self._client._service.name) from None
            self._call.cancel()
            raise
        self._wait_s = None
        return message

    async def initial_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Waits for what the server sends before its first message; empty when the rpc failed."""
        return tuple((key, value) for key, value in await self._call.initial_metadata())

    def close(self) -> None:
        """Ends the rpc; iterating ends then. Idempotent."""
        self._is_closed = True
        self._call.cancel()

    def __del__(self) -> None:
        # A generator that was never started runs no `finally`; gRPC keeps a running call alive.
        self.close()
