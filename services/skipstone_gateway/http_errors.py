"""Errors as HTTP answers, in the form that OpenAI's clients read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from skipstone_shared import errors
from skipstone_shared.structured_logging import get_logger

_CLOSED_BY_CALLER = 499
"""nginx's code; nobody reads it but the log."""

STATUS: Mapping[type[errors.SkipstoneError], int] = MappingProxyType(
    {
        errors.InvalidArgument: 400,
        errors.Unauthenticated: 401,
        errors.PermissionDenied: 403,
        errors.NotFound: 404,
        errors.AlreadyExists: 409,
        errors.FailedPrecondition: 409,
        errors.Aborted: 409,
        errors.ResourceExhausted: 429,
        errors.Cancelled: _CLOSED_BY_CALLER,
        errors.DataCorrupt: 500,
        errors.Internal: 500,
        errors.Unimplemented: 501,
        errors.Unavailable: 503,
        errors.DeadlineExceeded: 504,
    }
)
"""HTTP status by class of error; a subclass has that of its nearest base."""

_RETRY_AFTER_S = 1
_WORTH_A_RETRY = (429, 503)


def status_of(error: errors.SkipstoneError) -> int:
    """HTTP status of an error."""
    return next(STATUS[base] for base in type(error).__mro__ if base in STATUS)


def error_body(error: errors.SkipstoneError) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    status = status_of(error)
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    told = {"message": error.message, "type": kind, "param": error.field, "code": error.reason}
    return {"error": told}


def answer(error: errors.SkipstoneError) -> JSONResponse:
    """The answer that tells an error."""
    status = status_of(error)
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if status in _WORTH_A_RETRY else None
    if status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return JSONResponse(error_body(error), status, headers)


async def on_skipstone_error(request: Request, error: Exception) -> JSONResponse:
    """Answers with an error of ours."""
    assert isinstance(error, errors.SkipstoneError)
    return answer(error)


async def on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Answers to a body that is not what its model says, by the first field at fault."""
    assert isinstance(error, RequestValidationError)
    return answer(invalid(error.errors()))


async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Answers to a path or method that there is not."""
    assert isinstance(error, HTTPException)
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    told = {"message": str(error.detail), "type": kind, "param": None, "code": None}
    return JSONResponse({"error": told}, error.status_code, dict(error.headers or {}))


async def on_bug(request: Request, error: Exception) -> JSONResponse:
    """Answers to what nobody expected; its text stays in the log."""
    get_logger().error("unhandled exception", path=request.url.path, exc_info=error)
    return answer(errors.Internal("internal error, the gateway's log has it"))


def invalid(problems: Sequence[Mapping[str, Any]]) -> errors.InvalidArgument:
    """The error of a body that pydantic refuses: field, what it is, what is allowed."""
    problem = problems[0]
    place = [str(part) for part in problem["loc"] if part != "body"]
    context = problem.get("ctx", {})
    unknown = context.get("name") if problem["type"] == "extra_forbidden" else None
    field = ".".join([*place, unknown] if unknown else place) or "body"
    if unknown:
        nearest = difflib.get_close_matches(unknown, context["known"], 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        return errors.InvalidArgument(f"{field} is not known{hint}", field=field)
    return errors.InvalidArgument(f"{field}: {problem['msg']}", field=field)
