"""What happens around every rpc: request id, deadline, trace, errors, log, metrics.

One interceptor for synchronous servers and one for `grpc.aio`; both use `RpcRecord`. Admin services
(health, reflection, channelz) pass through unlogged.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, NoReturn

import grpc
import structlog

from skipstone_shared import errors
from skipstone_shared.grpc_errors import status_code, to_grpc_status
from skipstone_shared.grpc_metrics import RpcMetrics
from skipstone_shared.grpc_server_facts import TOLD_WITH, Metadata, telling, telling_async
from skipstone_shared.request_context import bind_request, read_request_id
from skipstone_shared.structured_logging import get_logger
from skipstone_shared.tracing import Tracer, bind_rpc

_ADMIN_PREFIX = "/grpc."
_HEALTH_PREFIX = "/grpc.health."
_SERVER_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNKNOWN)
_SPAN_FAULTS = (
    *_SERVER_FAULTS,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""Codes that OpenTelemetry's conventions count as errors of a server; a miss is none."""

Handler = Any  # grpc.RpcMethodHandler: its attributes are not in the type stubs.


class RpcRecord:
    """One rpc from its first to its last moment: becomes one log line and one count."""

    def __init__(
        self, method: str, context: Any, metrics: RpcMetrics | None, tracer: Tracer | None
    ) -> None:
        metadata = context.invocation_metadata()
        request_id = read_request_id(metadata)
        bind_request(request_id, _timeout_s(context))
        self._span = bind_rpc(tracer, method, metadata, request_id)
        structlog.contextvars.bind_contextvars(rpc=method)
        self._method = method
        self._metrics = metrics
        self._started = time.perf_counter()
        # Said explicitly: a stream may be closed in another context than the one bound above.
        self._request_id = request_id
        self._log = get_logger(rpc=method, request_id=self._request_id)

    def finish(self, code: grpc.StatusCode, message: str | None = None) -> None:
        """Writes the line and counts the rpc."""
        seconds = time.perf_counter() - self._started
        fields: dict[str, Any] = {"code": code.name, "duration_ms": round(seconds * 1000, 3)}
        if message:
            fields["error"] = message
        log = self._log.error if code in _SERVER_FAULTS else self._log.info
        log("rpc", **fields)
        trace_id = "" if self._span is None else self._span.trace_id
        if self._metrics:
            self._metrics.record(self._method, code.name, seconds, trace_id)
        if self._span is not None:
            self._span.set("rpc.grpc.status_code", code.value[0])
            self._span.end(code.name if code in _SPAN_FAULTS else "")

    def translate(self, error: Exception) -> errors.SkipstoneError:
        """Finishes with the error and returns the one for the caller.

        Unknown exceptions may hold secrets or paths: their text stays in the log.
        """
        if isinstance(error, errors.SkipstoneError):
            self.finish(status_code(error), error.message)
            return error
        self._log.error("unhandled exception", exc_info=error)
        self.finish(grpc.StatusCode.INTERNAL, type(error).__name__)
        return errors.Internal(f"internal error, the server's log has it as {self._request_id}")


class RpcInterceptor(grpc.ServerInterceptor):
    """The interceptor of synchronous servers."""

    def __init__(
        self,
        metrics: RpcMetrics | None,
        health_pool: ThreadPoolExecutor,
        pools: Mapping[str, ThreadPoolExecutor] = MappingProxyType({}),
        tracer: Tracer | None = None,
        facts: Callable[[], Metadata] = tuple,
    ) -> None:
        """Creates the interceptor.

        Args:
            metrics: Where rpcs are counted.
            health_pool: Answers health checks, so that they do not wait behind busy workers.
            pools: Threads of rpcs that have their own, by full method name.
            tracer: Starts their spans.
            facts: Gives what the server tells of itself.
        """
        self._metrics = metrics
        self._tracer = tracer
        self._facts = facts
        self._health_pool = health_pool
        self._pools = pools

    def intercept_service(
        self, continuation: Callable[[Any], Handler], handler_call_details: Any
    ) -> Handler:
        """Wraps the handler of one rpc."""
        handler = continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None:
            return None
        if method.startswith(_HEALTH_PREFIX):
            return rewrap(handler, lambda behavior: _on_pool(behavior, self._health_pool))
        if method.startswith(_ADMIN_PREFIX):
            return handler
        if method.endswith(TOLD_WITH):
            handler = rewrap(handler, functools.partial(telling, self._facts))
        wrap = self._wrap_stream if handler.response_streaming else self._wrap_unary
        pool = self._pools.get(method)
        if pool is None:
            return rewrap(handler, lambda behavior: wrap(method, behavior))
        return rewrap(handler, lambda behavior: _on_pool(wrap(method, behavior), pool))

    def _wrap_unary(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: Any, context: Any) -> Any:
            rpc = RpcRecord(method, context, self._metrics, self._tracer)
            try:
                _refuse_abandoned(context)
                response = behavior(request, context)
            except Exception as error:  # noqa: BLE001 - the last handler before gRPC's own
                _abort(rpc, error, context)
            rpc.finish(context.code() or grpc.StatusCode.OK)
            return response

        return call

    def _wrap_stream(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        def stream(request: Any, context: Any) -> Iterator[Any]:
            rpc = RpcRecord(method, context, self._metrics, self._tracer)
            try:
                _refuse_abandoned(context)
                yield from behavior(request, context)
            except GeneratorExit:
                rpc.finish(grpc.StatusCode.CANCELLED, "caller went away")
                raise
            except Exception as error:  # noqa: BLE001
                _abort(rpc, error, context)
            rpc.finish(context.code() or grpc.StatusCode.OK)

        return stream


class AsyncRpcInterceptor(grpc.aio.ServerInterceptor):
    """The interceptor of `grpc.aio` servers; handlers must be coroutines or async generators."""

    def __init__(
        self,
        metrics: RpcMetrics | None,
        tracer: Tracer | None = None,
        facts: Callable[[], Metadata] = tuple,
    ) -> None:
        """Creates the interceptor.

        Args:
            metrics: Where rpcs are counted.
            tracer: Starts their spans.
            facts: Gives what the server tells of itself.
        """
        self._metrics = metrics
        self._tracer = tracer
        self._facts = facts

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        """Wraps the handler of one rpc."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(_ADMIN_PREFIX):
            return handler
        if method.endswith(TOLD_WITH):
            handler = rewrap(handler, functools.partial(telling_async, self._facts))
        if not handler.response_streaming:
            return rewrap(handler, lambda behavior: self._wrap_call(method, behavior))
        return rewrap(handler, lambda behavior: self._wrap_stream(method, behavior))

    def _wrap_call(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def call(request: Any, context: Any) -> Any:
            rpc = RpcRecord(method, context, self._metrics, self._tracer)
            try:
                response = await behavior(request, context)
            except asyncio.CancelledError:
                rpc.finish(grpc.StatusCode.CANCELLED, "caller went away")
                raise
            except Exception as error:  # noqa: BLE001
                await _abort_async(rpc, error, context)
            rpc.finish(_code_of(context))
            return response

        return call

    def _wrap_stream(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isasyncgenfunction(behavior):
            return self._wrap_call(method, behavior)  # it writes through the context itself

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            rpc = RpcRecord(method, context, self._metrics, self._tracer)
            try:
                async with aclosing(behavior(request, context)) as responses:
                    async for response in responses:
                        yield response
            except (asyncio.CancelledError, GeneratorExit):
                rpc.finish(grpc.StatusCode.CANCELLED, "caller went away")
                raise
            except Exception as error:  # noqa: BLE001
                await _abort_async(rpc, error, context)
            rpc.finish(_code_of(context))

        return stream


def _refuse_abandoned(context: Any) -> None:
    """Saves the work on an rpc whose caller went away while it waited for a worker.

    Raises:
        Cancelled: Nobody waits for the answer.
    """
    if not context.is_active():
        raise errors.Cancelled("caller went away before the work began")


def _abort(rpc: RpcRecord, error: Exception, context: Any) -> NoReturn:
    """Ends a synchronous rpc with an error; raises what gRPC wants to see."""
    if not isinstance(error, errors.SkipstoneError):
        if context.code() is not None:
            rpc.finish(context.code())  # the handler called context.abort itself
            raise error
        if not context.is_active():
            # Reading from or writing to a caller that is gone raises; that is not a bug.
            error = errors.Cancelled("caller went away")
    context.abort_with_status(to_grpc_status(rpc.translate(error)))
    raise AssertionError("abort_with_status always raises")


async def _abort_async(rpc: RpcRecord, error: Exception, context: Any) -> NoReturn:
    """Ends an asynchronous rpc with an error; raises what gRPC wants to see."""
    if isinstance(error, grpc.aio.AbortError):
        rpc.finish(_code_of(context))
        raise error
    status = to_grpc_status(rpc.translate(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort always raises")


def _timeout_s(context: Any) -> float | None:
    """Returns the seconds left to a call, None when its caller set no deadline.

    A synchronous context then tells centuries, more than any wait takes.
    """
    left: float | None = context.time_remaining()
    return None if left is None or left > threading.TIMEOUT_MAX else left


def _code_of(context: Any) -> grpc.StatusCode:
    """Returns the code set on a `grpc.aio` context, which may be a plain number."""
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code
    return next((c for c in grpc.StatusCode if c.value[0] == code), grpc.StatusCode.OK)


def _on_pool(behavior: Callable[..., Any], pool: ThreadPoolExecutor) -> Callable[..., Any]:
    """Returns the behaviour marked to run on `pool`: gRPC looks for these two attributes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return behavior(*args, **kwargs)

    call.experimental_thread_pool = pool  # type: ignore[attr-defined]
    call.experimental_non_blocking = getattr(  # type: ignore[attr-defined]
        behavior, "experimental_non_blocking", False
    )
    return call


def rewrap(handler: Handler, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Handler:
    """Returns the same kind of handler around a wrapped behaviour."""
    make, behavior = {
        (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
        (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
        (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
    }[handler.request_streaming, handler.response_streaming]
    return make(wrap(behavior), handler.request_deserializer, handler.response_serializer)
