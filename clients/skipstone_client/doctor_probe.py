"""Asks one service whether it serves, which version it runs and what time it has."""

from __future__ import annotations

import time
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from skipstone_client._channel import Service
from skipstone_client._channel_access import ChannelAccess
from skipstone_client.doctor_facts import Condition, ServiceFacts
from skipstone_shared.credentials import Credentials
from skipstone_shared.grpc_server_facts import read_server_facts

_SERVING = health_pb2.HealthCheckResponse.SERVING
_TLS_WORDS = ("ssl", "tls", "certificate", "handshake")
_BY_CODE = {
    grpc.StatusCode.UNAVAILABLE: Condition.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: Condition.HANGING,
    grpc.StatusCode.UNAUTHENTICATED: Condition.REFUSED,
    grpc.StatusCode.PERMISSION_DENIED: Condition.REFUSED,
}


def probe(
    service: Service, target: str, credentials: Credentials | None, timeout_s: float
) -> ServiceFacts:
    """Asks for health, then for capabilities. Takes `timeout_s` at most, whatever the service does.

    Raises:
        InvalidArgument: A file of the credentials cannot be used.
    """
    access = ChannelAccess(target, service, credentials)
    secure, options = access.channel_credentials(), access.options()
    opened = (
        grpc.insecure_channel(target, options)
        if secure is None
        else grpc.secure_channel(target, secure, options)
    )
    deadline = time.monotonic() + timeout_s
    with opened as channel:
        try:
            return _asked(channel, access, service, target, deadline)
        except grpc.RpcError as error:
            condition, told = _failure(error)
            return ServiceFacts(service.name, target, condition, told)


def _asked(
    channel: grpc.Channel, access: ChannelAccess, service: Service, target: str, deadline: float
) -> ServiceFacts:
    stub: Any = health_pb2_grpc.HealthStub(channel)  # its methods are not in the type stubs
    request = health_pb2.HealthCheckRequest(service=service.full_name)
    answer = stub.Check(request, timeout=deadline - time.monotonic())
    if answer.status != _SERVING:
        return ServiceFacts(
            service.name, target, Condition.NOT_SERVING, "it is starting or shutting down"
        )
    # Of any service: its request is empty, and what matters comes beside the answer.
    method: Any = channel.unary_unary(f"/{service.full_name}/GetCapabilities")
    asked_at = time.time()
    _, call = method.with_call(b"", timeout=deadline - time.monotonic(), metadata=access.metadata())
    answered_at = time.time()
    told = read_server_facts(dict(call.trailing_metadata()))
    ends, clock_s = told.certificates_end_s, told.clock_s
    return ServiceFacts(
        service.name,
        target,
        Condition.SERVING,
        version=told.version,
        clock_offset_s=None if clock_s is None else clock_s - (asked_at + answered_at) / 2,
        answer_s=answered_at - asked_at,
        disk_free_bytes=told.disk_free_bytes,
        disk_size_bytes=told.disk_size_bytes,
        certificates_left_s={name: ends[name] - answered_at for name in ends},
    )


def _failure(error: Any) -> tuple[Condition, str]:
    code, details = error.code(), str(error.details() or "")
    lower = details.lower()
    if code is grpc.StatusCode.UNAVAILABLE and any(word in lower for word in _TLS_WORDS):
        return Condition.TLS, details
    return _BY_CODE.get(code, Condition.FAILING), f"{code.name}: {details}"
