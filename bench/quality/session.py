"""What both benchmarks of reuse share: options, the sample, its plain pictures and their knee."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from quality.curve import Curve, measured_knee
from quality.measures import Pictures
from quality.methods import GRID, plain, reference_run
from quality.pictures import Run, Studio
from quality.sample import Deadline, made_in_time, make_pictures, sampled
from quality.trace import caption_trace

REFERENCE: Final = "reference"
FOLDER: Final = Path("out/bench/quality")
TRACE_FIGURES: Final = "trace_figures.jsonl"
QUALITY_FIGURES: Final = "quality_figures.jsonl"
_QUICK: Final = {"requests": 60, "sample": 3, "hits": 2, "prompts": 1, "draws": 200}


def parse_options(description: str | None) -> argparse.Namespace:
    """The options of a benchmark; `--quick` is small in everything."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--requests", type=int, default=1000, help="length of the trace")
    parser.add_argument("--sample", type=int, default=80, help="requests that get pictures")
    parser.add_argument("--hits", type=int, default=40, help="resumed requests that get pictures")
    parser.add_argument("--prompts", type=int, default=8, help="captions of the seed diversity")
    parser.add_argument("--draws", type=int, default=1000, help="draws of the bootstrap")
    parser.add_argument("--minutes", type=float, help="begin no picture later; run again to go on")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of an operation")
    parser.add_argument("--knee", type=int, choices=GRID, help="knee, instead of the measured one")
    parser.add_argument("--keep-decisions", action="store_true", help="those of the run before")
    parser.add_argument("--out", type=Path, default=FOLDER, help="pictures, decisions, figures")
    parser.add_argument("--quick", action="store_true", help="some minutes, only to see it work")
    parser.add_argument("--draw", action="store_true", help="only write the page and its plots")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(_QUICK)
        options.out = options.out / "quick"
    options.out.mkdir(parents=True, exist_ok=True)
    return options


class Session:
    """A run of a benchmark."""

    def __init__(self, options: argparse.Namespace, studio: Studio) -> None:
        """Makes the trace and draws the sample.

        Args:
            options: Of `parse_options`.
            studio: Makes pictures.
        """
        self.options = options
        self.studio = studio
        self.requests = caption_trace(options.requests)
        self.sample = sampled(len(self.requests), options.sample)
        self.deadline = Deadline(options.minutes)

    def curve(self) -> Curve | None:
        """Plain pictures of every number of steps; None when that is not two requests."""

        def runs_of(index: int) -> dict[str, Run]:
            request = self.requests[index]
            runs = {plain(n).name: Run(request.caption, request.seed, n) for n in reversed(GRID)}
            return {**runs, REFERENCE: reference_run(request)}

        made = self.pictures("plain runs", self.sample, runs_of)
        if made is None:
            return None
        reference = made.pop(REFERENCE)
        found = self.options.knee or measured_knee(made, reference)
        return Curve(tuple(self.sample[: len(reference.records)]), made, reference, found)

    def made(self, run: Run) -> bool:
        """Whether a picture is there, made now if there is time for it."""
        return made_in_time(self.studio, run, self.deadline)

    def pictures(
        self, what: str, indices: Sequence[int], runs_of: Callable[[int], dict[str, Run]]
    ) -> dict[str, Pictures] | None:
        """Pictures of requests, as far as the time goes; None when that is not even two."""
        made = make_pictures(self.studio, [runs_of(index) for index in indices], self.deadline)
        count = len(next(iter(made.values())).records) if made else 0
        if count < len(indices):
            tell(f"{what}: {count} of {len(indices)} requests have pictures; run again to go on")
        return made if count > 1 else None


def tell(text: str) -> None:
    """Tells on stderr how far the run is; stdout has only figures."""
    print(text, file=sys.stderr, flush=True)
