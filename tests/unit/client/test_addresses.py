"""Which addresses a gRPC target stands for."""

from __future__ import annotations

import socket

import pytest

from skipstone_client._addresses import addresses_of, host_of


@pytest.mark.parametrize(
    ("target", "addresses", "host"),
    [
        ("127.0.0.1:50050", ("127.0.0.1:50050",), "127.0.0.1"),
        ("dns:///127.0.0.1:50050", ("127.0.0.1:50050",), "127.0.0.1"),
        ("dns:127.0.0.1:50050", ("127.0.0.1:50050",), "127.0.0.1"),
        ("[::1]:50050", ("[::1]:50050",), "::1"),
        ("ipv4:10.0.0.2:1,10.0.0.1:2,10.0.0.2:1", ("10.0.0.2:1", "10.0.0.1:2"), ""),
        ("ipv6:[::1]:1,[::2]:1", ("[::1]:1", "[::2]:1"), ""),
        ("unix:/run/skipstone", ("unix:/run/skipstone",), ""),
        ("dns://10.0.0.53/name:50050", ("dns://10.0.0.53/name:50050",), ""),
        ("name", ("name",), ""),
    ],
)
def test_a_target_stands_for_its_addresses(
    target: str, addresses: tuple[str, ...], host: str
) -> None:
    assert addresses_of(target) == addresses
    assert host_of(target) == host


def test_a_name_stands_for_every_address_once_and_for_one_family(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def known(host: str, port: int, **_: object) -> list[object]:
        assert (host, port) == ("pictures-orchestrator", 50050)
        stream = (socket.SOCK_STREAM, 6, "")
        return [
            (socket.AF_INET6, *stream, ("fd00::1", port, 0, 0)),
            (socket.AF_INET, *stream, ("10.0.0.10", port)),
            (socket.AF_INET, *stream, ("10.0.0.9", port)),
            (socket.AF_INET, *stream, ("10.0.0.10", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", known)
    assert addresses_of("dns:///pictures-orchestrator:50050") == (
        "10.0.0.9:50050",
        "10.0.0.10:50050",
    )
    assert host_of("dns:///pictures-orchestrator:50050") == "pictures-orchestrator"
