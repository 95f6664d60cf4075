"""A port for health checks alone, in plain text: probes of Kubernetes cannot speak TLS.

It tells whether the service serves and nothing else, so it needs neither certificates nor tokens.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from skipstone_shared.config import ServiceSettings
from skipstone_shared.grpc_listening import bind_health

_OPTIONS = [("grpc.so_reuseport", 0)]


def start_health_server(
    servicer: health.HealthServicer, pool: ThreadPoolExecutor, settings: ServiceSettings
) -> tuple[grpc.Server, str]:
    """Serves the health of a synchronous service on its own port.

    Args:
        servicer: That of the service: both ports tell the same.
        pool: Threads for its checks.
        settings: Of the service, with a `health_port`.

    Returns:
        The server, and the address it listens on.

    Raises:
        OSError: The port is taken.
    """
    server = grpc.server(pool, options=_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address = bind_health(server, settings)
    server.start()
    return server, address


async def start_async_health_server(
    servicer: health.aio.HealthServicer, settings: ServiceSettings
) -> tuple[grpc.aio.Server, str]:
    """The same for a `grpc.aio` service, in its event loop."""
    server = grpc.aio.server(options=_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address = bind_health(server, settings)
    await server.start()
    return server, address
