"""What the chart's PodMonitor makes of pods is what the alert rules and the dashboard look for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.rendered import COMPONENTS, EVERYTHING, of_kind, render, workloads

DEPLOY = Path(__file__).parents[3] / "deploy"
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "skipstone.json").read_text(encoding="utf-8"))

_LABEL_OF_POD = "__meta_kubernetes_pod_label_"


def jobs(values: Mapping[str, Any], name: str) -> dict[str, str]:
    """The job of each service of a release, as Prometheus names it under the operator."""
    manifests = render(values, name)
    (monitor,) = of_kind(manifests, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    found = {}
    for workload in workloads(manifests):
        # The operator's own name of the job, and the labels of the pod as they are discovered.
        labels = {"job": f"somewhere/{monitor['metadata']['name']}"}
        for key, value in workload.labels.items():
            labels[_LABEL_OF_POD + re.sub(r"\W", "_", key)] = value
        for rule in endpoint["relabelings"]:
            replace(labels, rule)
        found[workload.key] = labels["job"]
    return found


def replace(labels: dict[str, str], rule: Mapping[str, Any]) -> None:
    """A relabeling whose action is the default one, `replace`, with the default regex `(.*)`."""
    assert rule.keys() == {"sourceLabels", "targetLabel", "replacement"}
    source = ";".join(labels.get(label, "") for label in rule["sourceLabels"])
    labels[rule["targetLabel"]] = rule["replacement"].replace("$1", source)


@pytest.mark.parametrize("name", ["demo", "pictures"])
def test_the_operator_names_jobs_after_services_whatever_the_release_is_called(name: str) -> None:
    values = {**EVERYTHING, "fullnameOverride": name}
    assert jobs(values, name) == {
        key: f"skipstone-{component}" for key, component in COMPONENTS.items()
    }


def test_rules_and_dashboard_look_for_these_jobs() -> None:
    names = jobs(EVERYTHING, "pictures").values()
    expressions = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
    patterns = [found for text in expressions for found in re.findall(r'job=~"([^"]*)"', text)]
    (variable,) = (v for v in DASHBOARD["templating"]["list"] if v["name"] == "job")
    patterns += [variable["allValue"], *re.findall(r'job=~"([^"]*)"', variable["definition"])]
    assert len(patterns) == 3
    for pattern in patterns:
        assert [name for name in names if not re.fullmatch(pattern, name)] == []


def test_a_job_of_any_service_can_be_chosen() -> None:
    """The gateway has no rpcs, and a service that is down has no metrics but this one."""
    (variable,) = (v for v in DASHBOARD["templating"]["list"] if v["name"] == "job")
    assert variable["definition"].startswith("label_values(up{")
    assert variable["query"]["query"] == variable["definition"]
