"""The request that the current code works for: its id and how much time it has left.

A server interceptor binds both for each rpc; clients send them on, so that one id follows a request
through all services and nobody works past the caller's deadline. Both live in context variables:
asyncio tasks inherit them, new threads do not (use `contextvars.copy_context().run`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from skipstone_shared.tracing import TRACEPARENT_KEY, outgoing_traceparent

REQUEST_ID_KEY = "x-skipstone-request-id"
"""Metadata key of the request id."""

_MAX_ID_LENGTH = 128

_request_id: ContextVar[str | None] = ContextVar("skipstone_request_id", default=None)
_deadline: ContextVar[float | None] = ContextVar("skipstone_deadline", default=None)


def new_request_id() -> str:
    """Returns a fresh id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def current_request_id() -> str | None:
    """Returns the id of the request being worked on, None outside of one."""
    return _request_id.get()


def remaining_s() -> float | None:
    """Returns the seconds left to the request, at least 0; None when it has no deadline."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def call_timeout_s(limit_s: float | None = None) -> float | None:
    """Returns the timeout for an outgoing call: the lower of `limit_s` and what is left."""
    left = remaining_s()
    if left is None or limit_s is None:
        return limit_s if left is None else left
    return min(limit_s, left)


def outgoing_metadata(extra: Sequence[tuple[str, str]] = ()) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of an outgoing call: the current request id (or a new one), `extra`.

    In a trace its place in it comes too.
    """
    request_id = (REQUEST_ID_KEY, current_request_id() or new_request_id())
    traceparent = outgoing_traceparent()
    if traceparent is None:
        return (request_id, *extra)
    return (request_id, (TRACEPARENT_KEY, traceparent), *extra)


def read_request_id(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    """Returns the id a caller sent, or a new one when it is absent, empty or too long."""
    for key, value in metadata:
        if key == REQUEST_ID_KEY and isinstance(value, str) and 0 < len(value) <= _MAX_ID_LENGTH:
            return value
    return new_request_id()


def bind_request(request_id: str, timeout_s: float | None) -> None:
    """Makes this the current request until the context ends. For server interceptors.

    Args:
        request_id: Its id.
        timeout_s: Seconds left to it, None for no deadline.
    """
    _request_id.set(request_id)
    _deadline.set(None if timeout_s is None else time.monotonic() + timeout_s)


def clear_deadline() -> None:
    """Takes the deadline off until the context ends. For work that goes on when the caller left."""
    _deadline.set(None)


@contextmanager
def request_scope(request_id: str | None = None, timeout_s: float | None = None) -> Iterator[str]:
    """Works on one request inside the block and yields its id. For programs that start requests."""
    request_id = request_id or new_request_id()
    id_token, deadline_token = _request_id.set(request_id), _deadline.set(_deadline.get())
    bind_request(request_id, timeout_s)
    try:
        yield request_id
    finally:
        _request_id.reset(id_token)
        _deadline.reset(deadline_token)
