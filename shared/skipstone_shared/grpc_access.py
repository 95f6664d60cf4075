"""Lets callers in, or not: one interceptor for synchronous servers and one for `grpc.aio`.

They come behind the interceptors of `grpc_interceptors.py`, so that what they refuse goes through
the one error table, the log and the counts like any other error.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

import grpc
import structlog

from skipstone_shared.access import AccessList, Caller, bind_caller
from skipstone_shared.access_rules import HEALTH_PREFIX, Rule, rule_of
from skipstone_shared.config import ServiceSettings
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.grpc_errors import to_grpc_status
from skipstone_shared.grpc_interceptors import Handler, rewrap

_ADMIN_PREFIX = "/grpc."
_NOBODY = "unknown"


class AccessInterceptor(grpc.ServerInterceptor):
    """The interceptor of synchronous servers."""

    def __init__(self, access: AccessList) -> None:
        """Creates the interceptor.

        Args:
            access: Who may do what.
        """
        self._access = access

    def intercept_service(
        self, continuation: Callable[[Any], Handler], handler_call_details: Any
    ) -> Handler:
        """Wraps the handler of one rpc."""
        handler = continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(HEALTH_PREFIX):
            return handler
        streams = bool(handler.request_streaming)
        wrapped = rewrap(handler, lambda behavior: self._wrap(method, behavior, streams))
        return rewrap(wrapped, _aborting) if method.startswith(_ADMIN_PREFIX) else wrapped

    def _wrap(self, method: str, behavior: Callable[..., Any], streams: bool) -> Callable[..., Any]:
        def call(request: Any, context: Any) -> Any:
            rule, caller = _enter(self._access, method, context)
            if streams:
                request = _checked(request, rule, caller)
            else:
                rule.check(caller, request)
            return behavior(request, context)

        return call


class AsyncAccessInterceptor(grpc.aio.ServerInterceptor):
    """The interceptor of `grpc.aio` servers."""

    def __init__(self, access: AccessList) -> None:
        """Creates the interceptor.

        Args:
            access: Who may do what.
        """
        self._access = access

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        """Wraps the handler of one rpc."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(HEALTH_PREFIX):
            return handler
        streams = bool(handler.request_streaming)
        return rewrap(handler, lambda behavior: self._wrap(method, behavior, streams))

    def _wrap(self, method: str, behavior: Callable[..., Any], streams: bool) -> Callable[..., Any]:
        async def entered(request: Any, context: Any) -> Any:
            try:
                rule, caller = _enter(self._access, method, context)
                if streams:
                    return _checked_async(request, rule, caller)
                rule.check(caller, request)
            except SkipstoneError as error:
                if not method.startswith(_ADMIN_PREFIX):
                    raise
                status = to_grpc_status(error)
                await context.abort(status.code, status.details, status.trailing_metadata)
            return request

        async def call(request: Any, context: Any) -> Any:
            return await behavior(await entered(request, context), context)

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            async with aclosing(behavior(await entered(request, context), context)) as responses:
                async for response in responses:
                    yield response

        return stream if inspect.isasyncgenfunction(behavior) else call


def access_interceptors(settings: ServiceSettings) -> list[AccessInterceptor]:
    """The interceptor of a synchronous server that asks for tokens; none where it does not.

    Raises:
        InvalidArgument: `access_file` cannot be used.
    """
    path = settings.access_file
    return [] if path is None else [AccessInterceptor(AccessList(path))]


def async_access_interceptors(settings: ServiceSettings) -> list[AsyncAccessInterceptor]:
    """The same for a `grpc.aio` server."""
    path = settings.access_file
    return [] if path is None else [AsyncAccessInterceptor(AccessList(path))]


def _enter(access: AccessList, method: str, context: Any) -> tuple[Rule, Caller]:
    """Finds out who calls, and binds them for the log and the handler.

    Raises:
        Unauthenticated: Nobody has the token, or there is none.
        PermissionDenied: The rpc has no rule, or the caller lacks its right.
    """
    # Threads serve one rpc after the other: the caller of the last one must not stay.
    structlog.contextvars.bind_contextvars(caller=_NOBODY)
    bind_caller(None)
    caller = access.caller(context.invocation_metadata())
    structlog.contextvars.bind_contextvars(caller=caller.name)
    bind_caller(caller)
    return rule_of(method), caller


def _checked(requests: Iterator[Any], rule: Rule, caller: Caller) -> Iterator[Any]:
    """The same requests; when the first comes, what it touches is checked."""
    for number, request in enumerate(requests):
        if number == 0:
            rule.check(caller, request)
        yield request


async def _checked_async(
    requests: AsyncIterator[Any], rule: Rule, caller: Caller
) -> AsyncIterator[Any]:
    number = 0
    async for request in requests:
        if number == 0:
            rule.check(caller, request)
        number += 1
        yield request


def _aborting(behavior: Callable[..., Any]) -> Callable[..., Any]:
    """The same behaviour of an admin service, whose errors no other interceptor translates."""

    def call(request: Any, context: Any) -> Any:
        try:
            return behavior(request, context)
        except SkipstoneError as error:
            context.abort_with_status(to_grpc_status(error))

    return call
