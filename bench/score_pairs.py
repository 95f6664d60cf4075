"""Says what Skipstone decides on pairs of prompts at default settings.

    make score-pairs FILE=pairs.csv

The file is CSV with the columns `a` and `b`: `a` is stored, `b` is requested. Prints one JSON line
per pair: `{"pair": row, "verdict": "hit" | "miss", "skip_steps", "similarity", "score"}`; rows
count from 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

COLUMNS = ("a", "b")


class BadPairs(ValueError):
    """The file cannot be used; the message says why."""


def read_pairs(path: Path, columns: tuple[str, str] = COLUMNS) -> list[tuple[str, str]]:
    """Reads pairs of prompts.

    Raises:
        BadPairs: There is no such file, or a column or a prompt is missing.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                found = ", ".join(reader.fieldnames or ()) or "none"
                raise BadPairs(f"{path}: no column {' and '.join(missing)}; columns are: {found}")
            rows = [tuple((row[name] or "") for name in columns) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadPairs(f"{path} cannot be read: {reason}") from error
    for number, row in enumerate(rows, 1):
        for name, text in zip(columns, row, strict=True):
            if not text.strip():
                raise BadPairs(f"{path}: row {number} has nothing in column {name}")
    return [(left, right) for left, right in rows]


def main() -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="CSV with the columns a and b")
    arguments = parser.parse_args()
    try:
        pairs = read_pairs(arguments.file)
    except BadPairs as error:
        print(f"score-pairs: {error}", file=sys.stderr)
        return 2
    # Takes seconds to import: after the file is known to be good.
    from gate.decisions import PairJudge
    from skipstone_shared.structured_logging import configure_logging

    configure_logging("score-pairs", "warning", "console")
    with PairJudge() as judge:
        for number, decision in enumerate(judge.decide(pairs), 1):
            line = {
                "pair": number,
                "verdict": decision.verdict,
                "skip_steps": decision.skip_steps,
                "similarity": round(decision.similarity, 4),
                "score": None if decision.score is None else round(decision.score, 4),
            }
            print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
