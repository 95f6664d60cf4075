"""Tokens on a real wire: both server shells, both kinds of clients, every kind of rpc."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
import structlog
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from structlog.testing import LogCapture
from tests.contract.test_server_shell import SERVICE, TIMEOUT_S, check_health, connected

from skipstone.latent_kv.v1 import latent_kv_pb2 as kv_pb
from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone.orchestrator.v1 import orchestrator_pb2_grpc
from skipstone_client import LatentKVClient, OrchestratorClient, VectorIndexClient
from skipstone_client.aio import AsyncLatentKVClient, AsyncOrchestratorClient
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount
from skipstone_shared import reloaded
from skipstone_shared.access import token_hash
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import (
    EntryNotFound,
    PermissionDenied,
    SkipstoneError,
    Unauthenticated,
)
from skipstone_shared.grpc_aio_server import AsyncMounted, in_process_async_server
from skipstone_shared.grpc_errors import from_rpc_error
from skipstone_shared.grpc_server import InProcessSettings, in_process_server
from skipstone_shared.latents import SnapshotMetadata
from skipstone_shared.orchestration import GenerateStarted

KEY = "0123456789abcdef0123456789abcdef"
CALLERS = {
    "painter": ("gallery", ["generate"]),
    "reader": ("gallery", ["read"]),
    "writer": ("gallery", ["read", "write"]),
    "neighbour": ("museum", ["generate", "read", "write", "admin"]),
    "root": ("*", ["generate", "read", "write", "admin"]),
}


def token_of(name: str) -> str:
    return f"sks_of_{name}"


def credentials(name: str) -> Credentials:
    return Credentials(token=token_of(name))


@pytest.fixture
def access_file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(
        "\n".join(
            f"[{name}]\ntokens = ['{token_hash(token_of(name))}']\n"
            f"namespaces = ['{namespace}']\nrights = {json.dumps(rights)}"
            for name, (namespace, rights) in CALLERS.items()
        )
    )
    return path


@pytest.fixture
def store(access_file: Path) -> Iterator[str]:
    """A real latent_kv that asks for tokens."""
    kept = MemoryStore()
    settings = InProcessSettings(access_file=access_file)
    with in_process_server(mount(kept, on_stop=[kept.close]), settings) as target:
        yield target


def write(client: LatentKVClient, namespace: str, entry_id: str) -> None:
    head = SnapshotMetadata(entry_id, 1, 2, 0.5, KEY, ())
    client.write_arrays(namespace, head, {"latents": np.zeros((1, 4), np.float32)})
    client.commit_entry(namespace, entry_id)


def test_who_has_the_right_is_served_in_their_namespace(store: str) -> None:
    with LatentKVClient(store, credentials=credentials("writer")) as client:
        write(client, "gallery", "e")
        assert client.get_entry("gallery", "e").committed


def test_without_a_token_nobody_is_served(store: str) -> None:
    with LatentKVClient(store) as client, pytest.raises(Unauthenticated, match="token is needed"):
        client.get_entry("gallery", "e")
    with LatentKVClient(store, credentials=Credentials(token="guess")) as client:
        with pytest.raises(Unauthenticated, match="not known"):
            client.get_capabilities()


def test_a_right_that_is_lacking_is_named(store: str) -> None:
    with LatentKVClient(store, credentials=credentials("reader")) as client:
        with pytest.raises(PermissionDenied, match="the right write"):
            client.delete_entries("gallery", ["e"])
        with pytest.raises(PermissionDenied, match="the right write"):
            write(client, "gallery", "e")
        with pytest.raises(PermissionDenied, match="the right admin"):
            client.delete_namespace("gallery")


def test_another_namespace_answers_the_same_with_and_without_the_entry(store: str) -> None:
    """Not even whether an entry exists may be learned."""
    with LatentKVClient(store, credentials=credentials("writer")) as client:
        write(client, "gallery", "e")
    told = set()
    with LatentKVClient(store, credentials=credentials("neighbour")) as client:
        for entry_id in ("e", "nothing"):
            with pytest.raises(PermissionDenied) as caught:
                client.get_entry("gallery", entry_id)
            told.add(str(caught.value))
            with pytest.raises(EntryNotFound):
                client.get_entry("museum", entry_id)
    assert len(told) == 1


def test_a_stream_of_requests_is_refused_by_its_first(store: str) -> None:
    with LatentKVClient(store, credentials=credentials("neighbour")) as client:
        with pytest.raises(PermissionDenied, match="'gallery'"):
            write(client, "gallery", "e")
    with LatentKVClient(store, credentials=credentials("root")) as client:
        with pytest.raises(EntryNotFound):
            client.get_entry("gallery", "e")


def test_all_evictions_are_told_to_those_with_all_namespaces_alone(store: str) -> None:
    with LatentKVClient(store, credentials=credentials("reader")) as client:
        with pytest.raises(PermissionDenied, match="all namespaces"):
            client.watch_evictions("")
        client.watch_evictions("gallery").close()
    with LatentKVClient(store, credentials=credentials("root")) as client:
        client.watch_evictions("").close()


def test_a_reference_into_another_namespace_is_refused(store: str) -> None:
    with connected(store) as channel:
        read = channel.unary_stream(
            "/skipstone.latent_kv.v1.LatentKV/ReadLatent",
            request_serializer=kv_pb.ReadLatentRequest.SerializeToString,
        )
        request = kv_pb.ReadLatentRequest(namespace="museum")
        request.ref.namespace = "gallery"
        metadata = (("authorization", f"Bearer {token_of('neighbour')}"),)
        with pytest.raises(grpc.RpcError) as caught:
            list(read(request, timeout=TIMEOUT_S, metadata=metadata))
    assert isinstance(from_rpc_error(caught.value), PermissionDenied)


def test_health_needs_no_token_and_the_other_admin_services_do(store: str) -> None:
    with connected(store) as channel:
        assert check_health(channel, "") == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            list(ProtoReflectionDescriptorDatabase(channel).get_services())
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        servers = channel.unary_unary("/grpc.channelz.v1.Channelz/GetServers")
        for name, code in (("neighbour", grpc.StatusCode.PERMISSION_DENIED), ("root", None)):
            metadata = (("authorization", f"Bearer {token_of(name)}"),)
            if code is None:
                servers(b"", timeout=TIMEOUT_S, metadata=metadata)
                continue
            with pytest.raises(grpc.RpcError) as caught:
                servers(b"", timeout=TIMEOUT_S, metadata=metadata)
            assert caught.value.code() is code


def test_the_log_names_the_caller_and_never_the_token(store: str) -> None:
    logged = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, logged])
    try:
        with LatentKVClient(store, credentials=credentials("reader")) as client:
            client.get_stats("gallery")
        with LatentKVClient(store, credentials=Credentials(token="sks_guess")) as client:
            with pytest.raises(Unauthenticated):
                client.get_stats("gallery")
    finally:
        structlog.configure(**before)
    lines = [line for line in logged.entries if line["event"] == "rpc"]
    assert [line["caller"] for line in lines] == ["reader", "unknown"]
    assert "sks_" not in repr(logged.entries)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at with every call."""
    monkeypatch.setattr(reloaded, "CHECK_INTERVAL_S", 0.0)


def test_a_token_that_is_taken_away_stops_to_work(
    at_once: None, store: str, access_file: Path
) -> None:
    with LatentKVClient(store, credentials=credentials("reader")) as client:
        client.get_stats("gallery")
        access_file.write_text(access_file.read_text().replace("reader", "READER"))
        client.get_stats("gallery")
        old, new = token_hash(token_of("reader")), token_hash("another")
        access_file.write_text(access_file.read_text().replace(old, new))
        with pytest.raises(Unauthenticated):
            client.get_stats("gallery")


def test_a_token_file_that_changes_is_sent_anew(at_once: None, store: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token_of("neighbour"))
    with LatentKVClient(store, credentials=Credentials(token_file=path)) as client:
        with pytest.raises(PermissionDenied):
            client.get_stats("gallery")
        path.write_text(token_of("reader"))
        assert client.get_stats("gallery").entry_count == 0


def test_callers_who_share_a_connection_have_their_own_rights_and_end_nobodys_calls(
    store: str,
) -> None:
    async def run() -> None:
        async with AsyncLatentKVClient(store, credentials=credentials("root")) as root:
            watching = await root.watch_evictions("")
            for number in range(200):
                with pytest.raises(Unauthenticated):
                    await root.with_token(f"guess-{number}").get_stats("gallery")
            reader, neighbour = (
                root.with_token(token_of("reader")),
                root.with_token(token_of("neighbour")),
            )
            assert (await reader.get_stats("gallery")).entry_count == 0
            with pytest.raises(PermissionDenied):
                await neighbour.get_stats("gallery")
            assert (await root.get_stats("museum")).entry_count == 0
            head = SnapshotMetadata("e", 1, 2, 0.5, KEY, ())
            await root.write_arrays("gallery", head, {"latents": np.zeros((1, 4), np.float32)})
            await root.commit_entry("gallery", "e")
            await root.delete_entries("gallery", ["e"])
            assert (await asyncio.wait_for(anext(watching), 30.0)).entry_id == "e"
            watching.close()

    asyncio.run(run())


class Orchestrator(orchestrator_pb2_grpc.OrchestratorServicer):
    """Answers whoever is let in."""

    async def Generate(self, request: pb.GenerateRequest, context: object) -> object:
        yield pb.GenerateResponse(started=pb.GenerateStarted(tier=pb.HIT_TIER_MISS))

    async def GetEntry(self, request: pb.GetEntryRequest, context: object) -> Message:
        return pb.GetEntryResponse(entry=pb.Entry(entry_id=request.entry_id))


def test_an_asynchronous_server_asks_for_tokens_too(access_file: Path) -> None:
    async def generate(client: AsyncOrchestratorClient, namespace: str) -> None:
        async with aclosing(client.generate_stream("a stone", namespace=namespace)) as events:
            assert isinstance(await anext(events), GenerateStarted)

    async def told(target: str, name: str, namespace: str) -> list[str]:
        async with AsyncOrchestratorClient(target, credentials=credentials(name)) as client:
            answers = []
            for call in (client.get_entry("e", namespace), generate(client, namespace)):
                try:
                    await call
                    answers.append("served")
                except SkipstoneError as error:
                    answers.append(error.reason)
        return answers

    async def main() -> None:
        mounted = AsyncMounted(
            lambda server: orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(
                Orchestrator(), server
            ),
            [SERVICE],
        )
        settings = InProcessSettings(access_file=access_file)
        denied = "PERMISSION_DENIED"
        async with in_process_async_server(mounted, settings) as target:
            assert await told(target, "painter", "gallery") == [denied, "served"]
            assert await told(target, "reader", "gallery") == ["served", denied]
            assert await told(target, "neighbour", "gallery") == [denied, denied]
            assert await told(target, "root", "anything") == ["served", "served"]
            assert await told(target, "nobody", "gallery") == ["UNAUTHENTICATED"] * 2

    asyncio.run(main())


@contextmanager
def warnings_of(host: str, **settings: object) -> Iterator[list[str]]:
    logged = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[logged])
    kept = MemoryStore()
    found: list[str] = []
    try:
        with in_process_server(
            mount(kept, on_stop=[kept.close]),
            InProcessSettings(host=host, **settings),  # type: ignore[arg-type]
        ):
            found += [str(line) for line in logged.entries if line["log_level"] == "warning"]
            yield found
    finally:
        structlog.configure(**before)


def test_a_server_that_others_reach_unprotected_says_so_once() -> None:
    with warnings_of("0.0.0.0") as found:
        assert len(found) == 1
        assert "UNPROTECTED" in found[0]
        assert "tls_cert_file" in found[0]
        assert "access_file" in found[0]


def test_a_server_on_loopback_says_nothing() -> None:
    with warnings_of("127.0.0.1") as found:
        assert found == []


def test_a_token_sent_in_plain_text_to_another_machine_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    VectorIndexClient("index.example:50052", credentials=credentials("root")).close()
    assert "in plain text" in caplog.text
    assert token_of("root") not in caplog.text


def test_credentials_of_a_client_on_this_machine_are_not_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    OrchestratorClient("127.0.0.1:50050", credentials=credentials("root")).close()
    assert caplog.text == ""
