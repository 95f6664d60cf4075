"""Errors keep their meaning: in their text, on their way up, and over the wire."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from skipstone_shared import errors
from skipstone_shared.grpc_errors import (
    STATUS_CODES,
    from_rpc_error,
    from_status,
    status_code,
    to_status,
)

ALL = sorted(STATUS_CODES, key=lambda cls: cls.reason)


def subclasses(cls: type[errors.SkipstoneError]) -> set[type[errors.SkipstoneError]]:
    return {cls} | {found for child in cls.__subclasses__() for found in subclasses(child)}


def test_every_error_class_is_in_the_table_once() -> None:
    declared = {
        cls
        for cls in subclasses(errors.SkipstoneError) - {errors.SkipstoneError}
        if cls.__module__ == errors.__name__
    }
    assert set(STATUS_CODES) == declared
    assert len({cls.reason for cls in STATUS_CODES}) == len(STATUS_CODES)


def test_the_docstring_draws_every_class() -> None:
    assert errors.__doc__ is not None
    assert [cls.__name__ for cls in ALL if cls.__name__ not in errors.__doc__] == []


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_error_survives_the_wire(cls: type[errors.SkipstoneError]) -> None:
    sent = cls("steps too high", field="params.steps", allowed="1 to 1000", stage="denoise")
    status = to_status(sent)
    received = from_status(status_pb2.Status.FromString(status.SerializeToString()))
    assert type(received) is cls
    assert status.code == STATUS_CODES[cls].value[0]
    assert vars(received) == vars(sent)
    assert received.reason == sent.reason


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_error_without_details_survives_the_wire(cls: type[errors.SkipstoneError]) -> None:
    received = from_status(to_status(cls()))
    assert type(received) is cls
    assert (received.field, received.allowed, received.stage) == (None, None, None)


def test_when_a_call_may_succeed_is_told_in_the_fields_own_way() -> None:
    """Clients in other languages wait by `RetryInfo`, without knowing Skipstone."""
    status = to_status(errors.RateLimited("too many", retry_after_s=1.25))
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.ToMilliseconds() == 1250
    assert from_status(status).retry_after_s == 1.25


def test_bad_input_names_field_and_range_in_its_text() -> None:
    error = errors.InvalidArgument("must be at least 1", field="steps", allowed="1 to 1000")
    assert str(error) == "steps: must be at least 1 (allowed: 1 to 1000)"


def test_a_text_that_names_field_and_range_is_left_alone() -> None:
    text = "steps must be 1 to 1000"
    assert str(errors.InvalidArgument(text, field="steps", allowed="1 to 1000")) == text


def test_bad_input_carries_a_field_violation() -> None:
    """Tools that know Google's error model, but not us, still show the field."""
    status = to_status(errors.InvalidArgument("is empty", field="prompt"))
    bad_request = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad_request) for detail in status.details)
    assert [v.field for v in bad_request.field_violations] == ["prompt"]


def test_an_error_tells_where_it_came_from() -> None:
    def read() -> None:
        with errors.origin("denoise"), errors.origin("donor store"):
            raise errors.LatentNotFound("no latent e1/5")

    with pytest.raises(errors.LatentNotFound) as caught:
        read()
    assert str(caught.value) == "denoise: donor store: no latent e1/5"
    assert caught.value.stage == "donor store"


def test_an_unknown_reason_keeps_its_word_and_the_class_of_its_code() -> None:
    """A newer server must not confuse an older client."""
    status = status_pb2.Status(code=grpc.StatusCode.NOT_FOUND.value[0], message="no lease")
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason="LEASE_NOT_FOUND", domain="skipstone")
    )
    received = from_status(status)
    assert type(received) is errors.NotFound
    assert received.reason == "LEASE_NOT_FOUND"
    assert errors.NotFound.reason == "NOT_FOUND"


def test_details_of_another_system_are_ignored() -> None:
    status = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="proxy")
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason="LATENT_NOT_FOUND", domain="googleapis.com")
    )
    assert type(from_status(status)) is errors.Unavailable


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_code_without_details_becomes_an_error(code: grpc.StatusCode) -> None:
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="because")
    received = from_rpc_error(error)
    assert isinstance(received, errors.SkipstoneError)
    assert str(received) == "because"


def test_a_subclass_outside_the_table_takes_its_parents_code() -> None:
    class Special(errors.QueueFull):
        reason = "SPECIAL"

    assert status_code(Special()) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_huge_message_is_cut_to_fit_the_trailers() -> None:
    """gRPC drops a call whose trailers exceed 8 KiB, and with it the reason."""
    status = to_status(errors.InvalidArgument("ä" * 1_000_000, field="prompt"))
    assert len(status.SerializeToString()) < 4096
