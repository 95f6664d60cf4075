"""What S3 answers, as errors that say what to do, and never with what must stay secret."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
)

from skipstone_latent_kv.s3_errors import is_no_answer, s3_trouble
from skipstone_shared.errors import (
    FailedPrecondition,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)


def answer(status: int, code: str) -> ClientError:
    told = {"Code": code, "Message": "its message", "AWSAccessKeyId": "AKIA-OF-SOMEBODY"}
    response = {"Error": told, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "PutObject")


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (
            answer(403, "AccessDenied"),
            FailedPrecondition,
            "s3:ListBucketMultipartUploads.*s3:GetLifecycleConfiguration.*s3:Abort",
        ),
        (answer(403, "RequestTimeTooSkewed"), FailedPrecondition, "clocks must agree"),
        (answer(403, "QuotaExceeded"), ResourceExhausted, "S3 is full"),
        (answer(404, "NoSuchBucket"), FailedPrecondition, "s3_bucket is not there"),
        (answer(301, "PermanentRedirect"), FailedPrecondition, "s3_region"),
        (answer(400, "InvalidBucketName"), FailedPrecondition, "s3_bucket is no name"),
        (answer(400, "RequestTimeout"), Unavailable, "cannot serve just now"),
        (answer(409, "OperationAborted"), Unavailable, "cannot serve just now"),
        (answer(501, "NotImplemented"), FailedPrecondition, "does not know a call"),
        (answer(503, "SlowDown"), Unavailable, "cannot serve just now"),
        (answer(507, "InsufficientStorage"), ResourceExhausted, "S3 is full"),
        (NoCredentialsError(), FailedPrecondition, "s3_credentials_file .*AWS_ACCESS_KEY_ID"),
        (ParamValidationError(report="of a name"), FailedPrecondition, "see s3_bucket"),
        (EndpointConnectionError(endpoint_url="http://s3"), Unavailable, "does not answer"),
    ],
    ids=lambda value: value.response["Error"]["Code"] if isinstance(value, ClientError) else "",
)
def test_each_answer_becomes_the_error_that_says_what_to_do(
    error: Exception, expected: type[SkipstoneError], message: str
) -> None:
    with pytest.raises(expected, match=message) as raised, s3_trouble():
        raise error
    assert "AKIA" not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answer(403, "AccessDenied"), True),
        (answer(404, "NoSuchKey"), True),
        (answer(405, "MethodNotAllowed"), True),
        (answer(501, "NotImplemented"), True),
        (answer(400, "NotImplemented"), True),
        (answer(404, "NoSuchBucket"), False),
        (answer(301, "PermanentRedirect"), False),
        (answer(500, "InternalError"), False),
        (answer(503, "SlowDown"), False),
    ],
    ids=lambda value: value.response["Error"]["Code"] if isinstance(value, ClientError) else "",
)
def test_only_a_server_that_will_never_tell_is_taken_for_one(
    error: ClientError, expected: bool
) -> None:
    assert is_no_answer(error) == expected
