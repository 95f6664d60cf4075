"""Log set-up of every service: one line per event on stderr, as JSON or for people.

Every line carries `timestamp`, `level`, `event`, `service` and, inside an rpc, `request_id`, `rpc`
and, when it is traced, `trace_id`. Libraries that use the standard `logging` module come out in the
same form.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from skipstone_shared.request_context import current_request_id
from skipstone_shared.tracing import current_trace_id

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]


def configure_logging(
    service: str,
    level: LogLevel = "info",
    log_format: LogFormat = "json",
    stream: TextIO | None = None,
) -> None:
    """Sets up logging for the process. Called once, by `serve`, before anything is built.

    Args:
        service: Value of `service` on every line.
        level: Events below it are dropped.
        log_format: `json` for machines, `console` for people.
        stream: Where lines go; stderr by default.
    """
    stream = stream or sys.stderr
    sink = _LossySink(stream)
    number = logging.getLevelNamesMapping()[level.upper()]
    shared = _shared_processors(service)
    renderer = _renderer(log_format, stream)
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, sink)),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
    for package in _OWN_PACKAGES:
        logging.getLogger(package).setLevel(number)


_OWN_PACKAGES = ("skipstone_shared", "skipstone_client")
"""Their plain loggers are those of clients, which are installed without structlog."""


class _LossySink:
    """A stream that drops what cannot be written.

    Otherwise a full disk or a log reader that died would fail every request at its log line.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Writes what can be written."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flushes what can be flushed."""
        with suppress(OSError):
            self._stream.flush()


def _shared_processors(service: str) -> list[Processor]:
    def add_origin(_: WrappedLogger, __: str, event_dict: EventDict) -> EventDict:
        event_dict["service"] = service
        request_id = current_request_id()
        if request_id is not None:
            event_dict.setdefault("request_id", request_id)
        trace_id = current_trace_id()
        if trace_id:
            event_dict.setdefault("trace_id", trace_id)
        return event_dict

    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_origin,
    ]


def _renderer(log_format: LogFormat, stream: TextIO) -> list[Processor]:
    if log_format == "console":
        return [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def get_logger(**fields: Any) -> structlog.typing.FilteringBoundLogger:
    """Returns a logger whose lines carry `fields`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**fields)
    return logger
