"""One id and one deadline follow a request."""

from __future__ import annotations

from skipstone_shared.request_context import (
    REQUEST_ID_KEY,
    call_timeout_s,
    current_request_id,
    outgoing_metadata,
    read_request_id,
    remaining_s,
    request_scope,
)


def test_outside_of_a_request_there_is_no_id_and_no_deadline() -> None:
    assert current_request_id() is None
    assert remaining_s() is None
    assert call_timeout_s() is None
    assert call_timeout_s(3.0) == 3.0


def test_the_id_goes_on_to_the_next_service() -> None:
    with request_scope("abc"):
        assert outgoing_metadata([("k", "v")]) == ((REQUEST_ID_KEY, "abc"), ("k", "v"))
    assert current_request_id() is None


def test_a_call_outside_of_a_request_gets_an_id_too() -> None:
    ((key, value),) = outgoing_metadata()
    assert key == REQUEST_ID_KEY
    assert value


def test_a_call_gets_no_more_time_than_the_request_has_left() -> None:
    with request_scope(timeout_s=5.0):
        assert call_timeout_s(1.0) == 1.0
        left = call_timeout_s(60.0)
        assert left is not None
        assert left <= 5.0


def test_a_request_past_its_deadline_has_zero_seconds_left() -> None:
    with request_scope(timeout_s=-1.0):
        assert remaining_s() == 0.0


def test_scopes_nest() -> None:
    with request_scope("outer", timeout_s=5.0):
        with request_scope("inner"):
            assert current_request_id() == "inner"
            assert remaining_s() is None
        assert current_request_id() == "outer"
        assert remaining_s() is not None


def test_an_id_that_is_absent_empty_or_too_long_is_replaced() -> None:
    assert read_request_id([(REQUEST_ID_KEY, "abc")]) == "abc"
    for metadata in ([], [(REQUEST_ID_KEY, "")], [(REQUEST_ID_KEY, "x" * 1000)]):
        assert len(read_request_id(metadata)) == 32
