"""What a stub raised -> the exception that a local object would have raised."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import grpc

from skipstone_shared.errors import (
    Cancelled,
    DeadlineExceeded,
    Internal,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
    Unimplemented,
)
from skipstone_shared.grpc_errors import from_rpc_error

ErrorT = TypeVar("ErrorT", bound=SkipstoneError)


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """Who is called: short name of the service, and gRPC target."""

    service: str
    target: str

    def __str__(self) -> str:
        return f"{self.service} at {self.target}"


_OF_THE_WAY = (Cancelled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable, Unimplemented)
"""Errors that the way to the service may have caused, or its state. They say which service it was;
errors about the call itself are the same words from a local and from a remote object."""

_GRPC_DEADLINE_TEXTS = ("Deadline Exceeded", "Stream removed (Deadline Exceeded)")
"""What gRPC itself says when no answer came in time, before the connection stood or after."""

_GRPC_NO_METHOD_TEXT = "Method not found!"
"""What a gRPC server in Python says of a call that it does not have."""


def decoded(error: grpc.RpcError, peer: Peer, timeout_s: float | None) -> SkipstoneError:
    """The exception behind an rpc error, for ``raise ... from error``.

    Args:
        error: What the stub raised.
        peer: Who was called.
        timeout_s: Timeout of the call.
    """
    result = from_rpc_error(error)
    if result.message in _GRPC_DEADLINE_TEXTS and timeout_s is not None:
        result = deadline_exceeded(timeout_s)
    if result.message == _GRPC_NO_METHOD_TEXT:
        result = Unimplemented(f"what listens there is no {peer.service}, or an older version")
    if isinstance(result, _OF_THE_WAY):
        return on_the_way(result, peer)
    return result


def on_the_way(error: ErrorT, peer: Peer) -> ErrorT:
    """The error, with the service it came from in its stage and its text."""
    error.stage = error.stage or peer.service
    return error.came_from(str(peer))


def deadline_exceeded(timeout_s: float) -> DeadlineExceeded:
    """The error for no answer in time."""
    return DeadlineExceeded(f"no answer within {timeout_s:.3g} s")


def closed(service: str) -> Unavailable:
    """The error of a client that was closed, by this thread or another."""
    return Unavailable(f"the client of {service} is closed")
