"""Figures as JSON lines: median, spread and number of samples."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np


def print_figure(
    figure: str, entries: int, mb: float, samples: Sequence[float], **more: object
) -> None:
    """One line; of a recall, p99 is what all but the worst hundredth reach."""
    tail = 1 if figure.startswith("recall") else 99
    p25, p50, p75, p99 = np.percentile(samples, [25, 50, 75, tail])
    line: dict[str, object] = {"figure": figure, "entries": entries, "mb": mb}
    line |= {"p50": _rounded(p50), "p99": _rounded(p99), "n": len(samples)}
    line |= {"p25": _rounded(p25), "p75": _rounded(p75)}
    print(json.dumps(line | more), flush=True)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
