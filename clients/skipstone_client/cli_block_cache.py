"""Block caching on the command line: settings in, what it did out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from skipstone_client.cli_output import EXIT_BAD_INPUT, errors_in_one_line, fail, share_text
from skipstone_shared.block_cache_json import block_cache_from_text
from skipstone_shared.generation import BlockCacheConfig, BlockCacheReport, BranchReport

BlockCacheOption = Annotated[
    str | None,
    typer.Option(
        "--cache-config",
        "--block-cache",
        metavar="JSON|@FILE|PRESET",
        help="Reuse of blocks inside the request: none, quality, balanced, fast, or cache-dit's "
        'options as JSON, such as {"Fn_compute_blocks": 1}.',
    ),
]
_NOT_MEASURED = "-"


def block_cache_config(text: str | None) -> BlockCacheConfig | None:
    """The settings an option stands for; ends the program when it stands for none."""
    if text is None:
        return None
    if text.startswith("@"):
        text = _read(Path(text[1:]))
    with errors_in_one_line():
        return block_cache_from_text(text)


def block_cache_facts(report: BlockCacheReport | None) -> dict[str, str]:
    """What block caching did, for people: one row for all, then one for every guidance branch."""
    if report is None:
        return {}
    saved = report.block_calls_full - report.block_calls
    rows = {
        "block cache": f"{report.block_calls} of {report.block_calls_full} block calls run, "
        f"{share_text(saved, report.block_calls_full)} saved"
    }
    for branch in report.branches:
        name = f"  {branch.transformer} {branch.branch}"
        rows[name] = _steps_text(branch)
        if branch.residual_diffs:
            rows[f"{name} differences"] = " ".join(map(_diff_text, branch.residual_diffs))
    for number, note in enumerate(report.notes, 1):
        rows[f"  note {number}"] = note
    return rows


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"--cache-config: cannot read {path}: {error.strerror}", EXIT_BAD_INPUT)
    except UnicodeDecodeError:
        fail(f"--cache-config: {path} is not UTF-8", EXIT_BAD_INPUT)


def _steps_text(branch: BranchReport) -> str:
    # They travel in a map, which has no order.
    often = sorted(branch.reasons.items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{reason} {count}" for reason, count in often)
    computed, reused = len(branch.computed_steps), len(branch.reused_steps)
    return f"{computed} steps computed, {reused} reused ({reasons})"


def _diff_text(diff: float) -> str:
    return _NOT_MEASURED if math.isnan(diff) else f"{diff:.4f}"
