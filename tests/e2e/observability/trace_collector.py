"""An OTLP collector in the test's own process: a real gRPC server that keeps what it is sent."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2


@dataclasses.dataclass(frozen=True)
class ReceivedSpan:
    """A span as it was sent; ids in hexadecimal, `parent_id` empty for a root."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    error: str
    attributes: Mapping[str, Any]


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans of all exports."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []
        self._bytes = b""

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            self._bytes += request.SerializeToString()
            for resource_spans in request.resource_spans:
                told = _values(resource_spans.resource.attributes)
                for scope in resource_spans.scope_spans:
                    self._spans += [_received(str(told["service.name"]), s) for s in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self, trace_id: str = "") -> list[ReceivedSpan]:
        """What came so far, of one trace or of all, in the order of their beginning."""
        with self._lock:
            found = [s for s in self._spans if trace_id in ("", s.trace_id)]
        return sorted(found, key=lambda span: span.start_ns)

    def holds(self, text: str) -> bool:
        """Whether a text stands anywhere in what was sent."""
        with self._lock:
            return text.encode() in self._bytes


@contextmanager
def running_collector(port: int = 0) -> Iterator[Collector]:
    """Collects on a loopback port."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    collector.endpoint = f"http://127.0.0.1:{port}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def _received(service: str, span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        error=span.status.message,
        attributes=_values(span.attributes),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
