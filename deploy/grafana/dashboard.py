"""Makes the Grafana dashboard: `PYTHONPATH=deploy python -m grafana.dashboard` writes it.

What it shows stands in `panels.py`; where a panel stands follows from its place there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana.panels import ROWS, Panel

PATH = Path(__file__).with_name("skipstone.json")

_WIDTH = 24
_HEIGHT = 8
_PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "skipstone",
        "title": "Skipstone",
        "tags": ["skipstone"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), _job()]},
        "annotations": {"list": []},
        "panels": _panels(),
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place, "panels": []}
        )
        top += 1
        per_line = 3 if len(row) % 3 == 0 else 4
        width = _WIDTH // per_line
        for number, panel in enumerate(row):
            line, column = divmod(number, per_line)
            place = {"x": column * width, "y": top + line * _HEIGHT, "w": width, "h": _HEIGHT}
            panels.append(_panel(len(panels) + 1, panel, place))
        top += -(-len(row) // per_line) * _HEIGHT
    return panels


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _PROMETHEUS,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"stacking": stacking, "fillOpacity": 20 if panel.stacked else 0},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place_),
                "datasource": _PROMETHEUS,
                "expr": query,
                "legendFormat": legend,
                "exemplar": panel.exemplars,
                "range": True,
            }
            for place_, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _job() -> dict[str, Any]:
    query = 'label_values(up{job=~"skipstone.*"}, job)'
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": _PROMETHEUS,
        "query": {"query": query, "refId": "job"},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": "skipstone.*",
        "current": {"text": "All", "value": "$__all"},
    }


def rendered() -> str:
    """The text of the file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(rendered(), encoding="utf-8")
