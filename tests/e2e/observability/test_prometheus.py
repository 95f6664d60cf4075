"""A real Prometheus scrapes real services, loads the alert rules and answers every panel."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.generations import REWORDED, generate, wait_saved
from tests.e2e.observability.conftest import ObservedCluster, free_ports
from tests.e2e.processes import SERVICES, wait_until

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus"
DASHBOARD = DEPLOY / "grafana" / "skipstone.json"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="NO PROMETHEUS: alert rules and panels go untested; apt-get install prometheus",
    ),
]

QUIET = {
    "skipstone_fallbacks_total": "nothing failed",
    "skipstone_drift_bucket": "nothing was audited",
    "skipstone_tier_closed": "nothing was audited",
    "skipstone_drift_audits_total": "nothing was audited",
    "skipstone_denoise_block_cache_decisions_total": "no run had block caching",
    "skipstone_denoise_block_calls_total": "0 of 0 is no number",
    "skipstone_stale_vectors_removed_total": "nothing was stale",
    "_migration_missed_writes_total": "nothing moves",
    "skipstone_latent_kv_undeleted_values": "no store is in S3",
    "skipstone_latent_kv_unreadable_records_total": "no store is in S3",
}
"""Metrics without a value on a deployment to which nothing has happened."""

QUIET_PANELS = ("Rpcs that failed",)


ALL_UP = f"count(up == 1) == {len(SERVICES) + 1}"
"""With the gateway."""


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        # Without the proxy of the one who tests.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def is_ready(self) -> bool:
        try:
            with self._opener.open(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; an error of the server fails the test with its words."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with self._opener.open(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, query: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=query)["result"]
        return found


@pytest.fixture(scope="module")
def _prometheus(
    observed_once: ObservedCluster, observed_gateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A server that has scraped a deployment before and after a miss and a hit."""
    observed, namespace = observed_once, f"prometheus-{uuid.uuid4().hex}"
    observed.heal()  # set up before the fixture of the test that needs it first
    tmp_path = tmp_path_factory.mktemp("prometheus")
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(RULES / "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": f"skipstone-{name.replace('_', '-')}",
                "static_configs": [{"targets": [f"127.0.0.1:{observed.metrics_ports[name]}"]}],
            }
            for name in SERVICES
        ]
        + [
            {
                "job_name": "skipstone-gateway",
                "static_configs": [{"targets": [observed_gateway.removeprefix("http://")]}],
            }
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (port,) = free_ports(1)
    command = [
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(port)
        wait_until(server.is_ready, "Prometheus is ready")
        wait_until(lambda: bool(server.query(ALL_UP)), "every service is scraped")
        wait_saved(observed, namespace, generate(observed.client, namespace))
        seeds = itertools.count(2)
        grown = 'sum(increase(skipstone_steps_total{kind="skipped"}[1m])) > 0'

        def is_growing() -> bool:
            # A counter that was not there before grows only with the second hit.
            generate(observed.client, namespace, REWORDED, seed=next(seeds))
            return bool(server.query(grown))

        wait_until(is_growing, "hits are scraped")
        yield server
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def prometheus(observed: ObservedCluster, _prometheus: Prometheus) -> Prometheus:
    """The server, over a deployment that is whole again and seen to be."""
    wait_until(lambda: bool(_prometheus.query(ALL_UP)), "every service is scraped")
    return _prometheus


def panel_queries() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [
        (panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())
    ]


def test_the_alert_rules_are_valid_and_fire_when_they_should() -> None:
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            ["promtool", *arguments], cwd=RULES, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def empty_panels(prometheus: Prometheus) -> list[str]:
    empty = []
    for title, query in panel_queries():
        filled = query.replace("$__rate_interval", "1m").replace("$job", "skipstone.*")
        quiet = title in QUIET_PANELS or any(name in query for name in QUIET)
        if not quiet and not prometheus.query(filled):
            empty.append(title)
    return empty


def test_every_panel_shows_data_of_a_deployment_that_serves(prometheus: Prometheus) -> None:
    """A rate needs two looks at a counter, which some services show only once they have run."""
    wait_until(lambda: empty_panels(prometheus) == [], "every panel shows data")


def test_a_healthy_deployment_raises_no_alert(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 10
    wait_until(
        lambda: all(
            rule["health"] == "ok"
            for group in prometheus.ask("rules")["groups"]
            for rule in group["rules"]
        ),
        "every rule was evaluated",
    )
    # A test before may have killed a service that is back.
    wait_until(lambda: prometheus.ask("alerts")["alerts"] == [], "no alert")


@pytest.mark.long
def test_a_killed_service_and_its_open_breaker_become_alerts(
    prometheus: Prometheus, observed: ObservedCluster, namespace: str
) -> None:
    observed.kill("latent_kv")
    generate(observed.client, namespace)

    def pending() -> set[str]:
        return {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}

    wait_until(lambda: {"SkipstoneServiceDown", "SkipstoneBreakerOpen"} <= pending(), "both alerts")


def test_a_slow_bucket_leads_to_the_trace_of_a_request(prometheus: Prometheus) -> None:
    found = prometheus.ask(
        "query_exemplars",
        query='skipstone_stage_seconds_bucket{stage="total"}',
        start="0",
        end="9999999999",
    )
    ids = {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}
    assert ids
    assert all(len(trace_id) == 32 for trace_id in ids)
