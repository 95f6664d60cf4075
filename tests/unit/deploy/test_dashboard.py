"""The dashboard and the alert rules ask for metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana.dashboard import rendered
from tests.metric_tables import named_in, queryable

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "skipstone.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"


def panels() -> list[dict[str, Any]]:
    found = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def panel_queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("query", [*panel_queries(), *(rule["expr"] for rule in rules())])
def test_a_query_names_only_metrics_and_labels_that_are_documented(query: str) -> None:
    known = queryable()
    named = list(named_in(query))
    assert named or query.startswith("up{")
    for name, labels in named:
        assert name in known, f"{name} is not in docs/observability.md"
        assert labels <= known[name], f"{name} has no {set(labels - known[name])}"


@pytest.mark.parametrize("query", panel_queries())
def test_what_a_panel_groups_by_are_labels_of_its_metrics(query: str) -> None:
    known = queryable()
    labels = frozenset[str]().union(*(known[name] for name, _ in named_in(query)))
    for group in re.findall(r"by \(([^)]*)\)", query):
        wanted = {name.strip() for name in group.split(",")}
        assert wanted <= labels | {"job", "instance"}


def test_a_misspelt_metric_would_be_noticed() -> None:
    assert list(named_in('rate(skipstone_request_total{tear="miss", job=~"x"}[5m])')) == [
        ("skipstone_request_total", frozenset({"tear"}))
    ]
    assert "skipstone_request_total" not in queryable()


def test_the_dashboard_is_what_its_script_makes() -> None:

    assert DASHBOARD.read_text(encoding="utf-8") == rendered()


def test_no_two_panels_lie_over_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_documented_metric_of_a_queue_or_a_trouble_is_on_a_panel() -> None:
    shown = {name for query in panel_queries() for name, _ in named_in(query)}
    watched = re.compile(
        r"queued|fallbacks|removals|breaker|quarantined|closed|drift_bucket|missed|un(readable|deleted)"
    )
    assert {name for name in queryable() if watched.search(name)} <= shown


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]


def test_every_alert_is_fired_by_a_test_of_its_own() -> None:
    tests = (DEPLOY / "prometheus" / "alerts_test.yml").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules() if rule["alert"] not in tests] == []
