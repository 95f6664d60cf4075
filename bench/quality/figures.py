"""The lines that the benchmarks print and the page is made of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class QualityFigure:
    """One figure of one method.

    Attributes:
        figure: What is measured, with its unit where it has one.
        method: Of `quality.methods`, or what else was measured.
        base: N of the method's own schedule.
        value: Mean over all, or what the figure says.
        interval: 95 % of a bootstrap; None where nothing was drawn.
        p50: Median over requests; None where the figure is not of single requests.
        p99: 99 % of requests have at most this.
        n: Requests behind the value.
    """

    figure: str
    method: str
    base: int
    value: float
    interval: tuple[float, float] | None = None
    p50: float | None = None
    p99: float | None = None
    n: int = 0

    def line(self) -> str:
        """The figure as one JSON line, numbers to five significant digits."""
        return json.dumps({key: _rounded(x) for key, x in dataclasses.asdict(self).items()})


class Figures:
    """Figures by what they are of."""

    def __init__(self, figures: Sequence[QualityFigure]) -> None:
        """Takes figures of one benchmark."""
        self._found = {(f.figure, f.method, f.base): f for f in figures}

    @property
    def bases(self) -> list[int]:
        """Numbers of steps that gains were measured for."""
        return sorted({base for figure, _, base in self._found if figure == "equal_quality_gain"})

    def of(self, figure: str, method: str, base: int) -> QualityFigure:
        """One figure.

        Raises:
            SystemExit: it was not measured.
        """
        key = figure, method, base
        if key not in self._found:
            raise SystemExit(f"{figure} of {method} at {base} steps is not measured yet")
        return self._found[key]

    def has(self, figure: str, method: str, base: int) -> bool:
        """Whether a figure was measured."""
        return (figure, method, base) in self._found

    def text(self, figure: str, method: str, base: int, form: str = ".2f") -> str:
        """Value and interval."""
        found = self.of(figure, method, base)
        if found.interval is None:
            return f"{found.value:{form}}"
        low, high = found.interval
        return f"{found.value:{form}} ({low:{form}} to {high:{form}})"


def interval_of(draws: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The middle 95 % of the draws of a bootstrap."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def quantiles_of(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Median and 99 % quantile of single requests."""
    p50, p99 = np.percentile(values, [50, 99])
    return float(p50), float(p99)


def publish(figures: Iterable[QualityFigure], path: Path) -> None:
    """Prints figures and keeps them in a file for the page."""
    lines = [figure.line() for figure in figures]
    print("\n".join(lines), flush=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def read_figures(path: Path) -> list[QualityFigure]:
    """Figures that were kept."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        QualityFigure(**{**row, "interval": row["interval"] and tuple(row["interval"])})
        for row in rows
    ]


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return [_rounded(item) for item in value] if isinstance(value, tuple) else value
