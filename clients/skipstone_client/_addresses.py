"""The replicas behind a gRPC target: every address that a name stands for."""

from __future__ import annotations

import socket

from skipstone_shared.errors import Unavailable


def addresses_of(target: str) -> tuple[str, list[str]]:
    """The host that a gRPC target names, empty for a list, and the ``address:port`` behind it.

    No address where gRPC alone knows what is behind it, as for ``unix:``.

    Raises:
        Unavailable: The name is not known.
    """
    scheme, _, rest = target.partition(":")
    if scheme in ("ipv4", "ipv6"):
        return "", sorted(rest.split(","))
    host, port = host_and_port(target)
    if not host:
        return "", []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"{host} has no address: {error}") from error
    # One that has addresses of both kinds is asked at one of them.
    v4 = {f"{info[4][0]}:{port}" for info in found if info[0] is socket.AF_INET}
    v6 = {f"[{info[4][0]}]:{port}" for info in found if info[0] is socket.AF_INET6}
    return host, sorted(v4 or v6)


def host_and_port(target: str) -> tuple[str, int]:
    """The name, or the one address, that a target stands for; empty and 0 for anything else."""
    scheme, _, rest = target.partition(":")
    name = rest.rpartition("/")[2] if scheme == "dns" else target
    host, colon, port = name.rpartition(":")
    if not colon or scheme in ("ipv4", "ipv6") or "/" in name or not port.isdecimal():
        return "", 0
    return host.strip("[]"), int(port)
