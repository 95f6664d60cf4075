"""The lines that the benchmark prints."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One figure, ours beside a rival's.

    Attributes:
        figure: What is measured, with its unit.
        model: What it is measured on.
        config: The setting.
        value: Ours.
        rival: Whose `rival_value` is; None where there is no rival.
        rival_value: The rival's.
        n: Measurements behind `value`.
        spread: Lower and upper quartile of our measurements; None for a single one.
    """

    figure: str
    model: str
    config: str
    value: float
    rival: str | None = None
    rival_value: float | None = None
    n: int = 1
    spread: tuple[float, float] | None = None

    def show(self) -> None:
        """Prints one JSON line, numbers to five significant digits."""
        print(json.dumps({key: _rounded(value) for key, value in asdict(self).items()}), flush=True)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Returns the lower and the upper quartile of at least two values."""
    lower, _, upper = statistics.quantiles(values, n=4)
    return lower, upper


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return [_rounded(item) for item in value] if isinstance(value, tuple) else value
