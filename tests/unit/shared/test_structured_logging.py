"""Log lines can be read by machines and followed across services."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from skipstone_shared.request_context import request_scope
from skipstone_shared.structured_logging import configure_logging, get_logger


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream that takes the lines; logging is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_carries_service_level_time_and_request_id(stream: io.StringIO) -> None:
    configure_logging("latent_kv", stream=stream)
    with request_scope("abc"):
        get_logger(part="store").info("opened", entries=3)
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {
        "event": "opened",
        "level": "info",
        "service": "latent_kv",
        "request_id": "abc",
        "part": "store",
        "entries": 3,
    }


def test_events_below_the_level_are_dropped(stream: io.StringIO) -> None:
    configure_logging("latent_kv", level="warning", stream=stream)
    get_logger().info("quiet")
    get_logger().warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_an_exception_is_one_line(stream: io.StringIO) -> None:
    configure_logging("latent_kv", stream=stream)
    get_logger().error("failed", exc_info=ValueError("boom"))
    (line,) = lines(stream)
    assert "ValueError: boom" in str(line["exception"])


def test_libraries_come_out_in_the_same_form(stream: io.StringIO) -> None:
    configure_logging("latent_kv", stream=stream)
    logging.getLogger("library").warning("old %s", "style")
    (line,) = lines(stream)
    assert (line["event"], line["service"], line["logger"]) == ("old style", "latent_kv", "library")


class Unwritable(io.StringIO):
    """A log whose reader died, or whose disk is full."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_log_that_cannot_be_written_fails_nobody(stream: io.StringIO) -> None:
    configure_logging("latent_kv", stream=Unwritable())
    get_logger().info("lost")


def test_the_console_form_is_for_people(stream: io.StringIO) -> None:
    configure_logging("latent_kv", log_format="console", stream=stream)
    get_logger().info("opened", entries=3)
    assert "opened" in stream.getvalue()
    assert "entries=3" in stream.getvalue()
