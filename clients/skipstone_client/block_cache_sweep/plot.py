"""Draws drift against the share of block calls, with plain runs of fewer steps as the rival."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skipstone_client.block_cache_sweep.choice import PSNR_BARS_DB
from skipstone_client.block_cache_sweep.measure import Measured, rows_of
from skipstone_client.block_cache_sweep.settings import Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RIVAL_COLOUR = "#b8632f"
_COLOURS = {
    "residual repeated": "#2f6db8",
    "residual forecast": "#2f9a6d",
    "preset": "#8a4fb0",
}
_LONGEST_LABEL = 70
_KEY_LINE_INCHES = 0.17


def draw_plot(path: Path, rows: Sequence[Measured], front: Sequence[Measured], title: str) -> None:
    """Writes the plot as PNG.

    Args:
        path: File to write.
        rows: What was measured, in the order of the table, whose numbers are the labels.
        front: Rows to label and to join by a line.
        title: What was run.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    key = [f"{rows.index(row) + 1}  {_shortened(row.setting.label)}" for row in front]
    key_inches = _KEY_LINE_INCHES * (math.ceil(len(key) / 2) + 1)
    figure = Figure(figsize=(11, 4.8 + key_inches), dpi=120)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw(left, rows, front, lambda row: row.drift.psnr_db, "PSNR against the full run, dB")
    for bar in PSNR_BARS_DB:
        left.axhline(bar, color="#999999", linewidth=0.8, linestyle=":")
    _draw(right, rows, front, lambda row: row.drift.rel_l1, "relative L1 difference")
    right.set_yscale("log")
    right.sharex(left)
    left.legend(frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    bottom = key_inches / figure.get_figheight()
    figure.tight_layout(rect=(0, bottom, 1, 1))
    half = math.ceil(len(key) / 2)
    for column, x in ((key[:half], 0.04), (key[half:], 0.52)):
        figure.text(x, bottom, "\n".join(column), fontsize=8, va="top", linespacing=1.3)
    figure.savefig(path, format="png")


def _draw(
    axes: Axes,
    rows: Sequence[Measured],
    front: Sequence[Measured],
    value: Callable[[Measured], float],
    name: str,
) -> None:
    def points(shown: Sequence[Measured]) -> tuple[list[float], list[float]]:
        places = [row for row in shown if _has_place(value(row))]
        return [100 * row.share for row in places], [value(row) for row in places]

    axes.plot(
        *points(rows_of(rows, Kind.FEWER_STEPS)),
        color=_RIVAL_COLOUR, marker="s", markersize=4, linestyle="--", label="plainly fewer steps",
    )  # fmt: skip
    axes.plot(*points(front), color="#777777", linewidth=1, zorder=1)
    cached = rows_of(rows, Kind.BLOCK_CACHE)
    for group, colour in _COLOURS.items():
        x, y = points([row for row in cached if _group(row) == group])
        if x:
            axes.scatter(x, y, color=colour, s=22, label=f"block cache, {group}", zorder=2)
    for row in front:
        if _has_place(value(row)):
            axes.annotate(
                str(rows.index(row) + 1), (100 * row.share, value(row)),
                xytext=(4, 5), textcoords="offset points", fontsize=8,
            )  # fmt: skip
    axes.set_xlabel("block calls run, % of the full run")
    axes.set_ylabel(name)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _has_place(value: float) -> bool:
    # Equal pixels have neither a finite PSNR nor a place on a logarithmic axis; the table has them.
    return 0 < value < math.inf


def _group(row: Measured) -> str:
    config = row.setting.config
    if config.preset is not None:
        return "preset"
    forecasts = config.enable_taylorseer or config.enable_divided_difference
    return "residual forecast" if forecasts else "residual repeated"


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"
