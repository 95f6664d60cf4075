"""The shell around a synchronous service: everything between its settings and its process's end.

    def main() -> int:
        settings = load_settings(LatentKVSettings)
        return serve(settings, lambda: build(settings))

where `build` creates the store and returns a `Mounted`. `grpc_aio_server.py` is the same for
`grpc.aio`.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import grpc
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client.registry import Collector

from skipstone_shared.config import ServiceSettings
from skipstone_shared.grpc_access import access_interceptors
from skipstone_shared.grpc_health_port import start_health_server
from skipstone_shared.grpc_interceptors import RpcInterceptor
from skipstone_shared.grpc_listening import bind, check_address, check_files
from skipstone_shared.grpc_metrics import RpcMetrics
from skipstone_shared.grpc_server_facts import server_facts
from skipstone_shared.structured_logging import configure_logging, get_logger
from skipstone_shared.tracing import open_tracer

EXIT_CANNOT_START = 2
_MIN_PING_INTERVAL_MS = 5_000
_SIGNAL_POLL_S = 0.5
_PING_AFTER_MS = 30_000
_PING_TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class Mounted:
    """What a service brings to its server.

    Attributes:
        register: Adds the servicers to the server: calls the generated `add_X_to_server`.
        service_names: Full proto names (`skipstone.latent_kv.v1.LatentKV`), for health checks and
            reflection.
        on_stop: Called in order when no rpc runs any more: flush, close, join threads.
        collectors: Prometheus metrics of the service, created with `registry=None`.
        on_drain: Called in order when the drain begins: end streams that never end by themselves,
            so that they do not use up the grace. Must not block.
        pools: Threads of rpcs that must not take those of others, by full method name
            (`/skipstone.latent_kv.v1.LatentKV/ReadLatent`). The server ends them.
    """

    register: Callable[[grpc.Server], None]
    service_names: Sequence[str]
    on_stop: Sequence[Callable[[], None]] = ()
    collectors: Sequence[Collector] = ()
    on_drain: Sequence[Callable[[], None]] = ()
    pools: Mapping[str, ThreadPoolExecutor] = field(default_factory=dict)


def serve(settings: ServiceSettings, build: Callable[[], Mounted]) -> int:
    """Builds and serves one service until SIGTERM or SIGINT. Runs in the main thread.

    Once it listens it logs the event `serving` with `address`. On a signal: health says
    NOT_SERVING, running rpcs get `drain_grace_s`, then `on_stop` runs.

    Args:
        settings: Of the service.
        build: Creates the backends and the servicers; any exception means "cannot start".

    Returns:
        The exit code: 0 after a drain, 2 after one sentence on stderr when it could not start.
    """
    configure_logging(settings.service_name, settings.log_level, settings.log_format)
    try:
        # Before a build that may load a model for minutes.
        check_address(settings)
        check_files(settings)
        server = SyncServer(settings, build())
        address = server.start()
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - whatever it is, the service cannot start
        return report_cannot_start(settings, error)
    stopping = threading.Event()
    on_signals(stopping.set)
    get_logger().info("serving", address=address, **server.told_health())
    # Python runs handlers in the main thread only, and the kernel may give a signal to another one
    # without waking this: seen for SIGTERM right after SIGCONT.
    while not stopping.wait(_SIGNAL_POLL_S):
        pass
    restore_signals()
    server.drain(settings.drain_grace_s)
    return 0


@contextmanager
def in_process_server(mounted: Mounted, settings: ServiceSettings | None = None) -> Iterator[str]:
    """Serves on a free loopback port inside this process, for contract tests.

    Interceptor, health and limits are those of `serve`; logging is left alone.

    Yields:
        The target to connect to, `127.0.0.1:PORT`.
    """
    server = SyncServer(settings or InProcessSettings(), mounted)
    target = server.start()
    try:
        yield target
    finally:
        server.drain(0.0)


class InProcessSettings(ServiceSettings):
    """Settings of servers inside tests: any free port."""

    service_name = "in_process"


class SyncServer:
    """One gRPC server with its admin services, workers and metrics port."""

    def __init__(self, settings: ServiceSettings, mounted: Mounted) -> None:
        """Creates the server without listening yet.

        Args:
            settings: Of the service.
            mounted: The service.
        """
        self._settings = settings
        self._mounted = mounted
        self._metrics = RpcMetrics(mounted.collectors)
        self._tracer = open_tracer(settings)
        self._workers = ThreadPoolExecutor(settings.max_workers, thread_name_prefix="rpc")
        self._health_pool = ThreadPoolExecutor(2, thread_name_prefix="health")
        self._cleanup = ExitStack()
        self._health_address = ""
        self._health = health.HealthServicer(
            experimental_non_blocking=True, experimental_thread_pool=self._health_pool
        )
        self._server = grpc.server(
            self._workers,
            interceptors=[
                RpcInterceptor(
                    self._metrics,
                    self._health_pool,
                    mounted.pools,
                    self._tracer,
                    functools.partial(server_facts, settings),
                ),
                *access_interceptors(settings),
            ],
            options=channel_options(settings),
        )
        mounted.register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for name in mounted.service_names:
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        reflection.enable_server_reflection(reflected_names(mounted.service_names), self._server)
        channelz.add_channelz_servicer(self._server)

    def start(self) -> str:
        """Listens and returns the address.

        Raises:
            OSError: The port, the metrics port or the health port is taken.
            InvalidArgument: A file of the certificates cannot be used.
        """
        address = bind(self._server, self._settings)
        if self._settings.metrics_port:
            stop = start_metrics(self._metrics, self._settings)
            self._cleanup.callback(stop)
        if self._settings.health_port is not None:
            probed, self._health_address = start_health_server(
                self._health, self._health_pool, self._settings
            )
            self._cleanup.callback(lambda: probed.stop(None).wait())
        self._server.start()
        return address

    def told_health(self) -> dict[str, str]:
        """Where health alone is served, for the log; empty when nowhere."""
        return {"health_address": self._health_address} if self._health_address else {}

    def drain(self, grace_s: float) -> None:
        """Refuses new rpcs, gives running ones `grace_s`, then closes what the service opened.

        `on_stop` waits for handlers that ignore their cancellation: closing a store under a running
        read would be worse than a late end.
        """
        log = get_logger()
        log.info("draining", grace_s=grace_s)
        self._health.enter_graceful_shutdown()
        self._call_all("drain", self._mounted.on_drain)
        self._server.stop(grace_s).wait()
        for pool in (self._workers, *self._mounted.pools.values()):
            pool.shutdown(wait=True)
        self._cleanup.close()
        self._health_pool.shutdown(wait=True)
        self._call_all("stop", self._mounted.on_stop)
        if self._tracer is not None:
            self._tracer.close()
        log.info("stopped")

    def _call_all(self, phase: str, callbacks: Sequence[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - the others must still be called
                get_logger().error(f"{phase} callback failed", exc_info=error)


def channel_options(settings: ServiceSettings) -> list[tuple[str, Any]]:
    """Returns the gRPC options of a server. Message limits stay at gRPC's 4 MiB."""
    options: list[tuple[str, Any]] = [
        # With it a second server would share the port instead of failing to start.
        ("grpc.so_reuseport", 0),
        # Clients keep idle connections warm to notice a dead server; do not punish their pings.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", 0),
        # A caller whose machine is gone says nothing more: without pings its streams would hold
        # their threads for two hours.
        ("grpc.keepalive_time_ms", _PING_AFTER_MS),
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
    ]
    if settings.max_connection_age_s:
        options.append(("grpc.max_connection_age_ms", int(settings.max_connection_age_s * 1000)))
        grace_ms = int(max(settings.drain_grace_s, 1.0) * 1000)
        options.append(("grpc.max_connection_age_grace_ms", grace_ms))
    return options


def reflected_names(service_names: Sequence[str]) -> list[str]:
    """Returns the services that reflection lists."""
    return [*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME]


def start_metrics(metrics: RpcMetrics, settings: ServiceSettings) -> Callable[[], None]:
    """Opens the metrics port and returns what closes it.

    Raises:
        OSError: The port is taken.
    """
    address = f"{settings.host}:{settings.metrics_port}"
    try:
        stop = metrics.start_http(settings.host, settings.metrics_port)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise OSError(f"cannot serve metrics on {address}: {reason}") from error
    get_logger().info("metrics", address=address)
    return stop


def report_cannot_start(settings: ServiceSettings, error: Exception) -> int:
    """Says in one sentence on stderr why the service cannot start; returns the exit code."""
    get_logger().debug("cannot start", exc_info=error)
    reason = " ".join(str(error).split()) or type(error).__name__
    sys.stderr.write(f"{settings.program_name()}: cannot start: {reason}\n")
    sys.stderr.flush()
    return EXIT_CANNOT_START


def on_signals(callback: Callable[[], None]) -> None:
    """Calls `callback` on SIGTERM and SIGINT. Main thread only."""

    def handle(_signum: int, _frame: FrameType | None) -> None:
        callback()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def restore_signals() -> None:
    """Lets a second signal end the process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
