"""The same promises of both server shells, over the wire: synchronous and `grpc.aio`.

Handlers here take and return raw bytes; the request names what they should do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Protocol

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from skipstone_shared import errors
from skipstone_shared.config import ServiceSettings
from skipstone_shared.grpc_aio_server import AsyncMounted, AsyncServer
from skipstone_shared.grpc_errors import from_rpc_error
from skipstone_shared.grpc_server import InProcessSettings, Mounted, in_process_server
from skipstone_shared.request_context import REQUEST_ID_KEY, current_request_id, remaining_s

SERVICE = "test.Echo"
TIMEOUT_S = 20.0
EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The HTTP/2 frame with which every client begins."""


class Shell(Protocol):
    """Starts a server with the handlers of `Behaviour` and yields its target."""

    def __call__(
        self, behaviour: Behaviour, settings: ServiceSettings | None = None
    ) -> AbstractContextManager[str]: ...


class Behaviour:
    """What the handlers do, told by the request."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self.closed = threading.Event()
        self.stopped: list[str] = []
        self.answered: list[bytes] = []

    def answer(self, request: bytes) -> bytes:
        """Returns an answer or raises what the request asks for."""
        self.answered.append(request)
        if request == b"bad":
            raise errors.InvalidArgument("is bad", field="request", allowed="good")
        if request == b"bug":
            raise ValueError("secret path /etc/shadow")
        if request == b"context":
            return json.dumps([current_request_id(), remaining_s()]).encode()
        return request

    def block(self) -> None:
        """Holds a worker until the test lets go."""
        self.entered.set()
        assert self.release.wait(TIMEOUT_S)


def sync_handlers(behaviour: Behaviour) -> Mapping[str, Any]:
    def call(request: bytes, context: grpc.ServicerContext) -> bytes:
        if request == b"block":
            behaviour.block()
        if request == b"abort":
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "by hand")
        return behaviour.answer(request)

    def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            yield b"first"
            while request == b"endless":
                yield b"more"
            yield behaviour.answer(request)
        finally:
            behaviour.closed.set()

    def collect(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        return b"".join(behaviour.answer(request) for request in requests)

    return {
        "Call": grpc.unary_unary_rpc_method_handler(call),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
    }


def async_handlers(behaviour: Behaviour) -> Mapping[str, Any]:
    async def call(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        if request == b"block":
            await asyncio.to_thread(behaviour.block)
        if request == b"abort":
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "by hand")
        return behaviour.answer(request)

    async def stream(
        request: bytes, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            while request == b"endless":
                yield b"more"
            yield behaviour.answer(request)
        finally:
            behaviour.closed.set()

    async def collect(
        requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> bytes:
        return b"".join([behaviour.answer(request) async for request in requests])

    return {
        "Call": grpc.unary_unary_rpc_method_handler(call),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
    }


def register(handlers: Mapping[str, Any]) -> Callable[[Any], None]:
    generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
    return lambda server: server.add_generic_rpc_handlers((generic,))


@contextmanager
def sync_shell(behaviour: Behaviour, settings: ServiceSettings | None = None) -> Iterator[str]:
    mounted = Mounted(
        register=register(sync_handlers(behaviour)),
        service_names=[SERVICE],
        on_stop=[lambda: 1 / 0, lambda: behaviour.stopped.append("closed")],  # type: ignore[list-item]
    )
    with in_process_server(mounted, settings) as target:
        yield target


@contextmanager
def async_shell(behaviour: Behaviour, settings: ServiceSettings | None = None) -> Iterator[str]:
    """Runs the loop in a thread, so that the same blocking tests drive both shells."""

    async def fail() -> None:
        raise ZeroDivisionError

    async def close() -> None:
        behaviour.stopped.append("closed")

    async def run(target: Future[str], stop: Future[asyncio.Event]) -> None:
        mounted = AsyncMounted(register(async_handlers(behaviour)), [SERVICE], [fail, close])
        server = AsyncServer(settings or InProcessSettings(), mounted)
        event = asyncio.Event()
        target.set_result(await server.start())
        stop.set_result(event)
        await event.wait()
        await server.drain(0.0)

    target: Future[str] = Future()
    stop: Future[asyncio.Event] = Future()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(target, stop),))
    thread.start()
    try:
        yield target.result(TIMEOUT_S)
    finally:
        loop.call_soon_threadsafe(stop.result(TIMEOUT_S).set)
        thread.join(TIMEOUT_S)
        loop.close()


@pytest.fixture(params=[sync_shell, async_shell], ids=["sync", "aio"])
def shell(request: pytest.FixtureRequest) -> Shell:
    found: Shell = request.param
    return found


@pytest.fixture
def behaviour() -> Iterator[Behaviour]:
    made = Behaviour()
    yield made
    made.release.set()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def connected(target: str) -> Iterator[grpc.Channel]:
    with closing(grpc.insecure_channel(target)) as channel:
        yield channel


def call(channel: grpc.Channel, request: bytes, **kwargs: Any) -> bytes:
    answer: bytes = channel.unary_unary(f"/{SERVICE}/Call")(request, timeout=TIMEOUT_S, **kwargs)
    return answer


def test_an_error_arrives_as_itself(shell: Shell, behaviour: Behaviour) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, b"bad")
    error = from_rpc_error(caught.value)
    assert type(error) is errors.InvalidArgument
    assert (error.field, error.allowed) == ("request", "good")


def test_an_error_in_the_middle_of_a_stream_arrives_as_itself(
    shell: Shell, behaviour: Behaviour
) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        responses = channel.unary_stream(f"/{SERVICE}/Stream")(b"bad", timeout=TIMEOUT_S)
        assert next(responses) == b"first"
        with pytest.raises(grpc.RpcError) as caught:
            next(responses)
    assert type(from_rpc_error(caught.value)) is errors.InvalidArgument


def test_an_error_while_reading_a_stream_arrives_as_itself(
    shell: Shell, behaviour: Behaviour
) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        collect = channel.stream_unary(f"/{SERVICE}/Collect")
        assert collect(iter([b"a", b"b"]), timeout=TIMEOUT_S) == b"ab"
        with pytest.raises(grpc.RpcError) as caught:
            collect(iter([b"a", b"bad"]), timeout=TIMEOUT_S)
    assert type(from_rpc_error(caught.value)) is errors.InvalidArgument


def test_a_bug_is_logged_and_its_text_does_not_leave_the_server(
    shell: Shell, behaviour: Behaviour
) -> None:
    with (
        structlog.testing.capture_logs() as logs,
        shell(behaviour) as target,
        connected(target) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        call(channel, b"bug", metadata=[(REQUEST_ID_KEY, "r1")])
    error = from_rpc_error(caught.value)
    assert type(error) is errors.Internal
    assert "secret" not in str(error)
    assert "r1" in str(error)
    assert any("secret" in str(line.get("exc_info")) for line in logs)


def test_a_handler_may_abort_by_hand(shell: Shell, behaviour: Behaviour) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, b"abort")
    assert str(from_rpc_error(caught.value)) == "by hand"
    assert type(from_rpc_error(caught.value)) is errors.AlreadyExists


def test_the_handler_knows_the_request_and_how_long_it_may_take(
    shell: Shell, behaviour: Behaviour
) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        answer = call(channel, b"context", metadata=[(REQUEST_ID_KEY, "r1")])
        request_id, left = json.loads(answer)
        assert request_id == "r1"
        assert 0 < left <= TIMEOUT_S + 1  # gRPC rounds the deadline on the wire
        fresh_id, _ = json.loads(call(channel, b"context"))
    assert fresh_id
    assert fresh_id != "r1"


def test_a_call_without_a_deadline_has_none(shell: Shell, behaviour: Behaviour) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        _, left = json.loads(channel.unary_unary(f"/{SERVICE}/Call")(b"context"))
    assert left is None


def test_every_rpc_is_one_line_with_code_and_time(shell: Shell, behaviour: Behaviour) -> None:
    with structlog.testing.capture_logs() as logs, shell(behaviour) as target:
        with connected(target) as channel:
            call(channel, b"x", metadata=[(REQUEST_ID_KEY, "r1")])
            list(channel.unary_stream(f"/{SERVICE}/Stream")(b"x", timeout=TIMEOUT_S))
            with pytest.raises(grpc.RpcError):
                call(channel, b"bad")
            check_health(channel, SERVICE)
    found = [line for line in logs if line["event"] == "rpc"]
    assert [(line["rpc"], line["code"]) for line in found] == [
        (f"/{SERVICE}/Call", "OK"),
        (f"/{SERVICE}/Stream", "OK"),
        (f"/{SERVICE}/Call", "INVALID_ARGUMENT"),
    ]
    assert found[0]["request_id"] == "r1"
    assert all(line["duration_ms"] >= 0 for line in found)


def test_a_stream_whose_caller_went_away_is_closed(shell: Shell, behaviour: Behaviour) -> None:
    """Otherwise an executor would go on denoising for nobody."""
    with structlog.testing.capture_logs() as logs, shell(behaviour) as target:
        with connected(target) as channel:
            responses = channel.unary_stream(f"/{SERVICE}/Stream")(b"endless", timeout=TIMEOUT_S)
            assert next(responses) == b"first"
            responses.cancel()
            assert behaviour.closed.wait(TIMEOUT_S)
    assert [line["code"] for line in logs if line["event"] == "rpc"] == ["CANCELLED"]


def check_health(channel: grpc.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=TIMEOUT_S).status)


@pytest.mark.parametrize("service", ["", SERVICE])
def test_health_says_serving(shell: Shell, behaviour: Behaviour, service: str) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        assert check_health(channel, service) == health_pb2.HealthCheckResponse.SERVING


def test_health_answers_while_every_worker_is_busy(shell: Shell, behaviour: Behaviour) -> None:
    """A probe behind a long denoise would have the pod killed for working."""
    with shell(behaviour, InProcessSettings(max_workers=1)) as target:
        with connected(target) as channel:
            busy = channel.unary_unary(f"/{SERVICE}/Call").future(b"block", timeout=TIMEOUT_S)
            assert behaviour.entered.wait(TIMEOUT_S)
            assert check_health(channel, SERVICE) == health_pb2.HealthCheckResponse.SERVING
            behaviour.release.set()
            assert busy.result(TIMEOUT_S) == b"block"


def test_a_caller_that_is_gone_without_a_word_is_let_go(
    shell: Shell, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine lost power: nothing closes the connection, and its streams hold threads."""
    monkeypatch.setattr("skipstone_shared.grpc_server._PING_AFTER_MS", 100)
    monkeypatch.setattr("skipstone_shared.grpc_server._PING_TIMEOUT_MS", 100)
    with shell(behaviour) as target:
        host, _, port = target.partition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + EMPTY_SETTINGS)
            received = b""
            while data := connection.recv(4096):
                received += data
    assert b"ping_timeout" in received


def test_a_waiting_request_whose_caller_went_away_is_not_worked_on(behaviour: Behaviour) -> None:
    """Only synchronous servers have a queue in front of their workers."""
    with sync_shell(behaviour, InProcessSettings(max_workers=1)) as target:
        with connected(target) as channel:
            busy = channel.unary_unary(f"/{SERVICE}/Call").future(b"block", timeout=TIMEOUT_S)
            assert behaviour.entered.wait(TIMEOUT_S)
            waiting = channel.unary_unary(f"/{SERVICE}/Call").future(b"waits", timeout=TIMEOUT_S)
            check_health(channel, SERVICE)  # on the same connection: the request has arrived
            waiting.cancel()
            check_health(channel, SERVICE)  # and now the cancellation too
            behaviour.release.set()
            busy.result(TIMEOUT_S)
            assert call(channel, b"next") == b"next"
    assert behaviour.answered == [b"block", b"next"]


def test_a_health_watch_is_told_of_the_end(shell: Shell, behaviour: Behaviour) -> None:
    with shell(behaviour) as target:
        channel = grpc.insecure_channel(target)
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=TIMEOUT_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    try:
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    except grpc.RpcError as error:
        # The stop may overtake the message: grace is zero here.
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)  # noqa: PT017
    channel.close()


def test_what_the_service_opened_is_closed_even_when_one_step_fails(
    shell: Shell, behaviour: Behaviour
) -> None:
    with shell(behaviour):
        assert behaviour.stopped == []
    assert behaviour.stopped == ["closed"]


def test_reflection_lists_the_service(shell: Shell, behaviour: Behaviour) -> None:
    with shell(behaviour) as target, connected(target) as channel:
        services = list(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert SERVICE in services
    assert "grpc.health.v1.Health" in services


def test_a_taken_port_is_refused(shell: Shell, behaviour: Behaviour) -> None:
    """With port sharing on, two servers would get half of the calls each."""
    with shell(behaviour) as target:
        port = int(target.rpartition(":")[2])
        mounted = Mounted(register(sync_handlers(Behaviour())), [SERVICE])
        with (
            pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"),
            in_process_server(mounted, InProcessSettings(port=port)),
        ):
            pass


def test_metrics_count_rpcs_by_code(shell: Shell, behaviour: Behaviour, free_port: int) -> None:
    with shell(behaviour, InProcessSettings(metrics_port=free_port)) as target:
        with connected(target) as channel:
            call(channel, b"x")
            with pytest.raises(grpc.RpcError):
                call(channel, b"bad")
        with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics") as page:
            text = page.read().decode()
    assert f'skipstone_rpcs_total{{code="OK",method="/{SERVICE}/Call"}} 1.0' in text
    assert f'skipstone_rpcs_total{{code="INVALID_ARGUMENT",method="/{SERVICE}/Call"}} 1.0' in text
    assert "skipstone_rpc_seconds_bucket" in text
