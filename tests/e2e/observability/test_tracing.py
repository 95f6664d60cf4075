"""Traces of real services, received by a real OTLP server."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, run
from typing import Any

import httpx
import pytest
from tests.e2e.generations import PROMPT, REWORDED, STEPS, generate, wait_saved
from tests.e2e.observability.conftest import ObservedCluster
from tests.e2e.observability.trace_collector import (
    Collector,
    ReceivedSpan,
    running_collector,
)
from tests.e2e.processes import (
    SERVICES,
    WAIT_TIMEOUT_S,
    service_command,
    service_environment,
    wait_until,
)

from skipstone_client import LatentKVClient
from skipstone_shared.orchestration import GenerateResult
from skipstone_shared.request_context import request_scope
from skipstone_shared.tracing import PassedSpan, span_scope

pytestmark = pytest.mark.e2e

GENERATE = "skipstone.orchestrator.v1.Orchestrator/Generate"
SERVER_KIND = 2


def trace_of(collector: Collector, result: GenerateResult, *names: str) -> list[ReceivedSpan]:
    """The trace of a request, once the named spans are in it."""
    request_id = result.provenance.request_id

    def root() -> ReceivedSpan | None:
        found = (s for s in collector.spans() if s.name == GENERATE)
        return next((s for s in found if s.attributes["skipstone.request_id"] == request_id), None)

    def whole() -> bool:
        span = root()
        return span is not None and {*names} <= {s.name for s in collector.spans(span.trace_id)}

    wait_until(whole, f"the trace of {request_id} has {names}")
    span = root()
    assert span is not None
    return collector.spans(span.trace_id)


def only(spans: Sequence[ReceivedSpan], name: str) -> ReceivedSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def path_of(spans: Sequence[ReceivedSpan], span: ReceivedSpan) -> list[str]:
    """Names from the root down to a span."""
    by_id = {s.span_id: s for s in spans}
    path = [span.name]
    while span.parent_id in by_id:
        span = by_id[span.parent_id]
        path.insert(0, span.name)
    return path


def test_one_trace_shows_the_sequence_of_a_resumed_request(
    observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    donor = generate(observed.client, namespace)
    wait_saved(observed, namespace, donor)
    result = generate(observed.client, namespace, REWORDED, seed=2)
    assert result.provenance.skip_steps > 0, result.provenance

    kv, index = "skipstone.latent_kv.v1.LatentKV", "skipstone.vector_index.v1.VectorIndex"
    embedding = "skipstone.embedding.v1.Embedding"
    run = "skipstone.denoise.v1.Denoise/RunDenoise"
    of_store = (f"{kv}/{rpc}" for rpc in ("GetEntry", "ReadLatent", "WriteLatent", "CommitEntry"))
    of_index = (f"{index}/{rpc}" for rpc in ("SearchEntries", "UpsertEntries"))
    of_prompts = (f"{embedding}/{rpc}" for rpc in ("Embed", "Rerank"))
    names = ("resume", "save", run, *of_store, *of_index, *of_prompts, GENERATE)
    spans = trace_of(collector, result, *names)

    root = only(spans, GENERATE)
    assert root.parent_id == ""
    stages = [s.name for s in spans if s.parent_id == root.span_id]
    assert stages == ["build_query", "lookup", "denoise", "save"]

    def parents(name: str) -> list[list[str]]:
        return [path_of(spans, s)[1:-1] for s in spans if s.name == name]

    assert parents(f"{embedding}/Embed") == [["lookup", "embed"]]
    assert parents(f"{index}/SearchEntries") == [["lookup", "search"]]
    assert parents(f"{embedding}/Rerank") == [["lookup", "gate"]]
    assert ["lookup", "verify"] in parents(f"{kv}/GetEntry")
    assert parents("resume") == [["denoise"]]
    assert parents(run) == [["denoise"]]
    assert parents(f"{kv}/ReadLatent") == [["denoise", run]]
    assert {tuple(p) for p in parents(f"{kv}/WriteLatent")} == {("denoise", run)}
    assert parents(f"{kv}/CommitEntry") == [["save"]]
    assert parents(f"{index}/UpsertEntries") == [["save"]]


def test_one_trace_leads_from_an_http_request_through_all_services(
    observed: ObservedCluster, observed_gateway: str, collector: Collector, namespace: str
) -> None:
    """The caller's own trace goes on; without one a trace begins, and the caller is told its id."""
    url = f"{observed_gateway}/v1/images/generations"
    options = {"namespace": namespace, "steps": STEPS}
    body = {"prompt": PROMPT, "n": 2, "skipstone": options}
    caller = f"00-{'a' * 32}-{'b' * 16}-01"
    with httpx.Client(timeout=WAIT_TIMEOUT_S, trust_env=False) as http:
        answer = http.post(url, json=body, headers={"traceparent": caller}).raise_for_status()
        refused = http.post(url, json={**body, "n": 0})
        polled = http.get(f"{observed_gateway}/v1/models").raise_for_status()
    assert answer.headers["x-skipstone-trace-id"] == "a" * 32
    assert "x-skipstone-trace-id" not in polled.headers

    def whole(trace_id: str, *services: str) -> list[ReceivedSpan]:
        def services_told() -> set[str]:
            spans = collector.spans(trace_id)
            return (
                {s.service for s in spans} if any(s.kind == SERVER_KIND for s in spans) else set()
            )

        expected = {f"skipstone-{name.replace('_', '-')}" for name in services}
        wait_until(lambda: services_told() >= expected, f"{expected} are in the trace")
        return collector.spans(trace_id)

    def generations() -> list[ReceivedSpan]:
        return [span for span in collector.spans("a" * 32) if span.name == GENERATE]

    wait_until(lambda: len(generations()) == 2, "the spans of both pictures are there")
    spans = whole("a" * 32, "gateway", *SERVICES)
    (root,) = [span for span in spans if span.service == "skipstone-gateway"]
    assert (root.parent_id, root.kind) == ("b" * 16, SERVER_KIND)
    assert root.name == "POST /v1/images/generations"
    assert root.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/images/generations",
        "http.response.status_code": 200,
        "skipstone.request_id": answer.headers["x-skipstone-request-id"],
    }
    assert [span.parent_id for span in generations()] == [root.span_id] * 2

    (alone,) = whole(refused.headers["x-skipstone-trace-id"], "gateway")
    assert (alone.parent_id, alone.error) == ("", "")
    assert alone.attributes["http.response.status_code"] == 400
    assert not collector.holds(PROMPT)
    assert not collector.holds(namespace)


def test_a_request_that_the_gateway_cannot_serve_fails_its_span_too(
    observed_gateway: str, observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    observed.kill("orchestrator")
    url = f"{observed_gateway}/v1/images/generations"
    body = {"prompt": PROMPT, "skipstone": {"namespace": namespace}}
    answer = httpx.post(url, json=body, timeout=WAIT_TIMEOUT_S, trust_env=False)
    assert answer.status_code == 503
    trace_id = answer.headers["x-skipstone-trace-id"]
    wait_until(lambda: bool(collector.spans(trace_id)), "the span came")
    (span,) = collector.spans(trace_id)
    assert (span.name, span.error) == ("POST /v1/images/generations", "SERVICE_UNAVAILABLE")


def test_the_span_of_a_request_tells_where_its_result_comes_from(
    observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    result = generate(observed.client, namespace)
    root = only(trace_of(collector, result, "save"), GENERATE)

    told = result.provenance
    assert root.kind == SERVER_KIND
    assert root.service == "skipstone-orchestrator"
    assert root.attributes == {
        "rpc.system": "grpc",
        "rpc.grpc.status_code": 0,
        "skipstone.request_id": told.request_id,
        "skipstone.tier": told.tier.value,
        "skipstone.reason": told.reason,
        "skipstone.skip_steps": 0,
        "skipstone.executed_steps": told.executed_steps,
        "skipstone.num_inference_steps": told.num_inference_steps,
    }


def test_no_prompt_and_no_namespace_is_sent(
    observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    result = generate(observed.client, namespace)
    trace_of(collector, result, "save")

    assert collector.holds(result.provenance.request_id)
    assert not collector.holds(PROMPT)
    assert not collector.holds(namespace)


def test_a_service_that_died_shows_as_the_stage_that_failed(
    observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    observed.kill("vector_index")
    try:
        result = generate(observed.client, namespace)
        spans = trace_of(collector, result, GENERATE)
    finally:
        observed.restart("vector_index")

    root = only(spans, GENERATE)
    assert root.error == ""
    assert any("/vector_index/" in told for told in root.attributes["skipstone.fallbacks"])


def test_calls_of_an_application_that_traces_belong_to_its_trace(
    observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    from opentelemetry import context, trace

    ids = trace.SpanContext(0x1234 << 96 | 1, 0x5678, False, trace.TraceFlags(1))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(ids)))
    try:
        result = generate(observed.client, namespace)
    finally:
        context.detach(token)

    spans = trace_of(collector, result, "save")
    assert only(spans, GENERATE).parent_id == f"{0x5678:016x}"
    assert {s.trace_id for s in spans} == {f"{0x1234 << 96 | 1:032x}"}


@contextmanager
def logged_latent_kv(log: Path, *flags: str) -> Iterator[tuple[LatentKVClient, Popen[bytes]]]:
    """A store of its own whose log goes to a file."""
    command = service_command("latent_kv", "--port", "0", "--store", "memory", *flags)
    with log.open("wb") as stream:
        process = Popen(command, stderr=stream, env=service_environment())
    try:
        wait_until(lambda: bool(events(log, "serving")), "latent_kv serves")
        with LatentKVClient(events(log, "serving")[0]["address"]) as client:
            yield client, process
    finally:
        process.kill()
        process.wait()


def events(log: Path, name: str) -> list[dict[str, Any]]:
    # gRPC's own library writes lines of its own form, and the last line may be half written.
    told = [line for line in log.read_text().splitlines() if line[:1] + line[-1:] == "{}"]
    lines = [json.loads(line) for line in told]
    return [line for line in lines if line["event"] == name]


LOST = "traces are lost: no collector"
AGAIN = "traces are sent again"


def test_a_collector_that_is_away_costs_a_line_and_that_is_back_gets_traces(tmp_path: Path) -> None:
    with running_collector() as collector:
        endpoint = collector.endpoint
    log = tmp_path / "log"
    with logged_latent_kv(log, "--otlp-endpoint", endpoint) as (client, _):

        def told(event: str) -> bool:
            client.list_entries("n")
            return bool(events(log, event))

        wait_until(lambda: told(LOST), "the loss is told")
        lost_before = len(events(log, "rpc"))
        wait_until(lambda: told(LOST) and len(events(log, "rpc")) > lost_before + 50, "more calls")
        with running_collector(int(endpoint.rsplit(":", 1)[1])) as collector:
            wait_until(lambda: told(AGAIN), "the return is told")
            wait_until(lambda: bool(collector.spans()), "spans come again")
        assert len(events(log, LOST)) == 1


def test_a_service_ends_as_asked_while_its_collector_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        log = tmp_path / "log"
        with logged_latent_kv(log, "--otlp-endpoint", endpoint) as (client, process):
            client.list_entries("n")
            process.terminate()
            assert process.wait(WAIT_TIMEOUT_S) == 0
    assert events(log, "stopped")


def test_a_share_of_the_requests_is_traced_and_a_caller_who_decided_is_followed(
    tmp_path: Path, collector: Collector
) -> None:
    flags = ("--otlp-endpoint", collector.endpoint, "--trace-sample-ratio", "0")
    with logged_latent_kv(tmp_path / "log", *flags) as (client, _):
        with request_scope() as not_chosen:
            client.list_entries("n")
        with request_scope() as chosen, span_scope(PassedSpan(f"00-{'7' * 32}-{'8' * 16}-01")):
            client.list_entries("n")

        def sent() -> set[object]:
            return {s.attributes.get("skipstone.request_id") for s in collector.spans()}

        wait_until(lambda: chosen in sent(), "the caller's trace is continued")
        assert not_chosen not in sent()
    (span,) = collector.spans("7" * 32)
    assert span.parent_id == "8" * 16


def test_a_service_that_traces_nothing_passes_its_callers_trace_on(
    observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    trace_id = "9" * 32
    with observed.another_orchestrator() as client:
        with span_scope(PassedSpan(f"00-{trace_id}-{'8' * 16}-01")):
            generate(client, namespace)

    def services() -> set[str]:
        return {span.service for span in collector.spans(trace_id)}

    wait_until(lambda: "skipstone-denoise" in services(), "spans of the services behind")
    assert "skipstone-orchestrator" not in services()


def test_a_service_without_the_packages_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("")
    environ = service_environment()
    environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environ["PYTHONPATH"]])
    flags = ("--port", "0", "--store", "memory", "--otlp-endpoint", "http://127.0.0.1:4317")
    done = run(service_command("latent_kv", *flags), env=environ, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"pip install 'skipstone[tracing]'" in done.stderr
