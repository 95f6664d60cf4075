"""Traces: the current span, how it travels with an rpc, and spans of stages.

Off, which is the default, there is no current span, and everything in here is one look at a context
variable. On, the server's interceptor makes the span of an rpc the current one, `stage_span` and
`traced` make children of whatever is current, and clients send it on as W3C `traceparent` (W3C
Trace Context, level 1). A service that traces nothing itself passes its caller's trace on.

No prompt, namespace or error message may become an attribute: traces go to other machines. What a
span tells of an error is its reason.

Like the request id, the current span lives in a context variable: asyncio tasks inherit it, new
threads do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from skipstone_shared.errors import FailedPrecondition, NotFound, SkipstoneError

if TYPE_CHECKING:
    from skipstone_shared.config import ServiceSettings

TRACEPARENT_KEY = "traceparent"
"""Metadata key of the span that a call belongs to."""

Attribute = str | int | float | bool | Sequence[str]
"""Value of an attribute."""

P = ParamSpec("P")
T = TypeVar("T")

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


class Span(Protocol):
    """One piece of work in a trace. Any thread may use it; it ends once."""

    @property
    def traceparent(self) -> str:
        """Its place in the trace, as metadata: `00-<trace id>-<span id>-<flags>`."""
        ...

    @property
    def trace_id(self) -> str:
        """Id of its trace, 32 hexadecimal digits; empty when nobody records it."""
        ...

    def child(self, name: str) -> Span:
        """Starts a span under this one."""
        ...

    def set(self, key: str, value: Attribute) -> None:
        """Sets an attribute. Never a prompt or a namespace."""
        ...

    def rename(self, name: str) -> None:
        """Gives it the name that was not known when it started. Never a path that holds an id."""
        ...

    def end(self, error: str = "") -> None:
        """Ends it; `error` is the reason of a failure, empty for none."""
        ...


class Tracer(Protocol):
    """Starts the spans of one process. Threads may share it."""

    def start_rpc(self, method: str, parent: str | None, request_id: str) -> Span | None:
        """Starts the span of an rpc that this process serves.

        Args:
            method: Full name, `/skipstone.latent_kv.v1.LatentKV/ReadLatent`.
            parent: Checked traceparent of the caller, None when it sent none.
            request_id: Becomes an attribute.

        Returns:
            The span; None when the rpc is in no trace.
        """
        ...

    def start_http(self, method: str, parent: str | None, request_id: str) -> Span | None:
        """Starts the span of an HTTP request that this process serves.

        Args:
            method: Its method, which is the name of the span until it is renamed.
            parent: Checked traceparent of the caller, None when it sent none.
            request_id: Becomes an attribute.

        Returns:
            The span; None when the request is in no trace.
        """
        ...

    def close(self) -> None:
        """Sends what waits, for a bounded time, and ends."""
        ...


class PassedSpan:
    """A span of somebody else, or one that is not recorded: only passed on."""

    trace_id = ""

    def __init__(self, traceparent: str) -> None:
        """Takes the place in the trace."""
        self.traceparent = traceparent

    def child(self, name: str) -> Span:
        """Itself."""
        return self

    def set(self, key: str, value: Attribute) -> None:
        """Nothing."""

    def rename(self, name: str) -> None:
        """Nothing."""

    def end(self, error: str = "") -> None:
        """Nothing."""


_span: ContextVar[Span | None] = ContextVar("skipstone_span", default=None)


def open_tracer(settings: ServiceSettings) -> Tracer | None:
    """The tracer that a service is configured with, None for none.

    Raises:
        FailedPrecondition: The packages of the extra are missing.
    """
    if not settings.otlp_endpoint:
        return None
    try:
        from skipstone_shared.tracing_otlp import OtlpTracer
    except ImportError as error:
        raise FailedPrecondition(
            f"otlp_endpoint needs {error.name}: pip install 'skipstone[tracing]'"
        ) from error
    return OtlpTracer(
        settings.service_name, settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio
    )


def bind_rpc(
    tracer: Tracer | None,
    method: str,
    metadata: Sequence[tuple[str, str | bytes]],
    request_id: str,
) -> Span | None:
    """Makes the span of an rpc current until the context ends. For server interceptors."""
    parent = read_traceparent(metadata)
    span = _passed(parent) if tracer is None else tracer.start_rpc(method, parent, request_id)
    _span.set(span)
    return span


def start_http_span(
    tracer: Tracer | None, method: str, headers: Sequence[tuple[str, str]], request_id: str
) -> Span | None:
    """Starts the span of an HTTP request, for `span_scope`. For middlewares.

    Args:
        tracer: None only passes the caller's trace on.
        method: Of the request.
        headers: Of the request, names in lower case.
        request_id: Becomes an attribute.
    """
    parent = read_traceparent(headers)
    return _passed(parent) if tracer is None else tracer.start_http(method, parent, request_id)


def _passed(parent: str | None) -> Span | None:
    return None if parent is None else PassedSpan(parent)


def read_traceparent(metadata: Sequence[tuple[str, str | bytes]]) -> str | None:
    """The traceparent that a caller sent, as version 00; None for none or an invalid one."""
    for key, value in metadata:
        if key == TRACEPARENT_KEY and isinstance(value, str):
            return _checked(value)
    return None


def _checked(traceparent: str) -> str | None:
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    trace_id, span_id, flags, more = found.groups()
    # Later versions may say more; version 00 may not.
    if not (trace_id.strip("0") and span_id.strip("0")) or (more and traceparent[:2] == "00"):
        return None
    return f"00-{trace_id}-{span_id}-{int(flags, 16) & _SAMPLED:02x}"


def current_span() -> Span | None:
    """The span being worked on, None outside of a trace."""
    return _span.get()


def current_trace_id() -> str:
    """Id of the trace that records the current work, empty for none. For logs and exemplars."""
    span = _span.get()
    return "" if span is None else span.trace_id


def outgoing_traceparent() -> str | None:
    """What a call to another service is to carry; None for nothing.

    Outside of Skipstone's own spans that is the current span of OpenTelemetry's API, so that the
    calls of an application that traces belong to its trace.
    """
    span = _span.get()
    if span is not None:
        return span.traceparent
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    flags = context.trace_flags & _SAMPLED
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def span_scope(span: Span | None) -> AbstractContextManager[None]:
    """Works for a span inside the block without ending it: work that was put off."""
    return _Bound(span)


def stage_span(name: str) -> AbstractContextManager[Span | None]:
    """Works in a new child of the current span inside the block; in no trace it does nothing."""
    parent = _span.get()
    return _NO_STAGE if parent is None else _Stage(parent.child(name))


def traced(name: str) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Makes every call of a coroutine function a `stage_span`."""

    def wrap(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with stage_span(name):
                return await function(*args, **kwargs)

        return call

    return wrap


class _Bound(AbstractContextManager[None]):
    """The current span for the time of a block."""

    def __init__(self, span: Span | None) -> None:
        self._bound = span
        self._token: Token[Span | None] | None = None

    def __enter__(self) -> None:
        self._token = _span.set(self._bound)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._token is not None, "left without having been entered"
        # A generator that its caller gave up may be closed in another context than it ran in.
        with contextlib.suppress(ValueError):
            _span.reset(self._token)


class _Stage(AbstractContextManager["Span | None"]):
    """A span for the time of a block."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._bound = _Bound(span)

    def __enter__(self) -> Span:
        self._bound.__enter__()
        return self._span

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bound.__exit__(exc_type, exc, traceback)
        self._span.end(_reason(exc))


class _NoStage(AbstractContextManager["Span | None"]):
    """What `stage_span` gives outside of a trace; one for all."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


_NO_STAGE = _NoStage()


def _reason(error: BaseException | None) -> str:
    """What a span says of an error: never its message, which may quote a caller's input."""
    if error is None or isinstance(error, NotFound):
        return ""  # a miss is normal
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "CANCELLED"
    return error.reason if isinstance(error, SkipstoneError) else type(error).__name__
