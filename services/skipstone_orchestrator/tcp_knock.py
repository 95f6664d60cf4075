"""Whether anybody listens at a gRPC target: what a request asks before it passes by a dead service.

A channel that lost its server waits before it connects again, so it learns of a return too late for
the next request. Connecting to a port of a machine where nobody listens costs microseconds.
"""

from __future__ import annotations

import asyncio


class TcpKnock:
    """Opens a connection to a target and closes it again."""

    def __init__(self, target: str, timeout_s: float = 0.02) -> None:
        """Creates the knock.

        Args:
            target: `host:port`, with or without a `dns:` or `ipv4:` prefix. Nobody is ever found
                at other kinds of target, so that only the background probes watch these.
            timeout_s: Seconds after which nobody is there.
        """
        address = target.rpartition("/")[2].removeprefix("dns:").removeprefix("ipv4:")
        self._host, _, port = address.rpartition(":")
        self._port = int(port) if port.isdecimal() else 0
        self._timeout_s = timeout_s

    async def __call__(self) -> bool:
        """Whether the connection was accepted in time."""
        if not self._port:
            return False
        try:
            async with asyncio.timeout(self._timeout_s):
                _, writer = await asyncio.open_connection(self._host.strip("[]"), self._port)
        except OSError:  # TimeoutError is one
            return False
        writer.close()
        return True
