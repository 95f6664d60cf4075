"""Which addresses a gRPC target stands for."""

from __future__ import annotations

import socket

import pytest

from skipstone_client._addresses import addresses_of
from skipstone_shared.errors import Unavailable


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("127.0.0.1:5", ("127.0.0.1", ["127.0.0.1:5"])),
        ("dns:///127.0.0.1:5", ("127.0.0.1", ["127.0.0.1:5"])),
        ("dns://10.0.0.1/127.0.0.1:5", ("127.0.0.1", ["127.0.0.1:5"])),
        ("localhost:5", ("localhost", ["127.0.0.1:5"])),
        ("[::1]:5", ("::1", ["[::1]:5"])),
        ("ipv4:10.0.0.2:5,10.0.0.1:6", ("", ["10.0.0.1:6", "10.0.0.2:5"])),
        ("ipv6:[::1]:5,[::2]:5", ("", ["[::1]:5", "[::2]:5"])),
        ("unix:/run/kv.sock", ("", [])),
        ("unix:///run/kv.sock", ("", [])),
        ("xds:///kv:5", ("", [])),
        ("kv", ("", [])),
    ],
)
def test_a_target_means_all_addresses_behind_it(
    target: str, addresses: tuple[str, list[str]]
) -> None:
    assert addresses_of(target) == addresses


def test_a_name_without_an_address_is_away() -> None:
    with pytest.raises(Unavailable, match=r"a\.\.b has no address"):
        addresses_of("a..b:5")


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
    name = "pictures-orchestrator"
    both = ["10.0.0.10:50050", "10.0.0.9:50050"]
    assert addresses_of(f"dns:///{name}:50050") == (name, both)
