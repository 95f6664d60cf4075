"""The replicas behind a gRPC target: every address that a name stands for."""

from __future__ import annotations

import ipaddress
import re
import socket

_NAME = re.compile(r"(?:dns:(?:///)?)?(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\],]+):(?P<port>[0-9]+)")
_LIST = re.compile(r"ipv[46]:(?P<addresses>.+)")


def addresses_of(target: str) -> tuple[str, ...]:
    """Targets of the single replicas behind a gRPC target, in the order of their numbers.

    Of a name that has addresses of both families those of IPv4: a replica has one of each. What is
    neither a name with a port nor a list of addresses (`unix:`, a DNS server of its own) stands for
    itself.

    Raises:
        OSError: The name cannot be looked up.
    """
    listed = _LIST.fullmatch(target)
    if listed:
        return tuple(dict.fromkeys(listed["addresses"].split(",")))
    name = _NAME.fullmatch(target)
    if name is None:
        return (target,)
    found = socket.getaddrinfo(name["host"].strip("[]"), int(name["port"]), type=socket.SOCK_STREAM)
    numbers = {ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found}
    wanted = {number for number in numbers if number.version == 4} or numbers
    return tuple(
        f"{number}:{name['port']}" if number.version == 4 else f"[{number}]:{name['port']}"
        for number in sorted(wanted, key=int)
    )


def host_of(target: str) -> str:
    """The host that a certificate must be of; empty where a target names none."""
    name = _NAME.fullmatch(target)
    return "" if name is None else name["host"].strip("[]")
