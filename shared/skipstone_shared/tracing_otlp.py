"""Traces by the OpenTelemetry SDK, sent to a collector by OTLP over gRPC.

Imported only by services with `otlp_endpoint`; needs the extra `tracing`. Spans are sent in batches
by a thread of the SDK; a collector that is away costs the spans and one line in the log.

What the SDK reads itself from its own variables holds too: `OTEL_EXPORTER_OTLP_HEADERS` (a key for
the collector), `OTEL_EXPORTER_OTLP_CERTIFICATE`, `OTEL_RESOURCE_ATTRIBUTES`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode

from skipstone_shared.structured_logging import get_logger
from skipstone_shared.tracing import Attribute, PassedSpan, Span

EXPORT_TIMEOUT_S = 3.0
"""Most that one batch may take. Beyond it the batch is lost, so that the next one has a chance."""

CLOSE_TIMEOUT_S = 2.0
"""Most that the end of a process waits for the collector."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")

_NEVER_FIRST = ("/GetCapabilities", "/GetStats", "/WatchEvictions")
"""Rpcs that no trace begins with: monitors and watchers ask them all day."""


class OtlpTracer:
    """A `Tracer` that sends to a collector."""

    def __init__(self, service_name: str, endpoint: str, *, sample_ratio: float) -> None:
        """Starts the thread that sends; connects when there is something to send.

        Args:
            service_name: Of this process: `latent_kv`.
            endpoint: `http://host:4317`, or `https://` with TLS.
            sample_ratio: Share of the traces that begin here and are recorded, 0 to 1; whoever
                has a caller's trace follows the caller's choice.
        """
        _silence_sdk()
        self._exporter = _exporter(endpoint)
        resource = Resource.create(
            {
                "service.name": f"skipstone-{service_name.replace('_', '-')}",
                "service.namespace": "skipstone",
                "service.version": version("skipstone"),
                "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            }
        )
        # Its own `atexit` handler would wait for a dead collector a second time.
        self._provider = TracerProvider(
            resource=resource,
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(_ToldOnce(self._exporter, endpoint), schedule_delay_millis=1000)
        )
        self._tracer = self._provider.get_tracer("skipstone")

    def start_rpc(self, method: str, parent: str | None, request_id: str) -> Span | None:
        """See `Tracer`."""
        if parent is None and method.endswith(_NEVER_FIRST):
            return None
        return self._start(method.removeprefix("/"), parent, request_id, {"rpc.system": "grpc"})

    def start_http(self, method: str, parent: str | None, request_id: str) -> Span | None:
        """See `Tracer`."""
        return self._start(method, parent, request_id, {"http.request.method": method})

    def _start(
        self, name: str, parent: str | None, request_id: str, told: Mapping[str, str]
    ) -> Span:
        span = self._tracer.start_span(name, _context(parent), SpanKind.SERVER)
        if not span.is_recording():
            return PassedSpan(_traceparent(span))
        span.set_attributes({**told, "skipstone.request_id": request_id})
        return _OtlpSpan(self._tracer, span)

    def close(self) -> None:
        """See `Tracer`; waits for CLOSE_TIMEOUT_S at most."""
        giving_up = threading.Timer(CLOSE_TIMEOUT_S, self._exporter.shutdown)
        giving_up.daemon = True
        giving_up.start()
        self._provider.shutdown()
        giving_up.cancel()


class _OtlpSpan:
    """A recorded span."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self.trace_id = f"{span.get_span_context().trace_id:032x}"

    @property
    def traceparent(self) -> str:
        return _traceparent(self._span)

    def child(self, name: str) -> Span:
        context = trace.set_span_in_context(self._span)
        return _OtlpSpan(self._tracer, self._tracer.start_span(name, context))

    def set(self, key: str, value: Attribute) -> None:
        self._span.set_attribute(key, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def end(self, error: str = "") -> None:
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class _ToldOnce(SpanExporter):
    """An exporter that says once that the collector is away, and once that it is back."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_away = result is not SpanExportResult.SUCCESS
        if is_away and not self._is_away:
            get_logger().warning("traces are lost: no collector", endpoint=self._endpoint)
        elif self._is_away and not is_away:
            get_logger().info("traces are sent again", endpoint=self._endpoint)
        self._is_away = is_away
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _exporter(endpoint: str) -> OTLPSpanExporter:
    # gRPC asks an http_proxy even for this machine.
    is_local = urlsplit(endpoint).hostname in _LOOPBACK
    options: Any = (("grpc.enable_http_proxy", 0),) if is_local else None  # typed as text there
    return OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_S, channel_options=options)


def _silence_sdk() -> None:
    """Keeps the SDK from a line per lost batch, and one per lost span once its queue is full."""
    for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _context(parent: str | None) -> Context | None:
    if parent is None:
        return None
    _, trace_id, span_id, flags = parent.split("-")
    remote = trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16))
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(remote))


def _traceparent(span: trace.Span) -> str:
    context = span.get_span_context()
    flags = int(context.trace_flags.sampled)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
