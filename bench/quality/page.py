"""Writes the measured parts of docs/benchmarks.md, section "What reuse saves", and its plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from page_parts import replace_part
from quality.figures import Figures, QualityFigure, read_figures
from quality.methods import FRESH_SEEDS, GRID, NEW_SEEDS, Method, Reuse, compared, plain
from quality.plots import draw_curves
from quality.session import QUALITY_FIGURES, TRACE_FIGURES

PAGE: Final = Path("docs/benchmarks.md")
PLOT: Final = Path("docs/images/reuse-curves.png")
_SAVING: Final = ("exact", "approximate")


def write_page(folder: Path) -> None:
    """Fills in what the two benchmarks measured last.

    Args:
        folder: Where they keep their figures.
    """
    trace = Figures(read_figures(folder / TRACE_FIGURES))
    quality = Figures(read_figures(folder / QUALITY_FIGURES))
    draw_curves(PLOT, trace)
    replace_part(PAGE, "reuse-headline", headline(trace))
    replace_part(PAGE, "reuse-gains", "\n\n".join(gain_table(trace, base) for base in trace.bases))
    replace_part(PAGE, "reuse-hits", hit_table(trace))
    replace_part(PAGE, "reuse-quality", "\n\n".join(quality_table(trace, b) for b in trace.bases))
    replace_part(PAGE, "reuse-steps", curve_table(quality))
    replace_part(PAGE, "reuse-seeds", seed_table(quality, trace.bases))


def headline(figures: Figures) -> str:
    """The best method with and without block caching per base, as Markdown."""
    return "\n".join(_headline(figures, base) for base in figures.bases)


def _headline(figures: Figures, base: int) -> str:
    def gain(method: Method) -> float:
        return figures.of("equal_quality_gain", method.name, base).value

    reusing = [method for method in compared(base) if method.reuse is Reuse.LATENT]
    [alone] = [method for method in reusing if method.preset is None]
    best = max((method for method in reusing if method.preset is not None), key=gain)
    return (
        f"- N = {base}: **{figures.text('equal_quality_gain', alone.name, base)}** by the cache "
        f"alone, of which the exact tier gives "
        f"{figures.of('equal_quality_gain', 'exact cache', base).value:.2f}; "
        f"**{figures.text('equal_quality_gain', best.name, base)}** with block caching "
        f"(`{best.preset.value if best.preset else ''}`); "
        f"{figures.text('equal_quality_gain', 'published table alone', base)} by a published table "
        "of cosines without a gate. If every repeat brought a new seed, the cache alone would save "
        f"{100 * (1 - figures.of('mean_steps', NEW_SEEDS, base).value / base):.1f} % of the steps."
    )


def gain_table(figures: Figures, base: int) -> str:
    """Cost and gain of every method of a base, as Markdown."""
    pictures = figures.of("energy_distance", "latent cache", base).n
    lines = [
        f"**N = {base}** ({pictures} requests with pictures)",
        "",
        "| method | mean steps | plain steps of equal quality, by energy distance | "
        "by distance to the own full run | gain |",
        "|---|---|---|---|---|",
    ]
    for method in compared(base):
        cells = [
            figures.text("mean_steps", method.name, base, ".1f"),
            figures.text("equal_steps_by_energy", method.name, base, ".1f"),
            figures.text("equal_steps_by_distance", method.name, base, ".1f"),
            f"**{figures.text('equal_quality_gain', method.name, base)}**",
        ]
        lines.append(f"| {method.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def hit_table(figures: Figures) -> str:
    """Tiers of those who decide, and how good resumed requests are, as Markdown."""
    lines = [
        "| N | who decides | exact | approximate | of these from another scene | mean steps | "
        "attributes of resumed requests right | less than from noise | distance to own full run |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for base in figures.bases:
        for method in ("latent cache", *FRESH_SEEDS, "published table alone"):
            shares = [figures.of(f"tier_share_{t}", method, base).value for t in _SAVING]
            cells = [
                *(f"{100 * share:.1f} %" for share in shares),
                _wrong(figures, method, base),
                figures.text("mean_steps", method, base, ".1f"),
                *_of_hits(figures, method, base),
            ]
            lines.append(f"| {base} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _wrong(figures: Figures, method: str, base: int) -> str:
    if not figures.has("wrong_hit_share", method, base):
        return "-"
    found = figures.of("wrong_hit_share", method, base)
    return f"{round(found.value * found.n)} of {found.n}"


def _of_hits(figures: Figures, method: str, base: int) -> list[str]:
    if not figures.has("hit_attribute_accuracy", method, base):
        return ["-", "-", "-"]
    right = figures.of("hit_attribute_accuracy", method, base)
    return [
        f"{100 * right.value:.1f} % (n {right.n})",
        _points(figures.of("hit_attribute_accuracy_less_full", method, base)),
        f"{figures.of('hit_distance_to_full_run', method, base).value:.1f}",
    ]


def quality_table(figures: Figures, base: int) -> str:
    """Quality of every method of a base, as Markdown."""
    lines = [
        f"**N = {base}**",
        "",
        "| method | attributes right | less than the full run | everything right | "
        "distance to own full run | energy distance |",
        "|---|---|---|---|---|---|",
    ]
    fewer = [plain(steps) for steps in GRID if 0.4 * base <= steps <= base]
    for method in (*fewer, *compared(base)):
        cells = [
            f"{100 * figures.of('attribute_accuracy', method.name, base).value:.1f} %",
            _points(figures.of("attribute_accuracy_less_full", method.name, base)),
            f"{100 * figures.of('everything_right', method.name, base).value:.1f} %",
            f"{figures.of('distance_to_full_run', method.name, base).value:.2f}",
            figures.text("energy_distance", method.name, base, ".4f"),
        ]
        lines.append(f"| {method.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _points(figure: QualityFigure) -> str:
    low, high = figure.interval or (figure.value, figure.value)
    return f"{100 * figure.value:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"


def curve_table(figures: Figures) -> str:
    """Quality of plain runs by steps, as Markdown."""
    found = figures.of("knee_steps", "plain", GRID[-1])
    lines = [
        f"The knee is at **{found.value:.0f} steps** ({found.n} requests).",
        "",
        "| steps | energy distance | attributes right | distance to the run with 50 steps |",
        "|---|---|---|---|",
    ]
    for steps in GRID:
        name = plain(steps).name
        accuracy = 100 * figures.of("attribute_accuracy", name, steps).value
        distance = figures.of("distance_to_50_steps", name, steps).value
        energy = figures.text("energy_distance", name, steps, ".4f")
        lines.append(f"| {steps} | {energy} | {accuracy:.1f} % | {distance:.2f} |")
    return "\n".join(lines)


def seed_table(figures: Figures, bases: Sequence[int]) -> str:
    """Seed diversity per base, as Markdown."""
    lines = [
        "| N | steps skipped for the same prompt | spread over that of full runs | captions |",
        "|---|---|---|---|",
    ]
    for base in bases:
        skipped = 100 * figures.of("same_prompt_skipped_share", "latent cache", base).value
        found = figures.of("seed_diversity", "latent cache", base)
        spread = figures.text("seed_diversity", "latent cache", base, ".3f")
        lines.append(f"| {base} | {skipped:.0f} % | {spread} | {found.n} |")
    return "\n".join(lines)
