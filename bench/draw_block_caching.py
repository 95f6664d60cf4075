"""Makes the pictures and the measured tables of docs/block-caching.md anew: `make pictures`.

Everything comes out of the product: a sweep and a request through real processes, masks from the
executor's own rules, presets from the pictures that `bench_blockcache.py` measures (those that it
has measured with the present weights are not measured again).
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from blockcache import curve
from blockcache.figures import Figure as Measured
from page_parts import replace_part
from server_process import end_in_order_on_sigterm
from skipstone_client import OrchestratorClient
from skipstone_client.local_cluster import LocalCluster
from skipstone_denoise.blockcache.known_adapters import KNOWN_ADAPTERS
from skipstone_denoise.blockcache.presets import PRESETS
from skipstone_denoise.blockcache.step_mask import COMPAT_MISSING, compat_mask, own_mask
from skipstone_shared.block_cache_json import block_cache_as_json
from skipstone_shared.generation import (
    BlockCacheConfig,
    BlockCacheReport,
    GenerationParams,
    ScmMaskPolicy,
)
from skipstone_shared.orchestration import CacheMode, CacheOptions

PARTS = ("masks", "request", "sweep", "presets", "families")
PAGE = Path("docs/block-caching.md")
IMAGES = Path("docs/images")
PROMPT = (
    "a large red circle on the left and a small blue ring at the top right on a gray background"
)
STEPS = 50
THRESHOLD = 0.16
MASK_TOTALS = (8, 16, 20, 28, 50)
POLICIES = (ScmMaskPolicy.SLOW, ScmMaskPolicy.MEDIUM, ScmMaskPolicy.FAST, ScmMaskPolicy.ULTRA)
COMPUTED, REUSED, PALE = "#2f6db8", "#e2a33b", "#dddddd"


def main() -> None:
    """Makes the parts asked for; all of them take minutes."""
    end_in_order_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma-separated")
    parser.add_argument("--prompts", type=int, default=20, help="prompts behind the preset table")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="measured pictures")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if "masks" in parts:
        draw_masks(IMAGES / "blockcache-masks.png")
    if {"request", "sweep"} & set(parts):
        _draw_runs(parts)
    if "presets" in parts:
        journal = curve.Journal(arguments.out / "blockcache_pictures.jsonl", resume=True)
        with torch.no_grad():
            figures = list(curve.measure(journal, arguments.prompts))
        replace_part(PAGE, "presets", preset_table(figures))
    if "families" in parts:
        replace_part(PAGE, "families", family_list())


def _draw_runs(parts: Sequence[str]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(Path(folder) / "data", free_ports=True) as cluster,
    ):
        target = cluster.targets["orchestrator"]
        if "request" in parts:
            draw_differences(IMAGES / "blockcache-differences.png", _report(target))
        if "sweep" in parts:
            _sweep(target, Path(folder) / "sweep")


def _sweep(target: str, out: Path) -> None:
    command = ["blockcache", "sweep", PROMPT, "--steps", str(STEPS), "--out", str(out)]
    subprocess.run(
        [sys.executable, "-m", "skipstone_client", *command, "--target", target], check=True
    )
    shutil.copy(out / "sweep.png", IMAGES / "blockcache-sweep.png")
    shutil.copy(out / "pictures.png", IMAGES / "blockcache-pictures.png")


def _report(target: str) -> BlockCacheReport:
    """What block caching did in one request, with all differences."""
    config = BlockCacheConfig(residual_diff_threshold=THRESHOLD, report_residual_diffs=True)
    params = GenerationParams(PROMPT, num_inference_steps=STEPS, seed=0, block_cache=config)
    with OrchestratorClient(target) as client:
        result = client.generate(params, CacheOptions(mode=CacheMode.OFF))
    assert result.provenance.block_cache is not None
    return result.provenance.block_cache


def draw_differences(path: Path, report: BlockCacheReport) -> None:
    """Draws the residual difference of every step and what was decided by it."""
    figure = Figure(figsize=(10, 4.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(report.branches), 1, sharex=True, squeeze=False)[:, 0]
    for axes, branch in zip(panels, report.branches, strict=True):
        steps = sorted((*branch.computed_steps, *branch.reused_steps))
        diffs = dict(zip(steps, branch.residual_diffs, strict=True))
        for kind, chosen, colour in (
            ("computed", branch.computed_steps, COMPUTED),
            ("reused", branch.reused_steps, REUSED),
        ):
            axes.bar(chosen, [_finite(diffs[s]) for s in chosen], color=colour, label=kind)
        unmeasured = [step for step in steps if math.isnan(diffs[step])]
        axes.plot(unmeasured, [0.0] * len(unmeasured), "^", color=COMPUTED, clip_on=False,
                  label="computed by a rule, not measured")  # fmt: skip
        axes.axhline(THRESHOLD, color="#555555", linewidth=0.9, linestyle="--")
        axes.set_ylabel(f"{branch.branch}\nresidual difference")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, ncols=3, fontsize=9)
    panels[-1].set_xlabel(f"step; dashed: residual_diff_threshold {THRESHOLD:g}")
    figure.savefig(path)


def _finite(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def draw_masks(path: Path) -> None:
    """Draws the masks of both rules, a row each."""
    figure = Figure(figsize=(10, 11), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(POLICIES), 1, squeeze=False)[:, 0]
    for axes, policy in zip(panels, POLICIES, strict=True):
        rows: list[tuple[str, tuple[bool, ...]]] = []
        for total in MASK_TOTALS:
            rows.append((f"own {total}", own_mask(policy, total)))
            if total not in COMPAT_MISSING:
                rows.append((f"compat {total}", compat_mask(policy, total)))
        for place, (_, mask) in enumerate(rows):
            width = max(MASK_TOTALS) / len(mask)
            colours = [COMPUTED if computes else PALE for computes in mask]
            axes.barh([place] * len(mask), width, left=[width * s for s in range(len(mask))],
                      color=colours, edgecolor="white", linewidth=0.8, height=0.8)  # fmt: skip
            text = f"{sum(mask)} of {len(mask)} computed, {_longest_reused(mask)} reused in a row"
            axes.text(max(MASK_TOTALS) + 0.5, place, text, va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.set_title(policy.value, loc="left", fontsize=10)
        axes.spines[:].set_visible(False)
    figure.savefig(path)


def _longest_reused(mask: Sequence[bool]) -> int:
    runs = "".join("c" if computes else "r" for computes in mask).split("c")
    return max(map(len, runs))


def preset_table(figures: Sequence[Measured]) -> str:
    """What each preset sets and what it did, as Markdown."""
    lines = [
        "| preset | sets | block calls, median | PSNR against the full run, median (quartiles) | "
        "plain run of as many block calls |",
        "|---|---|---|---|---|",
    ]
    found = {(figure.figure, figure.config): figure for figure in figures}
    for preset, config in PRESETS.items():
        share, drift = (found[name, preset.value] for name in ("block_calls_share", "psnr_db"))
        sets = json.dumps(block_cache_as_json(config), separators=(", ", ": "))
        spread = " to ".join(f"{value:.1f}" for value in drift.spread or ())
        lines.append(
            f"| `{preset.value}` | `{sets}` | {100 * share.value:.0f} % | {drift.value:.1f} dB "
            f"({spread}) | {drift.rival_value or math.nan:.1f} dB |"
        )
    return "\n".join(
        [
            *lines,
            "",
            f"Bundled model, {curve.STEPS} steps, {drift.n} captions it was not trained on.",
        ]
    )


def family_list() -> str:
    """The families that need no declaration, as Markdown."""
    names = ", ".join(adapter.family for adapter in KNOWN_ADAPTERS)
    return (
        f"Known by the class of their transformer: {names}; and classes that derive from one of "
        "these without a `forward` of their own."
    )


if __name__ == "__main__":
    main()
