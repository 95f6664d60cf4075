"""Starts the gateway: `python -m skipstone_gateway`."""

from __future__ import annotations

import socket
import sys

import uvicorn

from skipstone_gateway.app import make_app
from skipstone_gateway.config import GatewaySettings
from skipstone_shared.config import load_settings
from skipstone_shared.structured_logging import configure_logging, get_logger

_EXIT_CANNOT_START = 2
_BACKLOG = 2048


def main() -> int:
    """Reads the settings and serves until SIGTERM; returns the exit code."""
    settings = load_settings(GatewaySettings)
    configure_logging(settings.service_name, settings.log_level, settings.log_format)
    try:
        listening = _listen(settings)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        sys.stderr.write(f"skipstone-gateway: cannot listen on {where}: {error.strerror}\n")
        return _EXIT_CANNOT_START
    tls = settings.tls_files()
    server = _Server(
        uvicorn.Config(
            make_app(settings),
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(settings.drain_grace_s)),
            ssl_certfile=None if tls is None else str(settings.tls_cert_file),
            ssl_keyfile=None if tls is None else str(settings.tls_key_file),
        )
    )
    server.run(sockets=[listening])
    return 0


class _Server(uvicorn.Server):
    """A server that says where it listens, as all services do."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and self.started:
            host, port = sockets[0].getsockname()[:2]
            get_logger().info("serving", address=f"{host}:{port}")


def _listen(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


if __name__ == "__main__":
    sys.exit(main())
