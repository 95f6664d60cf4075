"""``python -m skipstone_latent_kv.offline verify|compact DIR``: work on data that no service uses.

One line of JSON on stdout. ``skipstone kv verify`` and ``skipstone kv compact`` run it: the command
line is a client and knows no service from the inside.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from skipstone_latent_kv.data_check import compact, verify
from skipstone_shared.errors import SkipstoneError

EXIT_REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 1 when it found problems, 2 when it could not begin."""
    parser = argparse.ArgumentParser(prog="skipstone_latent_kv.offline")
    parser.add_argument("command", choices=["verify", "compact"])
    parser.add_argument("data_dir", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "verify":
            report = verify(chosen.data_dir)
            _write(dataclasses.asdict(report))
            return 1 if report.problems else 0
        before, after = compact(chosen.data_dir)
    except SkipstoneError as error:
        sys.stderr.write(f"{error.message}\n")
        return EXIT_REFUSED
    _write({"file_bytes_before": before, "file_bytes": after})
    return 0


def _write(result: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
