"""Every error that Skipstone raises on purpose.

The same class is raised by a local store and by a client of a remote one; `grpc_errors.py` holds
the one table to status codes and back.

    SkipstoneError
    ├── InvalidArgument            bad input; names the field and what is allowed
    ├── NotFound                   normal on a read: the caller goes on without
    │   ├── LatentNotFound
    │   └── EntryNotFound
    ├── AlreadyExists
    ├── FailedPrecondition         right request, wrong state; a retry does not help
    │   ├── FingerprintMismatch    the latent was made by another model, schedule or shape
    │   └── CompatibilityMismatch  the compatibility keys differ
    ├── Aborted                    lost against a concurrent writer; start over
    ├── ResourceExhausted          full; later or elsewhere
    │   ├── QuotaExceeded          bytes or entries of a namespace
    │   ├── QueueFull              too much waiting work
    │   └── RateLimited            more requests of a namespace than it may make; says until when
    ├── DataCorrupt                stored bytes fail their checksum, spec or finiteness
    ├── Unavailable                the only one worth a retry
    ├── DeadlineExceeded
    ├── Cancelled                  the caller went away
    ├── Unauthenticated
    ├── PermissionDenied
    ├── Unimplemented              this server or backend does not offer it
    └── Internal                   a bug; the server's log has the traceback
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class SkipstoneError(Exception):
    """Base of all errors above.

    Attributes:
        reason: Stable word for programs, SCREAMING_SNAKE; each class has its own.
        message: The whole sentence for people; `str(error)` is the same.
        field: The request field at fault, dotted (`params.num_inference_steps`), if one is.
        allowed: What the field may be, in words (`1 to 1000`), if that can be said.
        stage: Where it happened first (`embedding`, `donor store`), if known.
        retry_after_s: Seconds after which the same call may succeed, if that is known.
    """

    reason: str = "UNKNOWN"

    def __init__(
        self,
        message: str = "",
        *,
        field: str | None = None,
        allowed: str | None = None,
        stage: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        # Naming what the text already names would repeat it each time an error crosses a wire.
        if field and field not in message:
            message = f"{field}: {message}" if message else field
        if allowed and allowed not in message:
            message = f"{message} (allowed: {allowed})"
        message = message or self.reason.lower().replace("_", " ")
        super().__init__(message)
        self.message = message
        self.field = field
        self.allowed = allowed
        self.stage = stage
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.message

    def came_from(self, origin: str) -> Self:
        """Prefixes the message with where the error came from and returns the same error.

        The first origin (the innermost) also becomes `stage`. Meant for
        `raise error.came_from("donor store")`, so the traceback stays whole.
        """
        self.message = f"{origin}: {self.message}"
        self.args = (self.message,)
        self.stage = self.stage or origin
        return self


@contextmanager
def origin(name: str) -> Iterator[None]:
    """Marks every Skipstone error that leaves the block as having come from `name`."""
    try:
        yield
    except SkipstoneError as error:
        error.came_from(name)
        raise


class InvalidArgument(SkipstoneError):
    """The request cannot be right, whatever the state of the server."""

    reason = "INVALID_ARGUMENT"


class NotFound(SkipstoneError):
    """What was asked for is not there. Normal for a cache."""

    reason = "NOT_FOUND"


class LatentNotFound(NotFound):
    """No complete, valid latent under this key."""

    reason = "LATENT_NOT_FOUND"


class EntryNotFound(NotFound):
    """No entry with this id."""

    reason = "ENTRY_NOT_FOUND"


class AlreadyExists(SkipstoneError):
    """Something else is already stored under this name."""

    reason = "ALREADY_EXISTS"


class FailedPrecondition(SkipstoneError):
    """The request is fine but does not fit the state; repeating it does not help."""

    reason = "FAILED_PRECONDITION"


class FingerprintMismatch(FailedPrecondition):
    """A latent was made by another model, schedule, shape or dtype than the one wanted."""

    reason = "FINGERPRINT_MISMATCH"


class CompatibilityMismatch(FailedPrecondition):
    """Two requests whose latents are not interchangeable were brought together."""

    reason = "COMPATIBILITY_MISMATCH"


class Aborted(SkipstoneError):
    """A concurrent writer won; the whole sequence may be tried again."""

    reason = "ABORTED"


class ResourceExhausted(SkipstoneError):
    """Something is full."""

    reason = "RESOURCE_EXHAUSTED"


class QuotaExceeded(ResourceExhausted):
    """The namespace may not hold more."""

    reason = "QUOTA_EXCEEDED"


class QueueFull(ResourceExhausted):
    """More work is waiting than the server accepts."""

    reason = "QUEUE_FULL"


class RateLimited(ResourceExhausted):
    """The namespace makes more requests than it may; `retry_after_s` says when to come again."""

    reason = "RATE_LIMITED"


class DataCorrupt(SkipstoneError):
    """Stored bytes do not match their checksum or spec, or hold non-finite numbers."""

    reason = "DATA_CORRUPT"


class Unavailable(SkipstoneError):
    """The service cannot be reached or is draining; an idempotent call may be retried."""

    reason = "UNAVAILABLE"


class DeadlineExceeded(SkipstoneError):
    """The time the caller gave is over."""

    reason = "DEADLINE_EXCEEDED"


class Cancelled(SkipstoneError):
    """The caller went away or gave up."""

    reason = "CANCELLED"


class Unauthenticated(SkipstoneError):
    """The caller did not prove who they are."""

    reason = "UNAUTHENTICATED"


class PermissionDenied(SkipstoneError):
    """The caller may not do this."""

    reason = "PERMISSION_DENIED"


class Unimplemented(SkipstoneError):
    """This server, or the backend it was configured with, does not offer it."""

    reason = "UNIMPLEMENTED"


class Internal(SkipstoneError):
    """A bug on the server; its log has the traceback under the request id."""

    reason = "INTERNAL"
