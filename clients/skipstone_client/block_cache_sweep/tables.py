"""A sweep as a table: CSV and JSON for programs, lines for people."""

from __future__ import annotations

import csv
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from skipstone_client.artifact_names import suffix_of
from skipstone_client.block_cache_sweep.choice import Choice
from skipstone_client.block_cache_sweep.measure import Measured, Refused
from skipstone_client.block_cache_sweep.settings import Kind
from skipstone_client.cli_output import seconds_text, table_of
from skipstone_client.json_values import plain


def picture_name(number: int, row: Measured) -> str:
    """The file of a row's first result."""
    return f"pictures/{number:03}{suffix_of(row.artifact.media_type)}"


def row_values(number: int, row: Measured) -> dict[str, Any]:
    """A row under the names it has in CSV and JSON."""
    return {
        "number": number,
        "kind": row.setting.kind.value,
        "setting": row.setting.label,
        "cache_config": row.setting.text,
        "num_inference_steps": row.setting.steps,
        "block_calls_share": round(row.share, 6),
        "block_calls": row.block_calls,
        "computed_steps": row.computed_steps,
        "reused_steps": row.reused_steps,
        "psnr_db": round(row.drift.psnr_db, 3),
        "rel_l1": round(row.drift.rel_l1, 6),
        "denoise_s": round(row.denoise_s, 4),
        "notes": "; ".join(row.notes),
        "picture": picture_name(number, row),
    }


def write_csv(path: Path, rows: Sequence[Measured]) -> None:
    """Writes one line per row; a PSNR of `inf` means the same pixels."""
    values = [row_values(number, row) for number, row in enumerate(rows, 1)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(values[0]))
        writer.writeheader()
        writer.writerows(values)


def document(
    facts: Mapping[str, Any],
    rows: Sequence[Measured],
    refused: Sequence[Refused],
    choices: Sequence[Choice],
) -> dict[str, Any]:
    """The whole sweep as JSON can hold it; a PSNR of null means the same pixels.

    Args:
        facts: What was run: prompt, seeds, model.
        rows: What was measured.
        refused: What could not be run.
        choices: What to take.
    """
    return {
        **facts,
        "rows": [plain(row_values(number, row)) for number, row in enumerate(rows, 1)],
        "refused": [
            {"setting": one.setting.label, "cache_config": one.setting.text, "reason": one.reason}
            for one in refused
        ],
        "choices": [
            {
                "least_psnr_db": choice.least_psnr_db,
                "setting": _number_in(rows, choice.setting),
                "cache_config": choice.setting.setting.text if choice.setting else None,
                "fewer_steps": _number_in(rows, choice.fewer_steps),
            }
            for choice in choices
        ],
    }


def write_json(path: Path, sweep: Mapping[str, Any]) -> None:
    """Writes a sweep's document."""
    path.write_text(json.dumps(sweep, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def screen_table(rows: Sequence[Measured], front: Sequence[Measured]) -> Table:
    """The rows for people; a star marks what no other setting beats."""
    table = table_of("", "setting", "block calls", "computed", "reused", "PSNR", "rel. L1", "time")
    for number, row in enumerate(rows, 1):
        table.add_row(
            f"{number}{'*' if row in front else ''}",
            row.setting.label,
            percent(row.share),
            str(row.computed_steps),
            str(row.reused_steps) if row.setting.kind is Kind.BLOCK_CACHE else "",
            psnr_text(row.drift.psnr_db),
            f"{row.drift.rel_l1:.4f}",
            seconds_text(row.denoise_s),
        )
    return table


def refusal_lines(refused: Sequence[Refused]) -> list[str]:
    """What could not be run and why, one line for every reason."""
    return _grouped("left out", ((one.reason, one.setting.label) for one in refused))


def note_lines(rows: Sequence[Measured]) -> list[str]:
    """What the executor says of settings, one line for every note."""
    return _grouped("note", ((note, row.setting.label) for row in rows for note in row.notes))


def _grouped(what: str, found: Iterable[tuple[str, str]]) -> list[str]:
    labels: dict[str, list[str]] = {}
    for text, label in found:
        labels.setdefault(text, []).append(label)
    return [f"{what}: {'; '.join(names)}: {text}" for text, names in labels.items()]


def choice_lines(choice: Choice) -> list[str]:
    """What to take, ready to paste, and what plain fewer steps would do."""
    bar, row, plainly = f"{choice.least_psnr_db:g} dB", choice.setting, choice.fewer_steps
    if row is None:
        lines = [f"at least {bar}: no setting of this sweep"]
    else:
        lines = [
            f"at least {bar}: {row.setting.label}, {percent(row.share)} of the block calls at "
            f"{psnr_text(row.drift.psnr_db)}",
            f"  --cache-config {shlex.quote(row.setting.text)}",
        ]
    if plainly is None:
        return [*lines, "  no plain run of fewer steps is as close"]
    cost = f"plainly {plainly.setting.label}: {percent(plainly.share)} at "
    cost += psnr_text(plainly.drift.psnr_db)
    is_cheaper = row is not None and plainly.share <= row.share
    return [*lines, f"  {cost}{', which is cheaper' if is_cheaper else ''}"]


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.0f} %"


def psnr_text(psnr_db: float) -> str:
    """A PSNR for people."""
    return "same pixels" if math.isinf(psnr_db) else f"{psnr_db:.1f} dB"


def _number_in(rows: Sequence[Measured], row: Measured | None) -> int | None:
    return rows.index(row) + 1 if row is not None else None
