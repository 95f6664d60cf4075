"""The table and the plot of `bench_eviction.py`, and parts of docs/capacity.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

PAGE: Final = Path("docs/capacity.md")
NAMES: Final = {"lru": "LRU", "fifo": "FIFO", "lcbfu": "LCBFU", "aged_lcbfu": "aged LCBFU"}
COLOURS: Final = {"lru": "#2f6db8", "fifo": "#e2a33b", "lcbfu": "#b8443c", "aged_lcbfu": "#4f8f5b"}
_MARKS: Final = {"lru": "o", "fifo": "s", "lcbfu": "v", "aged_lcbfu": "^"}

Line = dict[str, Any]
"""A JSON line of the benchmark."""

_PLAIN: Final = {"save_below": 50, "half_life": 500, "first_n": None}
WAYS: Final[dict[str, Line]] = {
    "the product: full runs donate, new seeds": {"max_donor_depth": 0, "same_seed": False},
    "the product, repeats with their old seeds": {"max_donor_depth": 0, "same_seed": True},
    "resumed runs donate too, new seeds": {"max_donor_depth": None, "same_seed": False},
}


def cells_of(lines: Sequence[Line], way: Line) -> dict[tuple[str, int | None], Line]:
    """The lines of one way to count, by policy and capacity."""
    wanted = _PLAIN | way
    chosen = [line for line in lines if all(line[key] == wanted[key] for key in wanted)]
    return {(line["policy"], line["capacity"]): line for line in chosen}


def eviction_table(lines: Sequence[Line]) -> str:
    """Share of steps saved by capacity, a row per way and policy, as Markdown."""
    capacities = sorted({line["capacity"] for line in lines if line["capacity"]})
    head = [f"{capacity:,}" for capacity in capacities]
    rows = [
        "| counted as | policy | " + " | ".join(head) + " | unbounded |",
        "|---|---|" + "---|" * (len(head) + 1),
    ]
    for name, way in WAYS.items():
        found = cells_of(lines, way)
        bound = f"{100 * found['lru', None]['value']:.1f}"
        for policy, label in NAMES.items():
            cells = [f"{100 * found[policy, capacity]['value']:.1f}" for capacity in capacities]
            rows.append(f"| {name} | {label} | {' | '.join(cells)} | {bound} |")
            name = ""
    return "\n".join(rows)


def draw_eviction(path: Path, lines: Sequence[Line]) -> None:
    """Draws share of steps saved over capacity, a panel per way to count."""
    with mpl.rc_context({"svg.hashsalt": "skipstone", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(11, 3.6), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        panels = figure.subplots(1, len(WAYS), sharey=True)
        for axes, (name, way) in zip(panels, WAYS.items(), strict=True):
            _draw_panel(axes, name, cells_of(lines, way))
        panels[0].set_ylim(0, 100 * max(line["value"] for line in lines) + 1)
        panels[0].set_ylabel("steps saved, % of all")
        panels[0].legend(frameon=False, loc="lower right")
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(axes: Axes, name: str, found: dict[tuple[str, int | None], Line]) -> None:
    for policy, label in NAMES.items():
        points = sorted(
            (c, 100 * line["value"]) for (p, c), line in found.items() if p == policy and c
        )
        xs, ys = zip(*points, strict=True)
        axes.plot(
            xs,
            ys,
            label=label,
            color=COLOURS[policy],
            marker=_MARKS[policy],
            linestyle="--" if policy == "fifo" else "-",
            markersize=4,
        )
    bound = 100 * found["lru", None]["value"]
    axes.axhline(bound, color="#555555", linewidth=0.9, linestyle=":", label="never evicting")
    axes.set_xscale("log")
    ticks = sorted(c for p, c in found if p == "lru" and c)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(name, fontsize=10)
    axes.set_xlabel("capacity, entries")
    axes.spines[["top", "right"]].set_visible(False)
