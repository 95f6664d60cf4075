"""What running services expose is what docs/observability.md says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.e2e.generations import REWORDED, STEPS, generate, wait_saved
from tests.e2e.observability.conftest import ObservedCluster
from tests.e2e.observability.test_tracing import trace_of
from tests.e2e.observability.trace_collector import Collector
from tests.e2e.processes import SERVICES
from tests.metric_tables import (
    EVERY_SERVICE,
    GATEWAY,
    SOME_SETTINGS,
    DocumentedMetric,
    documented,
)

pytestmark = pytest.mark.e2e


def exposed(text: str) -> Mapping[str, DocumentedMetric]:
    """A service's own metrics in the form of the documentation."""
    found = {}
    for family in parse_text(text):
        if family.name.startswith("skipstone_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[name] = DocumentedMetric(name, family.type, frozenset(labels))
    return found


def values(families: Sequence[Metric], name: str) -> dict[frozenset[tuple[str, str]], float]:
    return {
        frozenset(sample.labels.items()): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


@pytest.fixture
def served(observed: ObservedCluster, namespace: str) -> ObservedCluster:
    """A cluster that has served a miss and a hit."""
    wait_saved(observed, namespace, generate(observed.client, namespace))
    generate(observed.client, namespace, REWORDED, seed=2)
    return observed


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_exposes_the_metrics_of_its_table(served: ObservedCluster, service: str) -> None:
    told = {**documented(EVERY_SERVICE), **documented(service)}
    optional = documented(SOME_SETTINGS)
    found = exposed(served.scrape(service))
    assert set(told) <= set(found) <= {*told, *optional}
    for name, metric in found.items():
        row = told.get(name) or optional[name]
        assert metric.type == row.type, name
        # A counter by label that has not counted yet shows none.
        assert metric.labels in (row.labels, frozenset()), name


def test_the_gateway_exposes_the_metrics_of_its_table_and_the_traces_of_slow_requests(
    observed_gateway: str, served: ObservedCluster, namespace: str
) -> None:
    body = {"prompt": REWORDED, "skipstone": {"namespace": namespace, "steps": STEPS}}
    openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with httpx.Client(base_url=observed_gateway, timeout=60.0, trust_env=False) as http:
        answer = http.post("/v1/images/generations", json=body).raise_for_status()
        http.request("GUESS", f"/{namespace}")
        text = http.get("/metrics").text
        families = list(parse_openmetrics(http.get("/metrics", headers=openmetrics).text))
    assert exposed(text) == documented(GATEWAY)
    assert namespace not in text
    assert "GUESS" not in text
    exemplars = {
        sample.exemplar.labels["trace_id"]
        for family in families
        for sample in family.samples
        if sample.exemplar and sample.labels["route"] == "/v1/images/generations"
    }
    assert answer.headers["x-skipstone-trace-id"] in exemplars


@pytest.mark.parametrize("service", SERVICES)
def test_no_label_holds_a_prompt_or_a_namespace(
    served: ObservedCluster, service: str, namespace: str
) -> None:
    text = served.scrape(service)
    assert namespace not in text
    assert REWORDED not in text


def test_what_a_hit_saved_is_counted(observed: ObservedCluster, namespace: str) -> None:
    def counted() -> tuple[float, float]:
        families = list(parse_text(observed.scrape("orchestrator")))
        steps = values(families, "skipstone_steps_total")
        requests = values(families, "skipstone_requests_total")
        hits = sum(v for labels, v in requests.items() if ("tier", "approximate") in labels)
        return steps.get(frozenset({("kind", "skipped")}), 0.0), hits

    wait_saved(observed, namespace, generate(observed.client, namespace))
    skipped, hits = counted()
    result = generate(observed.client, namespace, REWORDED, seed=2)
    assert counted() == (skipped + result.provenance.skip_steps, hits + 1)


def test_stores_tell_what_they_hold(observed: ObservedCluster, namespace: str) -> None:
    def held(service: str, name: str) -> float:
        (value,) = values(list(parse_text(observed.scrape(service))), name).values()
        return value

    gauges: Sequence[Callable[[], float]] = (
        lambda: held("latent_kv", "skipstone_latent_kv_entries"),
        lambda: held("vector_index", "skipstone_vector_index_entries"),
    )
    before = [gauge() for gauge in gauges]
    size = held("latent_kv", "skipstone_latent_kv_stored_bytes")
    wait_saved(observed, namespace, generate(observed.client, namespace))
    assert [gauge() for gauge in gauges] == [count + 1 for count in before]
    stored = observed.store.get_stats(namespace).size_bytes
    assert stored > 0
    assert held("latent_kv", "skipstone_latent_kv_stored_bytes") == size + stored

    (entry,) = observed.store.list_entries(namespace).entries
    observed.client.delete_entries([entry.entry_id], namespace)
    assert [gauge() for gauge in gauges] == before
    removals = values(
        list(parse_text(observed.scrape("latent_kv"))), "skipstone_latent_kv_removals_total"
    )
    assert sum(count for labels, count in removals.items() if ("kind", "deleted") in labels) >= 1


def test_a_traced_request_is_the_exemplar_of_its_bucket(
    observed: ObservedCluster, collector: Collector, namespace: str
) -> None:
    result = generate(observed.client, namespace)
    spans = trace_of(collector, result, "save")
    text = observed.scrape("orchestrator", accept="application/openmetrics-text; version=1.0.0")
    exemplars = {
        sample.exemplar.labels["trace_id"]
        for family in parse_openmetrics(text)
        for sample in family.samples
        if sample.exemplar and family.name in ("skipstone_stage_seconds", "skipstone_rpc_seconds")
    }
    assert spans[0].trace_id in exemplars


def test_a_breaker_that_opens_is_told(observed: ObservedCluster, namespace: str) -> None:
    observed.kill("vector_index")
    generate(observed.client, namespace)
    families = list(parse_text(observed.scrape("orchestrator")))
    states = values(families, "skipstone_breaker_state")
    assert states[frozenset({("service", "vector_index"), ("state", "open")})] == 1
    assert states[frozenset({("service", "latent_kv"), ("state", "open")})] == 0
    assert values(families, "skipstone_fallbacks_total")
