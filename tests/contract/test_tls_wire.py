"""TLS on a real wire: both server shells, both kinds of clients, and files that change."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.certificates import Authority
from tests.contract.test_server_shell import (
    SERVICE,
    TIMEOUT_S,
    Behaviour,
    Shell,
    async_shell,
    call,
    check_health,
    connected,
    sync_shell,
)
from tests.unit.client.fake_services import FakeLatentKV, deletion

from skipstone.latent_kv.v1 import latent_kv_pb2_grpc
from skipstone_client import LatentKVClient
from skipstone_client.aio import AsyncLatentKVClient
from skipstone_shared import errors, reloaded
from skipstone_shared.credentials import Credentials
from skipstone_shared.grpc_server import InProcessSettings, Mounted, in_process_server
from skipstone_shared.grpc_tls import channel_credentials
from skipstone_shared.stored_entries import EvictionEvent, EvictionKind
from skipstone_shared.stored_entry_messages import WATCH_READY, eviction_to_message
from skipstone_shared.tls_files import TlsFiles, read_tls

EVENT = EvictionEvent(1, EvictionKind.CAPACITY, "ns", "e")


@pytest.fixture(params=[sync_shell, async_shell], ids=["sync", "aio"])
def shell(request: pytest.FixtureRequest) -> Shell:
    found: Shell = request.param
    return found


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at with every call and every connection."""
    monkeypatch.setattr(reloaded, "CHECK_INTERVAL_S", 0.0)


def settings_of(files: TlsFiles, health_port: int | None = None) -> InProcessSettings:
    return InProcessSettings(
        tls_cert_file=files.cert_file,
        tls_key_file=files.key_file,
        tls_ca_file=files.ca_file,
        health_port=health_port,
    )


def ask(target: str, files: TlsFiles) -> bytes:
    """Asks over a connection of its own."""
    # Without a pool of its own gRPC shares connections between channels with equal options.
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(target, channel_credentials(read_tls(files)), options) as channel:
        return call(channel, b"x")


def test_a_caller_with_a_certificate_of_the_authority_is_served(
    shell: Shell, authority: Authority
) -> None:
    with shell(Behaviour(), settings_of(authority.write("server"))) as target:
        assert ask(target, authority.write("client")) == b"x"


def test_a_caller_without_a_certificate_is_refused(shell: Shell, authority: Authority) -> None:
    with shell(Behaviour(), settings_of(authority.write("server"))) as target:
        with pytest.raises(grpc.RpcError) as caught:
            ask(target, TlsFiles(ca_file=authority.file))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_caller_with_the_certificate_of_another_authority_is_refused(
    shell: Shell, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").write("client")
    with shell(Behaviour(), settings_of(authority.write("server"))) as target:
        with pytest.raises(grpc.RpcError) as caught:
            ask(target, TlsFiles(stranger.cert_file, stranger.key_file, authority.file))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_caller_in_plain_text_is_refused(shell: Shell, authority: Authority) -> None:
    with shell(Behaviour(), settings_of(authority.write("server"))) as target:
        with connected(target) as channel, pytest.raises(grpc.RpcError) as caught:
            call(channel, b"x")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_without_authorities_no_certificate_is_asked_for(
    shell: Shell, authority: Authority
) -> None:
    files = authority.write("server")
    with shell(Behaviour(), settings_of(TlsFiles(files.cert_file, files.key_file))) as target:
        assert ask(target, TlsFiles(ca_file=authority.file)) == b"x"


def test_a_server_takes_changed_files_with_the_next_connection(
    shell: Shell, authority: Authority, tmp_path: Path, at_once: None
) -> None:
    """Connections that stand go on: nobody's call fails because a certificate was renewed."""
    callers = tmp_path / "callers.pem"
    callers.write_bytes(authority.file.read_bytes())
    old, files = authority.write("old-client"), authority.write("server")
    settings = settings_of(TlsFiles(files.cert_file, files.key_file, callers))
    with shell(Behaviour(), settings) as target:
        with grpc.secure_channel(target, channel_credentials(read_tls(old))) as standing:
            assert call(standing, b"x") == b"x"
            next_authority = Authority(tmp_path, "next")
            next_authority.write("server")
            callers.write_bytes(next_authority.file.read_bytes())
            assert ask(target, next_authority.write("new-client")) == b"x"
            with pytest.raises(grpc.RpcError):
                ask(target, TlsFiles(old.cert_file, old.key_file, next_authority.file))
            assert call(standing, b"x") == b"x"


def test_health_alone_is_told_in_plain_text_on_its_own_port(
    shell: Shell, authority: Authority, free_port: int
) -> None:
    settings = settings_of(authority.write("server"), health_port=free_port)
    with shell(Behaviour(), settings), connected(f"127.0.0.1:{free_port}") as channel:
        assert check_health(channel, SERVICE) == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, b"x")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_health_port_tells_of_the_end(
    shell: Shell, authority: Authority, free_port: int
) -> None:
    with shell(Behaviour(), settings_of(authority.write("server"), free_port)):
        channel = grpc.insecure_channel(f"127.0.0.1:{free_port}")
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=TIMEOUT_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    try:
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    except grpc.RpcError as error:
        # The stop may overtake the message: grace is zero here.
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)  # noqa: PT017
    channel.close()


@contextmanager
def store(settings: InProcessSettings) -> Iterator[tuple[str, FakeLatentKV]]:
    """A latent_kv whose watches tell one event and go on."""

    def watch(request: object, context: grpc.ServicerContext) -> Iterator[object]:
        context.send_initial_metadata(WATCH_READY)
        yield eviction_to_message(EVENT)
        over = threading.Event()
        context.add_callback(over.set)
        over.wait(TIMEOUT_S)
        yield eviction_to_message(EVENT)

    servicer = FakeLatentKV(
        DeleteEntries=lambda request, context: deletion(True), WatchEvictions=watch
    )

    def register(server: grpc.Server) -> None:
        latent_kv_pb2_grpc.add_LatentKVServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]

    with in_process_server(Mounted(register, ()), settings) as target:
        yield target, servicer


def test_a_client_shows_its_certificate(authority: Authority) -> None:
    with store(settings_of(authority.write("server"))) as (target, _):
        with LatentKVClient(target, credentials=authority.credentials("client")) as client:
            assert client.delete_entries("ns", ["e"]) == [True]


def test_an_asynchronous_client_shows_its_certificate(authority: Authority) -> None:
    async def main(target: str) -> None:
        credentials = authority.credentials("client")
        async with AsyncLatentKVClient(target, credentials=credentials) as client:
            assert await client.delete_entries("ns", ["e"]) == [True]

    with store(settings_of(authority.write("server"))) as (target, _):
        asyncio.run(main(target))


def test_a_client_refuses_the_server_of_another_authority(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    with store(settings_of(stranger.write("server"))) as (target, servicer):
        with LatentKVClient(target, credentials=authority.credentials("client")) as client:
            with pytest.raises(errors.Unavailable, match="latent_kv at"):
                client.delete_entries("ns", ["e"], timeout_s=2.0)
        assert servicer.requests == []


def test_a_client_refuses_a_server_with_another_name(authority: Authority) -> None:
    credentials = authority.credentials("client")
    named = Credentials(
        credentials.tls_ca_file,
        credentials.tls_cert_file,
        credentials.tls_key_file,
        tls_server_name="latent-kv",
    )
    with store(settings_of(authority.write("server"))) as (target, _):
        with LatentKVClient(target, credentials=named) as client:
            with pytest.raises(errors.Unavailable):
                client.delete_entries("ns", ["e"], timeout_s=2.0)
    with store(settings_of(authority.write("server", host="latent-kv"))) as (target, _):
        with LatentKVClient(target, credentials=named) as client:
            assert client.delete_entries("ns", ["e"]) == [True]


def renew(authority: Authority, folder: Path) -> None:
    """A new authority takes over, for the server and its callers, in the same files."""
    renewed = Authority(folder, "renewed")
    for name in ("server", "client"):
        renewed.write(name)
    authority.file.write_bytes(renewed.file.read_bytes())


def test_a_client_takes_changed_files_and_its_streams_go_on(
    authority: Authority, tmp_path: Path, at_once: None
) -> None:
    with store(settings_of(authority.write("server"))) as (target, _):
        with LatentKVClient(target, credentials=authority.credentials("client")) as client:
            assert client.delete_entries("ns", ["e"]) == [True]
            first = client._connection.channel
            watch = client.watch_evictions("ns")
            assert next(watch) == EVENT
            renew(authority, tmp_path)
            assert client.delete_entries("ns", ["e"]) == [True]
            assert client._connection.channel is not first
            del first
            followed = threading.Thread(target=lambda: list(watch))
            followed.start()
            assert followed.is_alive(), "the stream of the channel before was ended"
        followed.join(TIMEOUT_S)
        assert not followed.is_alive(), "closing the client ends streams of every channel"


def test_an_asynchronous_client_takes_changed_files_and_its_streams_go_on(
    authority: Authority, tmp_path: Path, at_once: None
) -> None:
    async def main(target: str) -> None:
        async with AsyncLatentKVClient(
            target, credentials=authority.credentials("client")
        ) as client:
            assert await client.delete_entries("ns", ["e"]) == [True]
            first = client._connection.channel
            watch = await client.watch_evictions("ns")
            assert await anext(watch) == EVENT
            renew(authority, tmp_path)
            assert await client.delete_entries("ns", ["e"]) == [True]
            assert client._connection.channel is not first
            del first
            following = asyncio.ensure_future(anext(watch, None))
            assert await client.delete_entries("ns", ["e"]) == [True]
            assert not following.done(), "the stream of the channel before was ended"
            await client.close()
            assert await following is None

    with store(settings_of(authority.write("server"))) as (target, _):
        asyncio.run(main(target))


def test_without_a_change_the_channel_stays(authority: Authority, at_once: None) -> None:
    with store(settings_of(authority.write("server"))) as (target, _):
        with LatentKVClient(target, credentials=authority.credentials("client")) as client:
            client.delete_entries("ns", ["e"])
            first = client._connection.channel
            client.delete_entries("ns", ["e"])
            assert client._connection.channel is first
