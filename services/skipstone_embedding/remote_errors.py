"""What goes wrong with a remote service, as errors of Skipstone."""

from __future__ import annotations

import email.utils
import json
import time

import httpx

from skipstone_shared.errors import (
    FailedPrecondition,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)

_REFUSALS = {400, 413, 422}
"""Statuses that are about what was sent: too long, too many, not readable."""

_CREDENTIALS = {401, 403}

_MAX_QUOTED = 200
"""Characters of a service's own words in an error."""


class RemoteRefused(FailedPrecondition):
    """The service does not take this request, as it stands; another one it may."""


def is_worth_a_retry(error: BaseException, deadline: float) -> bool:
    """Whether the same request may succeed before the deadline (on the monotonic clock)."""
    if not isinstance(error, Unavailable | ResourceExhausted):
        return False
    return time.monotonic() + (error.retry_after_s or 0.0) < deadline


def nothing_at(where: str, error: httpx.TransportError) -> Unavailable:
    """The error of a connection that fails. httpx words it; it never holds headers."""
    return Unavailable(f"{where} failed: {str(error) or type(error).__name__}")


def error_of_response(where: str, response: httpx.Response, content: bytes) -> SkipstoneError:
    """The error of an answer that is none.

    Args:
        where: Method and URL.
        response: Status and headers.
        content: Body.
    """
    status = response.status_code
    told = f"{where} answered {status}"
    if status in _CREDENTIALS:
        # The body is left out: some services repeat parts of the key in it.
        return FailedPrecondition(f"{told}: the API key is missing, wrong or may not do this")
    words = _words(content)
    if words:
        told += f": {words}"
    if status in _REFUSALS:
        return RemoteRefused(told)
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return ResourceExhausted(told, retry_after_s=_retry_after_s(response))
    if status >= httpx.codes.INTERNAL_SERVER_ERROR or status == httpx.codes.FAILED_DEPENDENCY:
        return Unavailable(told, retry_after_s=_retry_after_s(response))
    return FailedPrecondition(f"{told}; check the URL and the model's name")


def _words(content: bytes) -> str:
    """What the service says of its error, in one line; empty when it says nothing readable."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    found = document.get("error", document) if isinstance(document, dict) else None
    if isinstance(found, dict):
        found = found.get("message") or found.get("detail")
    if not isinstance(found, str):
        return ""
    line = " ".join(found.split())
    return line if len(line) <= _MAX_QUOTED else line[:_MAX_QUOTED] + "..."


def _retry_after_s(response: httpx.Response) -> float | None:
    """Seconds of the header Retry-After: a number, or a date (RFC 9110, section 10.2.3)."""
    value = response.headers.get("retry-after", "").strip()
    if value.isdecimal() and value.isascii():
        return float(value[:9])
    try:
        until = email.utils.parsedate_to_datetime(value)
        return max(0.0, until.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
