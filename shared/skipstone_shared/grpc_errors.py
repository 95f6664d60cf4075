"""The one table between exceptions and gRPC status codes, and both directions over the wire.

On the wire an error is a `google.rpc.Status` with an `ErrorInfo` (domain `skipstone`, the class's
`reason`, metadata `field`, `allowed`, `stage`) and, for bad input, a `BadRequest.FieldViolation`;
where it is known when the call may succeed, a `RetryInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from skipstone_shared import errors

ERROR_DOMAIN = "skipstone"
_DETAILS_KEY = "grpc-status-details-bin"

# A peer drops a call whose trailers exceed 8 KiB, and the message is sent up to three times, once
# percent-encoded (3 bytes for 1).
_MAX_MESSAGE_BYTES = 900
_MAX_METADATA_BYTES = 300

STATUS_CODES: Mapping[type[errors.SkipstoneError], grpc.StatusCode] = MappingProxyType(
    {
        errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
        errors.NotFound: grpc.StatusCode.NOT_FOUND,
        errors.LatentNotFound: grpc.StatusCode.NOT_FOUND,
        errors.EntryNotFound: grpc.StatusCode.NOT_FOUND,
        errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
        errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
        errors.FingerprintMismatch: grpc.StatusCode.FAILED_PRECONDITION,
        errors.CompatibilityMismatch: grpc.StatusCode.FAILED_PRECONDITION,
        errors.Aborted: grpc.StatusCode.ABORTED,
        errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.QueueFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.RateLimited: grpc.StatusCode.RESOURCE_EXHAUSTED,
        errors.DataCorrupt: grpc.StatusCode.DATA_LOSS,
        errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
        errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
        errors.Cancelled: grpc.StatusCode.CANCELLED,
        errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
        errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
        errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
        errors.Internal: grpc.StatusCode.INTERNAL,
    }
)
"""The table. A class's `reason` is the other half of its row."""

_BY_REASON = {cls.reason: cls for cls in STATUS_CODES}
# The general class of each code comes first in the table; what arrives without details gets it.
_BY_CODE: dict[grpc.StatusCode, type[errors.SkipstoneError]] = {
    code: cls for cls, code in reversed(list(STATUS_CODES.items()))
} | {
    grpc.StatusCode.OUT_OF_RANGE: errors.InvalidArgument,
    grpc.StatusCode.UNKNOWN: errors.Internal,
}
_CODE_BY_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def status_code(error: errors.SkipstoneError) -> grpc.StatusCode:
    """Returns the code of the error's class, or of its nearest ancestor in the table."""
    for cls in type(error).__mro__:
        if cls in STATUS_CODES:
            return STATUS_CODES[cls]
    return grpc.StatusCode.INTERNAL


def to_status(error: errors.SkipstoneError) -> status_pb2.Status:
    """Encodes an error; also the per-item status of batch answers."""
    message = _shorten(error.message, _MAX_MESSAGE_BYTES)
    status = status_pb2.Status(code=status_code(error).value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN)
    for key in ("field", "allowed", "stage"):
        value = getattr(error, key)
        if value is not None:
            info.metadata[key] = _shorten(value, _MAX_METADATA_BYTES)
    status.details.add().Pack(info)
    if isinstance(error, errors.InvalidArgument) and error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=info.metadata["field"], description=message
        )
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_after_s * 1e9))
        status.details.add().Pack(retry)
    return status


def from_status(status: status_pb2.Status) -> errors.SkipstoneError:
    """Decodes what `to_status` encoded; other statuses map by their code alone."""
    code = _CODE_BY_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN)
    info = _find_error_info(status)
    if info is None:
        return _from_code(code, status.message)
    cls = _BY_REASON.get(info.reason) or _BY_CODE.get(code, errors.Internal)
    error = cls(
        status.message,
        field=info.metadata.get("field"),
        allowed=info.metadata.get("allowed"),
        stage=info.metadata.get("stage"),
        retry_after_s=_find_retry_delay(status),
    )
    # A newer server may know reasons that this client does not: keep its word.
    if info.reason and info.reason != cls.reason:
        error.reason = info.reason
    return error


def to_grpc_status(error: errors.SkipstoneError) -> grpc.Status:
    """Returns what `context.abort_with_status` takes."""
    return rpc_status.to_status(to_status(error))


def from_rpc_error(error: grpc.RpcError) -> errors.SkipstoneError:
    """Decodes what a stub raised, synchronous or `grpc.aio`.

    Use as `raise from_rpc_error(error) from error`. The result has no stage of its own; callers
    that talk to several services add it with `came_from`.
    """
    code = error.code() if hasattr(error, "code") else None
    details = (error.details() if hasattr(error, "details") else None) or str(error)
    trailers: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    status = _find_status(trailers or ())
    if status is not None and code is not None and status.code == code.value[0]:
        return from_status(status)
    return _from_code(code or grpc.StatusCode.UNKNOWN, details)


def _from_code(code: grpc.StatusCode, message: str) -> errors.SkipstoneError:
    return _BY_CODE.get(code, errors.Internal)(message)


def _find_status(trailers: Iterable[tuple[str, str | bytes]]) -> status_pb2.Status | None:
    for key, value in trailers:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None


def _find_error_info(status: status_pb2.Status) -> error_details_pb2.ErrorInfo | None:
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
            return info
    return None


def _find_retry_delay(status: status_pb2.Status) -> float | None:
    for detail in status.details:
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(retry):
            return retry.retry_delay.ToNanoseconds() / 1e9
    return None


def _shorten(text: str, max_bytes: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    return data[: max_bytes - 3].decode("utf-8", "ignore") + "..."
