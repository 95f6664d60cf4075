"""What an entry costs latent_kv and vector_index: memory, disk and start, from real processes.

Each service is filled to 10,000 and to 100,000 entries and started anew over what it has; the
differences over 90,000 are the costs per entry, so that what a process takes anyway is left out.
Memory is that of the process without mapped files. Starts and rebuilds are told in wall and in CPU
seconds; the page uses the latter, which hold on a busy machine too. `disk_over_latents` is what
LMDB's pages add to snapshots of real sizes. There is no rival: capacities are computed from these
figures, and `--draw` puts them into docs/capacity.md.

Prints one JSON line per figure; `--lines FILE` keeps them, so that the parts can be measured apart.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from capacity.figures import Figures, Line, replaced
from capacity.index_cost import measure_index
from capacity.store_cost import measure_sizes, measure_store
from capacity.tables import capacity_parts
from page_parts import replace_part
from replay.drawing import PAGE
from server_process import end_in_order_on_sigterm

PARTS = ("store", "sizes", "index")


def main() -> None:
    """Measures what the arguments say."""
    end_in_order_on_sigterm()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--entries", type=int, nargs=2, default=[10_000, 100_000])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma-separated")
    parser.add_argument("--lines", type=Path, default=Path("out/bench/entry_cost.jsonl"))
    parser.add_argument("--draw", action="store_true", help="renew docs/capacity.md from --lines")
    args = parser.parse_args()
    figures, counts = Figures(), (args.entries[0], args.entries[1])
    parts = [part for part in args.only.split(",") if part]
    if "store" in parts:
        measure_store(figures, counts, args.starts)
    if "sizes" in parts:
        measure_sizes(figures)
    if "index" in parts:
        measure_index(figures, counts, args.starts)
    lines = replaced(_read(args.lines), figures.lines)
    args.lines.parent.mkdir(parents=True, exist_ok=True)
    args.lines.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if args.draw:
        for name, part in capacity_parts(lines).items():
            replace_part(PAGE, name, part)


def _read(path: Path) -> list[Line]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


if __name__ == "__main__":
    main()
