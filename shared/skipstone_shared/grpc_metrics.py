"""Prometheus metrics of every server: how many rpcs, with which code, how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.registry import Collector

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class RpcMetrics:
    """Counters of one server in a registry of its own, so that two servers never mix."""

    def __init__(self, collectors: Sequence[Collector] = ()) -> None:
        """Creates the metrics.

        Args:
            collectors: Further metrics of the service, created with `registry=None`.
        """
        self.registry = CollectorRegistry()
        self._rpcs = Counter(
            "skipstone_rpcs_total", "Finished rpcs.", ["method", "code"], registry=self.registry
        )
        self._seconds = Histogram(
            "skipstone_rpc_seconds",
            "Time from the first byte of the handler to its last, in seconds.",
            ["method"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        for collector in collectors:
            self.registry.register(collector)

    def record(self, method: str, code: str, seconds: float, trace_id: str = "") -> None:
        """Counts one finished rpc; a traced one is the exemplar of its bucket."""
        self._rpcs.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds, {"trace_id": trace_id} if trace_id else None)

    def start_http(self, host: str, port: int) -> Callable[[], None]:
        """Serves `/metrics` on a thread of its own and returns what stops it.

        Raises:
            OSError: The port is taken.
        """
        # The time at which each series began: as many series again, of no use to anybody.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        server, thread = start_http_server(port, addr=host, registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop
