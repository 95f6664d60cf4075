"""The lines that `bench_entry_cost.py` prints and its page is made of."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

Line = dict[str, Any]
_VALUES = {"p50", "min", "max", "n"}


class Figures:
    """Prints lines and keeps them."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, figure: str, values: Sequence[float], **told: object) -> None:
        """Prints the median and the extremes of some values."""
        line: Line = {"figure": figure, **told, "p50": _rounded(statistics.median(values))}
        if len(values) > 1:
            line |= {"min": _rounded(min(values)), "max": _rounded(max(values))}
        self.lines.append(line | {"n": len(values)})
        print(json.dumps(self.lines[-1]), flush=True)


def replaced(lines: Sequence[Line], new: Sequence[Line]) -> list[Line]:
    """Lines of earlier runs, those measured anew replaced."""

    def key(line: Line) -> str:
        return json.dumps({name: line[name] for name in sorted(line.keys() - _VALUES)})

    return list({key(line): line for line in (*lines, *new)}.values())


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
