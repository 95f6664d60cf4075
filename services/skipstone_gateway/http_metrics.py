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

_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_OTHER = "other"


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


class CountRequests:
    """ASGI middleware: one count and one time for each request.

    The route is its template (`/v1/videos/{video_id}`): paths of callers would be labels without
    end.
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
                route = getattr(scope.get("route"), "path", _OTHER)
                self._metrics.requests.labels(route, scope["method"], code).inc()
                self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
