"""The lines of `make bench-backends`, one form for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np


def print_figure(
    figure: str,
    backend: str,
    size: float,
    wall_ms: Sequence[float],
    cpu_ms: Sequence[float],
    **more: object,
) -> None:
    """Prints one line.

    Args:
        figure: What was measured, such as `kv_get_ms`; its unit is that of `p50` and `p99`.
        backend: Of what.
        size: Megabytes of latents, or entries that there are.
        wall_ms: Milliseconds on the wall, one value for each sample.
        cpu_ms: CPU milliseconds of all processes that count, whose median is told.
        more: What else the line says.
    """
    p50, p99 = np.percentile(wall_ms, [50, 99])
    line = {
        "figure": figure,
        "backend": backend,
        "size": size,
        "p50": round(float(p50), 2),
        "p99": round(float(p99), 2),
        "cpu_ms": round(float(np.median(cpu_ms)), 2),
        "n": len(wall_ms),
    }
    print(json.dumps(line | more), flush=True)
