"""Errors of S3 as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointProviderError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ValidationError,
)

from skipstone_shared.errors import (
    FailedPrecondition,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)

_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "EntityTooLarge")
"""Codes of servers whose disks or quotas are full; Amazon has none of them."""
_UNKNOWN_CALL = ("NotImplemented", "MethodNotAllowed")
_OTHER_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint")

RIGHTS = (
    "s3:ListBucket, s3:ListBucketMultipartUploads, s3:GetBucketVersioning and "
    "s3:GetLifecycleConfiguration on the bucket, s3:GetObject, s3:PutObject, s3:DeleteObject and "
    "s3:AbortMultipartUpload below s3_prefix"
)
"""What a store does; the docs list it too."""


@contextmanager
def s3_trouble() -> Iterator[None]:
    """Raises errors of S3 as ours.

    Raises:
        Unavailable: no answer, or one that says that it will serve soon.
        ResourceExhausted: its disk or quota is full.
        FailedPrecondition: it refuses the credentials or the bucket; the message says why.
    """
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
        raise FailedPrecondition(
            f"S3 needs credentials ({error}): set s3_credentials_file to a file with "
            "aws_access_key_id and aws_secret_access_key below [default], or the variables "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
        ) from error
    except ClientError as error:
        raise _ours(error) from error
    except (EndpointProviderError, ParamValidationError, ValidationError) as error:
        raise FailedPrecondition(
            f"S3 cannot be asked with these settings ({error}): see s3_bucket, s3_endpoint and "
            "s3_region"
        ) from error
    except BotoCoreError as error:
        raise Unavailable(f"S3 does not answer ({error}): see s3_endpoint and s3_region") from error


def status_of(error: ClientError) -> int:
    """The HTTP status of an answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """The word by which S3 names an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_no_answer(error: ClientError) -> bool:
    """Whether S3 will never say what it was asked: it is not allowed, or a call it does not know.

    Other errors say nothing of that, such as those of a server that is busy.
    """
    if code_of(error) == "NoSuchBucket":
        return False
    return status_of(error) in (401, 403, 404, 405, 501) or code_of(error) in _UNKNOWN_CALL


def _ours(error: ClientError) -> SkipstoneError:
    status, code = status_of(error), code_of(error)
    told = f"{code}: {error.response.get('Error', {}).get('Message', '')}"
    if code in _FULL or status == 507:
        return ResourceExhausted(f"S3 is full ({told}): lower quota_bytes or give it room")
    if code == "NoSuchBucket":
        return FailedPrecondition(f"s3_bucket is not there ({told}): create it, or name another")
    if code == "InvalidBucketName":
        return FailedPrecondition(
            f"s3_bucket is no name of a bucket ({told}): 3 to 63 lower-case letters, digits, dots "
            "and hyphens"
        )
    if code in _OTHER_REGION:
        return FailedPrecondition(f"s3_region is not the region of the bucket ({told})")
    if status in (401, 403):
        return FailedPrecondition(
            f"S3 refuses these credentials ({told}): those of s3_credentials_file, or else of the "
            f"AWS_* variables or the role, must be allowed {RIGHTS}, and clocks must agree"
        )
    if code == "NotImplemented":
        return FailedPrecondition(
            f"this S3 does not know a call that the store s3 needs ({told}): use another server"
        )
    if code == "RequestTimeout" or status in (408, 409, 429) or status >= 500:
        return Unavailable(f"S3 cannot serve just now ({told})")
    return FailedPrecondition(f"S3 refuses a call ({told}): see s3_endpoint and s3_region")
