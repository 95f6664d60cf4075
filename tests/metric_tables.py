"""The metrics that docs/observability.md lists, and those that a query names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs" / "observability.md"
SOME_SETTINGS = "Only with some settings"
EVERY_SERVICE = "Every service"
SERVICES = ("orchestrator", "embedding", "vector_index", "latent_kv", "denoise")
GATEWAY = "gateway"
"""It serves HTTP, so it has none of the metrics of every service."""

_ROW = re.compile(r"^\| `(skipstone_\w+)` \| (\w+) \| ([^|]*)\| [^|]+ \|$", re.MULTILINE)
_NAME = re.compile(r"(?<![\w/.])(?:skipstone|process)_[a-z_]+(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=|!=|=~|!~)\s*\"")
_OF_TARGETS = frozenset({"job", "instance"})
_PROCESS = re.compile(r"`(process_\w+|python_info)`")


@dataclasses.dataclass(frozen=True)
class DocumentedMetric:
    """One row."""

    name: str
    type: str
    labels: frozenset[str]

    def series(self) -> Mapping[str, frozenset[str]]:
        """Names that can be queried, with their labels."""
        if self.type != "histogram":
            return {self.name: self.labels}
        return {
            f"{self.name}_bucket": self.labels | {"le"},
            f"{self.name}_sum": self.labels,
            f"{self.name}_count": self.labels,
        }


def documented(section: str) -> dict[str, DocumentedMetric]:
    """The metrics of one section of the page, by name."""
    text = DOCS.read_text(encoding="utf-8")
    body = text.split(f"### {section}\n")[1].split("\n#")[0]
    rows = _ROW.findall(body)
    assert rows, f"no table under {section}"
    return {
        name: DocumentedMetric(name, kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in rows
    }


def queryable() -> dict[str, frozenset[str]]:
    """Every name that the page says can be queried, with its labels."""
    found: dict[str, frozenset[str]] = {}
    for section in (EVERY_SERVICE, *SERVICES, GATEWAY, SOME_SETTINGS):
        for metric in documented(section).values():
            found.update(metric.series())
    for name in _PROCESS.findall(DOCS.read_text(encoding="utf-8")):
        found[name] = frozenset()
    return found


def named_in(query: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Metrics in a PromQL query, each with the labels that its selector names."""
    for match in _NAME.finditer(query):
        name = match.group(0).partition("{")[0]
        yield name, frozenset(_LABEL.findall(match.group(1) or "")) - _OF_TARGETS
