"""The plot of all methods: quality against what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from quality.figures import Figures
from quality.methods import GRID, Method, Reuse, compared, plain

_COLOURS: Final = {
    Reuse.NONE: "tab:blue",
    Reuse.EXACT: "tab:green",
    Reuse.LATENT: "tab:red",
    Reuse.TABLE: "tab:orange",
}
_MARKERS: Final = {None: "o", "balanced": "s", "fast": "^"}
_PANELS: Final = (
    ("energy_distance", "energy distance from converged pictures, grey levels"),
    ("attribute_accuracy", "share of attributes right"),
)


def draw_curves(path: Path, figures: Figures) -> None:
    """Draws plain runs as a line and every other method as a point, a row per base.

    Args:
        path: Picture to write.
        figures: Of `bench_trace.py`.
    """
    drawing = Figure(figsize=(12, 4.8 * len(figures.bases)), dpi=100, layout="constrained")
    FigureCanvasAgg(drawing)
    rows = drawing.subplots(len(figures.bases), len(_PANELS), squeeze=False)
    for axes_of_base, base in zip(rows, figures.bases, strict=True):
        for axes, (figure, label) in zip(axes_of_base, _PANELS, strict=True):
            _draw_panel(axes, figures, figure, base)
            axes.set_ylabel(label)
            axes.set_xlabel("mean steps of a request (a step under block caching counts its share)")
            axes.set_title(f"N = {base}", loc="left", fontsize=10)
    rows[0][0].legend(frameon=False, fontsize=8)
    drawing.savefig(path)


def _draw_panel(axes: Any, figures: Figures, figure: str, base: int) -> None:
    steps = [n for n in GRID if n <= base]
    curve = [figures.of(figure, plain(n).name, base) for n in steps]
    low, high = zip(*[f.interval or (f.value, f.value) for f in curve], strict=True)
    axes.fill_between(steps, low, high, color="tab:gray", alpha=0.15, linewidth=0)
    axes.plot(steps, [f.value for f in curve], ".-", color="tab:gray", label="plain runs")
    for method in compared(base):
        found = figures.of(figure, method.name, base)
        cost = figures.of("mean_steps", method.name, base).value
        low_y, high_y = found.interval or (found.value, found.value)
        axes.plot([cost, cost], [low_y, high_y], color=_colour(method), linewidth=0.8, alpha=0.6)
        axes.plot(cost, found.value, _marker(method), color=_colour(method), label=method.name)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if figure == "energy_distance":
        # Differences between many steps are a thousandth of those between few; near 0, where
        # estimates may be negative, the axis is linear.
        axes.set_yscale("symlog", linthresh=0.005)


def _colour(method: Method) -> str:
    return _COLOURS[method.reuse]


def _marker(method: Method) -> str:
    return _MARKERS[method.preset.value if method.preset else None]
