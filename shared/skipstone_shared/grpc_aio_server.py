"""The shell around an asynchronous (`grpc.aio`) service; see `grpc_server.py`.

    def main() -> int:
        settings = load_settings(OrchestratorSettings)
        return serve_async(settings, lambda: build(settings))

where `build` is a coroutine function that returns an `AsyncMounted`.
"""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client.registry import Collector

from skipstone_shared.config import ServiceSettings
from skipstone_shared.grpc_access import async_access_interceptors
from skipstone_shared.grpc_health_port import start_async_health_server
from skipstone_shared.grpc_interceptors import AsyncRpcInterceptor
from skipstone_shared.grpc_listening import bind
from skipstone_shared.grpc_metrics import RpcMetrics
from skipstone_shared.grpc_server import (
    InProcessSettings,
    channel_options,
    reflected_names,
    report_cannot_start,
    start_metrics,
)
from skipstone_shared.grpc_server_facts import server_facts
from skipstone_shared.structured_logging import configure_logging, get_logger
from skipstone_shared.tracing import open_tracer


@dataclass(frozen=True)
class AsyncMounted:
    """What an asynchronous service brings to its server.

    Attributes:
        register: Adds the servicers to the server: calls the generated `add_X_to_server`.
        service_names: Full proto names for health and reflection.
        on_stop: Awaited in order when no rpc runs any more.
        collectors: Prometheus metrics of the service, created with `registry=None`.
    """

    register: Callable[[grpc.aio.Server], None]
    service_names: Sequence[str]
    on_stop: Sequence[Callable[[], Awaitable[None]]] = ()
    collectors: Sequence[Collector] = ()


def serve_async(settings: ServiceSettings, build: Callable[[], Awaitable[AsyncMounted]]) -> int:
    """Builds and serves one service until SIGTERM or SIGINT; as `grpc_server.serve`.

    Args:
        settings: Of the service.
        build: Creates clients and servicers inside the event loop.

    Returns:
        The exit code: 0 after a drain, 2 when the service could not start.
    """
    configure_logging(settings.service_name, settings.log_level, settings.log_format)
    try:
        return asyncio.run(_serve(settings, build))
    except KeyboardInterrupt:
        return 130


async def _serve(settings: ServiceSettings, build: Callable[[], Awaitable[AsyncMounted]]) -> int:
    try:
        server = AsyncServer(settings, await build())
        address = await server.start()
    except Exception as error:  # noqa: BLE001 - whatever it is, the service cannot start
        return report_cannot_start(settings, error)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stopping.set)
    get_logger().info("serving", address=address, **server.told_health())
    await stopping.wait()
    for number in signals:
        loop.remove_signal_handler(number)  # a second signal ends the process at once
    await server.drain(settings.drain_grace_s)
    return 0


@asynccontextmanager
async def in_process_async_server(
    mounted: AsyncMounted, settings: ServiceSettings | None = None
) -> AsyncIterator[str]:
    """Serves on a free loopback port inside this event loop, for contract tests.

    Yields:
        The target to connect to, `127.0.0.1:PORT`.
    """
    server = AsyncServer(settings or InProcessSettings(), mounted)
    target = await server.start()
    try:
        yield target
    finally:
        await server.drain(0.0)


class AsyncServer:
    """One `grpc.aio` server with its admin services and metrics port."""

    def __init__(self, settings: ServiceSettings, mounted: AsyncMounted) -> None:
        """Creates the server without listening yet. Inside the event loop only.

        Args:
            settings: Of the service; `max_workers` is not used, handlers are coroutines.
            mounted: The service.
        """
        self._settings = settings
        self._mounted = mounted
        self._metrics = RpcMetrics(mounted.collectors)
        self._tracer = open_tracer(settings)
        self._cleanup = ExitStack()
        self._health_server: grpc.aio.Server | None = None
        self._health_address = ""
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            interceptors=[
                AsyncRpcInterceptor(
                    self._metrics, self._tracer, functools.partial(server_facts, settings)
                ),
                *async_access_interceptors(settings),
            ],
            options=channel_options(settings),
        )
        mounted.register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(reflected_names(mounted.service_names), self._server)
        channelz.add_channelz_servicer(self._server)

    async def start(self) -> str:
        """Listens and returns the address.

        Raises:
            OSError: The port, the metrics port or the health port is taken.
            InvalidArgument: A file of the certificates cannot be used.
        """
        for name in self._mounted.service_names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        address = bind(self._server, self._settings)
        if self._settings.metrics_port:
            self._cleanup.callback(start_metrics(self._metrics, self._settings))
        if self._settings.health_port is not None:
            self._health_server, self._health_address = await start_async_health_server(
                self._health, self._settings
            )
        await self._server.start()
        return address

    def told_health(self) -> dict[str, str]:
        """Where health alone is served, for the log; empty when nowhere."""
        return {"health_address": self._health_address} if self._health_address else {}

    async def drain(self, grace_s: float) -> None:
        """Refuses new rpcs, gives running ones `grace_s`, then closes what the service opened."""
        log = get_logger()
        log.info("draining", grace_s=grace_s)
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
        if self._health_server is not None:
            await self._health_server.stop(None)
        self._cleanup.close()
        for callback in self._mounted.on_stop:
            try:
                await callback()
            except Exception as error:
                log.error("stop callback failed", exc_info=error)
        if self._tracer is not None:
            self._tracer.close()  # blocks for seconds at most, and nobody is served any more
        log.info("stopped")
