"""Starts the gateway: `python -m skipstone_gateway`."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import ExitStack

import uvicorn
from prometheus_client import disable_created_metrics, start_http_server

from skipstone_gateway.app import make_app
from skipstone_gateway.config import GatewaySettings
from skipstone_gateway.http_metrics import HttpMetrics
from skipstone_shared.config import load_settings
from skipstone_shared.errors import FailedPrecondition, InvalidArgument
from skipstone_shared.reloaded import Reloaded
from skipstone_shared.structured_logging import configure_logging, get_logger
from skipstone_shared.tls_files import TlsFiles, read_tls
from skipstone_shared.tracing import open_tracer

_EXIT_CANNOT_START = 2
_BACKLOG = 2048


def main() -> int:
    """Reads the settings and serves until SIGTERM; returns the exit code."""
    settings = load_settings(GatewaySettings)
    configure_logging(settings.service_name, settings.log_level, settings.log_format)
    with ExitStack() as open_parts:
        try:
            return _serve(settings, open_parts)
        except (InvalidArgument, FailedPrecondition) as error:
            sys.stderr.write(f"skipstone-gateway: cannot start: {error}\n")
            return _EXIT_CANNOT_START
        except _CannotListen as error:
            sys.stderr.write(f"skipstone-gateway: {error}\n")
            return _EXIT_CANNOT_START


def _serve(settings: GatewaySettings, open_parts: ExitStack) -> int:
    tls = settings.tls_files()
    certificates = None if tls is None else Certificates(tls)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = HttpMetrics()
    tracer = open_tracer(settings)
    if tracer is not None:
        open_parts.callback(tracer.close)
    listening = _listen(settings)
    if settings.metrics_port:
        open_parts.callback(_serve_metrics(settings, metrics))
    config = uvicorn.Config(
        make_app(settings, metrics, tracer),
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.drain_grace_s)),
        ssl_context_factory=None if certificates is None else lambda *_: certificates.context,
    )
    # The server takes both over while it runs and raises them again once it has drained.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    _Server(config, certificates).run(sockets=[listening])
    return 0


class Certificates:
    """The certificate that the port shows; read again when its files change."""

    def __init__(self, files: TlsFiles) -> None:
        """Reads the files.

        Raises:
            InvalidArgument: One of them cannot be used; names the setting.
        """
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if files.ca_file is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
        self._files = files
        self._loaded: Reloaded[None] = Reloaded("tls_files", files.paths, self._load)

    def look(self) -> None:
        """Takes up changed files, for the connections to come."""
        self._loaded.get()

    def _load(self) -> None:
        read_tls(self._files)  # says what is wrong with which setting
        assert self._files.cert_file is not None
        assert self._files.key_file is not None
        self.context.load_cert_chain(
            os.fspath(self._files.cert_file), os.fspath(self._files.key_file)
        )
        if self._files.ca_file is not None:
            # Adds: an authority that is gone from the file is trusted until the next start.
            self.context.load_verify_locations(os.fspath(self._files.ca_file))


class _Server(uvicorn.Server):
    """A server that says where it listens, as all services do."""

    def __init__(self, config: uvicorn.Config, certificates: Certificates | None) -> None:
        super().__init__(config)
        self._certificates = certificates

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and self.started:
            host, port = sockets[0].getsockname()[:2]
            get_logger().info("serving", address=f"{host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        if self._certificates is not None:
            self._certificates.look()
        return await super().on_tick(counter)


class _CannotListen(Exception):
    """A port cannot be listened on; the message names it."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {error.strerror}")


def _listen(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _CannotListen(settings.host, settings.port, error) from None
    return listening


def _serve_metrics(settings: GatewaySettings, metrics: HttpMetrics) -> Callable[[], None]:
    """Serves the metrics on a port of their own, where callers do not come; returns its end."""
    try:
        server, thread = start_http_server(
            settings.metrics_port, addr=settings.host, registry=metrics.registry
        )
    except OSError as error:
        raise _CannotListen(settings.host, settings.metrics_port, error) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


if __name__ == "__main__":
    sys.exit(main())
