"""Milvus' errors as Skipstone's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymilvus.exceptions import ErrorCode, MilvusException

from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)

NOT_LOADED = 101
"""Code of a collection that cannot be searched, until Milvus has loaded it (again)."""

CONNECT_FAILED = 2
"""Code of pymilvus where nobody answers."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises Skipstone's errors for those of Milvus that an operator or caller can mend."""
    try:
        yield
    except MilvusException as error:
        raise (_meaning(error.code, error.message) or error) from error
    except Exception as error:
        # gRPC's own, which this file may not import.
        code = getattr(error, "code", None)
        if not callable(code):
            raise
        raise (_meaning(code(), getattr(error, "details", lambda: "")()) or error) from error


def _meaning(code: Any, text: str) -> SkipstoneError | None:
    word = getattr(code, "name", "")
    told = f"milvus: {text}"
    if word == "DEADLINE_EXCEEDED":
        return DeadlineExceeded(told)
    if word in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return FailedPrecondition("milvus refuses user or password of url", field="url")
    if word == "RESOURCE_EXHAUSTED" or code in (ErrorCode.RATE_LIMIT, ErrorCode.FORCE_DENY):
        return ResourceExhausted(told)
    # NOT_LOADED: after a start, until Milvus has loaded the collection again.
    if word == "UNAVAILABLE" or code in (CONNECT_FAILED, NOT_LOADED):
        return Unavailable(told)
    return None
