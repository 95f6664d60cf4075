"""How a server listens: its address, TLS, and what is said when nothing protects it."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from skipstone_shared.access import read_callers
from skipstone_shared.config import ServiceSettings
from skipstone_shared.grpc_tls import server_credentials
from skipstone_shared.structured_logging import get_logger
from skipstone_shared.tls_files import read_tls


def bind(server: Any, settings: ServiceSettings) -> str:
    """Binds a server, sync or aio, and returns the address with the port it really got.

    Raises:
        OSError: The port is taken, not allowed, or the host is not of this machine.
        InvalidArgument: A file of the certificates cannot be used.
    """
    check_address(settings)
    host, wanted = _listen_address(settings.host, settings.port)
    files = settings.tls_files()
    # Read before anything listens: a file that cannot be used is a start that fails.
    credentials = None if files is None else server_credentials(files)
    try:
        port: int = (
            server.add_insecure_port(wanted)
            if credentials is None
            else server.add_secure_port(wanted, credentials)
        )
    except RuntimeError as error:
        raise OSError(f"cannot listen on {wanted}") from error
    _warn_unprotected(settings)
    return f"{host}:{port}"


def bind_health(server: Any, settings: ServiceSettings) -> str:
    """Binds a server of health checks alone, in plain text; returns its address.

    Raises:
        OSError: The port is taken.
    """
    assert settings.health_port is not None
    host, wanted = _listen_address(settings.host, settings.health_port)
    _check_free(settings.host, settings.health_port, f"serve health on {wanted}")
    try:
        return f"{host}:{server.add_insecure_port(wanted)}"
    except RuntimeError as error:
        raise OSError(f"cannot serve health on {wanted}") from error


def check_address(settings: ServiceSettings) -> None:
    """Tries an address out, because gRPC's own failure says less and clutters stderr.

    Raises:
        OSError: The address cannot be listened on.
    """
    _, wanted = _listen_address(settings.host, settings.port)
    _check_free(settings.host, settings.port, f"listen on {wanted}")


def check_files(settings: ServiceSettings) -> None:
    """Reads the files that decide who is let in.

    Raises:
        InvalidArgument: One cannot be used; `field` is the name of the setting.
    """
    files = settings.tls_files()
    if files is not None:
        read_tls(files)
    if settings.access_file is not None:
        read_callers(settings.access_file)


def is_loopback(host: str) -> bool:
    """Whether nobody outside of this machine reaches a server that listens on an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _warn_unprotected(settings: ServiceSettings) -> None:
    """Says once and loudly when others reach this server and it does not ask who they are.

    No error, since a network policy or a mesh may protect it: decision 0018.
    """
    if is_loopback(settings.host):
        return
    missing = []
    if settings.tls_cert_file is None:
        missing.append("TLS (tls_cert_file, tls_key_file)")
    if settings.access_file is None and settings.tls_ca_file is None:
        missing.append("tokens (access_file) or client certificates (tls_ca_file)")
    if missing:
        get_logger().warning(
            "UNPROTECTED: whoever reaches this address can use the service",
            host=settings.host,
            missing=missing,
        )


def _listen_address(host: str, port: int) -> tuple[str, str]:
    """Returns host and host:port as gRPC writes them."""
    host = f"[{host}]" if ":" in host else host
    return host, f"{host}:{port}"


def _check_free(host: str, port: int, purpose: str) -> None:
    try:
        _probe_address(host, port)
    except OSError as error:
        raise OSError(f"cannot {purpose}: {(error.strerror or '').lower()}") from error


def _probe_address(host: str, port: int) -> None:
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, proto) as probe:
        # As gRPC does: connections of a server that just ended must not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen()
