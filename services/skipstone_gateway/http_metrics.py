"""Prometheus metrics of the gateway, and the middleware that counts."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from skipstone_shared.tracing import current_trace_id

_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_OTHER = "other"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class HttpMetrics:
    """Counters of one gateway in a registry of its own."""

    def __init__(self) -> None:
        """Creates the metrics."""
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "skipstone_gateway_requests_total",
            "Finished HTTP requests.",
            ["route", "method", "code"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "skipstone_gateway_request_seconds",
            "Time from a request to the end of its answer, in seconds.",
            ["route"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.running = Gauge(
            "skipstone_gateway_requests_running", "HTTP requests at work.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)


def method_of(scope: Any) -> str:
    """Method of a request; callers may send any word, which would be labels without end."""
    return scope["method"] if scope["method"] in _METHODS else _OTHER


def route_of(scope: Any) -> str:
    """Template of the path of a request that was served (`/v1/videos/{video_id}`).

    Paths of callers would be labels without end.
    """
    return getattr(scope.get("route"), "path", _OTHER)


class CountRequests:
    """ASGI middleware: one count and one time for each request.

    The trace of a request is the exemplar of its bucket.
    """

    def __init__(self, app: Any, metrics: HttpMetrics) -> None:
        """Wraps an app."""
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        code = 500

        async def noting(message: Any) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        started = time.perf_counter()
        with self._metrics.running.track_inprogress():
            try:
                await self._app(scope, receive, noting)
            finally:
                route, trace_id = route_of(scope), current_trace_id()
                self._metrics.requests.labels(route, method_of(scope), code).inc()
                self._metrics.seconds.labels(route).observe(
                    time.perf_counter() - started, {"trace_id": trace_id} if trace_id else None
                )
