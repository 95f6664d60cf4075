"""Gives every HTTP request its span, under which the spans of the services behind it are."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from skipstone_gateway.http_metrics import method_of, route_of
from skipstone_shared.request_context import current_request_id
from skipstone_shared.tracing import Span, Tracer, span_scope, start_http_span

HEADER = "x-skipstone-trace-id"

_BEGIN_TRACES = frozenset({"DELETE", "PATCH", "POST", "PUT"})
"""Others only go on with a caller's trace: probes, charts and who waits for a video ask all day."""


class TraceRequests:
    """ASGI middleware: works for the span of a request, and tells the caller which trace it is in.

    The request id must be bound already.
    """

    def __init__(self, app: Any, tracer: Tracer | None) -> None:
        """Wraps an app; without a tracer the traces of callers are passed on."""
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one connection."""
        span = self._start(scope) if scope["type"] == "http" else None
        if span is None:
            await self._app(scope, receive, send)
            return
        code = 500

        async def answering(message: Any) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                if span.trace_id:
                    told = (HEADER.encode(), span.trace_id.encode())
                    message["headers"] = [*message.get("headers", ()), told]
            await send(message)

        try:
            with span_scope(span):
                await self._app(scope, receive, answering)
        finally:
            route = route_of(scope)
            span.rename(f"{method_of(scope)} {route}")
            span.set("http.route", route)
            span.set("http.response.status_code", code)
            span.end(HTTPStatus(code).name if code >= 500 else "")

    def _start(self, scope: Any) -> Span | None:
        method = method_of(scope)
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]]
        begins = method in _BEGIN_TRACES or any(name == "traceparent" for name, _ in headers)
        tracer = self._tracer if begins else None
        return start_http_span(tracer, method, headers, current_request_id() or "")
