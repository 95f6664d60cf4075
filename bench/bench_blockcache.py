"""Block caching beside cache-dit: overhead, error and bytes; and what it does to pictures.

Measures, on random Flux, Qwen-Image and Wan transformers of width 64 and on the bundled model:

- `calls`: time of a fully reused call over an ideal call that runs nothing but the F blocks;
- `errors`: final relative L1 error against the uncached run, and bytes held, at equal block calls;
- `pictures`: share of block calls against PSNR in the bundled model's pictures, beside runs of
  fewer steps, with a plot in `out/bench/`.

Both libraries take turns within one process. Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from blockcache import curve, errors, timing

PARTS = ("calls", "errors", "pictures")


def main() -> None:
    """Runs the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help=f"parts, comma-separated: {','.join(PARTS)}")
    parser.add_argument("--requests", type=int, default=20, help="timed requests per setting")
    parser.add_argument("--prompts", type=int, default=50, help="pictures per setting")
    parser.add_argument("--error-prompts", type=int, default=2, help="bundled model's inputs")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="plot and journal")
    parser.add_argument("--resume", action="store_true", help="keep pictures measured before")
    arguments = parser.parse_args()
    parts = arguments.only.split(",") if arguments.only else PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    # cache-dit tells a dozen lines about every transformer.
    logging.disable(logging.WARNING)
    # More threads than one add waiting that has nothing to do with either library.
    torch.set_num_threads(1)
    with torch.no_grad():  # as pipelines run; inference tensors would cost us copies
        if "calls" in parts:
            for figure in timing.measure(arguments.requests):
                figure.show()
        if "errors" in parts:
            for subject in errors.subjects(arguments.error_prompts):
                for figure in errors.measure(subject):
                    figure.show()
        if "pictures" in parts:
            journal = curve.Journal(arguments.out / "blockcache_pictures.jsonl", arguments.resume)
            for figure in curve.measure(journal, arguments.prompts):
                figure.show()
            curve.plot(journal, arguments.out / "blockcache_curve.png")


if __name__ == "__main__":
    main()
