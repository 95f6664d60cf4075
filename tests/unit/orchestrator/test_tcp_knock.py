"""Whether anybody listens at a target."""

from __future__ import annotations

import socket

import pytest
from tests.unit.orchestrator.site import in_loop

from skipstone_orchestrator.tcp_knock import TcpKnock


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ipv4:127.0.0.1:{}", "dns:///127.0.0.1:{}"])
@in_loop
async def test_a_listener_is_found_and_a_closed_port_is_not(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = form.format(listener.getsockname()[1])
        assert await TcpKnock(target, timeout_s=5.0)()
    assert not await TcpKnock(target, timeout_s=5.0)()


@in_loop
async def test_targets_without_a_port_are_never_found() -> None:
    assert not await TcpKnock("unix:/run/embedding.sock")()
    assert not await TcpKnock("embedding")()
