"""The current span: how it is read, passed on, and what stages make of it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone_shared.errors import EntryNotFound, InvalidArgument, Unavailable
from skipstone_shared.request_context import outgoing_metadata, request_scope
from skipstone_shared.tracing import (
    PassedSpan,
    Span,
    bind_rpc,
    current_span,
    current_trace_id,
    read_traceparent,
    span_scope,
    stage_span,
    traced,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"


class KeptSpan:
    """A span that keeps what is done with it, and its children."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trace_id = TRACE
        self.traceparent = f"00-{TRACE}-{SPAN}-01"
        self.children: list[KeptSpan] = []
        self.ends: list[str] = []

    def child(self, name: str) -> Span:
        self.children.append(KeptSpan(name))
        return self.children[-1]

    def set(self, key: str, value: object) -> None:
        raise AssertionError("not asked for here")

    def rename(self, name: str) -> None:
        raise AssertionError("not asked for here")

    def end(self, error: str = "") -> None:
        self.ends.append(error)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (SENT, SENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-ff", SENT),  # flags that are not known are not passed on
        (f"01-{TRACE}-{SPAN}-01", SENT),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", SENT),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
    ],
)
def test_a_traceparent_is_read_as_the_recommendation_says(sent: str, read: str | None) -> None:
    assert read_traceparent([("other", "x"), ("traceparent", sent)]) == read


@given(st.text())
def test_no_text_of_a_caller_can_break_the_reading(sent: str) -> None:
    read = read_traceparent([("traceparent", sent)])
    assert read is None or len(read) == len(SENT)


def test_outside_of_a_trace_nothing_is_sent_and_stages_cost_nothing() -> None:
    with request_scope("r"), stage_span("lookup") as span:
        assert span is None
        assert stage_span("a") is stage_span("b")
        assert outgoing_metadata() == (("x-skipstone-request-id", "r"),)
        assert current_trace_id() == ""


def test_without_a_tracer_a_callers_trace_is_passed_on_and_nothing_else_changes() -> None:
    def call() -> None:
        span = bind_rpc(None, "/a.B/C", [("traceparent", SENT)], "r")
        assert span is current_span()
        with request_scope("r"), stage_span("lookup"):
            sent = dict(outgoing_metadata())
        assert sent["traceparent"] == SENT
        assert current_trace_id() == ""  # nobody records it here: no exemplar, no log field
        assert bind_rpc(None, "/a.B/C", [], "next on this thread") is None
        assert current_span() is None

    contextvars.copy_context().run(call)


def test_a_stage_is_a_child_of_what_is_current_and_restores_it() -> None:
    root = KeptSpan("root")
    with span_scope(root):
        with stage_span("lookup"):
            with stage_span("search"):
                pass
        with stage_span("denoise"):
            pass
        assert current_span() is root
    assert current_span() is None
    assert [c.name for c in root.children] == ["lookup", "denoise"]
    assert [c.name for c in root.children[0].children] == ["search"]
    assert root.children[0].ends == [""]
    assert root.ends == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unavailable("refused: secret prompt"), "UNAVAILABLE"),
        (InvalidArgument("bad", field="seed", allowed="0 and up"), "INVALID_ARGUMENT"),
        (EntryNotFound("e"), ""),
        (ValueError("secret prompt"), "ValueError"),
        (asyncio.CancelledError(), "CANCELLED"),
    ],
)
def test_a_span_tells_the_reason_of_an_error_and_never_its_message(
    error: BaseException, told: str
) -> None:
    root = KeptSpan("root")
    with span_scope(root), pytest.raises(type(error)), stage_span("search"):
        raise error
    assert root.children[0].ends == [told]


def test_a_traced_coroutine_works_in_a_span_of_its_own() -> None:
    @traced("search")
    async def search(words: str) -> str:
        span = current_span()
        assert isinstance(span, KeptSpan)
        return f"{words} in {span.name}"

    root = KeptSpan("root")
    with span_scope(root):
        assert asyncio.run(search("red")) == "red in search"
    assert root.children[0].ends == [""]


def test_a_generator_that_is_closed_elsewhere_still_ends_its_span() -> None:
    """gRPC and asyncio close what a caller gave up in another context than it ran in."""
    root = KeptSpan("root")

    async def events() -> AsyncGenerator[int, None]:
        with stage_span("denoise"):
            yield 1

    async def give_up() -> None:
        running = events()
        with span_scope(root):
            await asyncio.create_task(anext(running))  # a task has a context of its own
        await asyncio.create_task(running.aclose())

    asyncio.run(give_up())
    assert root.children[0].ends == ["CANCELLED"]


def test_a_span_that_is_only_passed_on_stays_the_same_through_stages() -> None:
    passed = PassedSpan(SENT)
    with span_scope(passed), stage_span("lookup") as span:
        assert span is passed
