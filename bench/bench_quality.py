"""How the bundled model's quality depends on its steps, and whether reuse keeps seeds apart.

Measures the quality curve of plain runs (energy distance from converged pictures, attributes that a
program reads, distance from the run with 50 steps), its knee, which is the base of
`bench_trace.py`, and the spread of one caption's pictures over 16 seeds under latent reuse. Rival:
the full run. Samples and pictures are those of `bench_trace.py`; what is there is not made again.

Prints one JSON line per figure. `--draw` measures nothing: it writes the section of
docs/benchmarks.md and its plots from the figures that both benchmarks measured last.
"""

from __future__ import annotations

from collections.abc import Iterator

from quality.curve import curve_figures
from quality.decisions import decided_once
from quality.diversity import diversity_figures, seed_requests
from quality.figures import QualityFigure, publish
from quality.methods import MOST_STEPS
from quality.page import write_page
from quality.pictures import PictureStore, Studio
from quality.session import QUALITY_FIGURES, Session, parse_options, tell
from server_process import end_in_order_on_sigterm


def main() -> None:
    """Runs the benchmark, or draws what was measured."""
    end_in_order_on_sigterm()
    options = parse_options(__doc__)
    if options.draw:
        write_page(options.out)
        return
    with Studio(PictureStore(options.out), options.threads) as studio:
        publish(figures(Session(options, studio)), options.out / QUALITY_FIGURES)


def figures(session: Session) -> Iterator[QualityFigure]:
    """All figures that there is time for."""
    options = session.options
    curve = session.curve()
    if curve is None:
        return
    tell(f"the knee is at {curve.knee} steps")
    yield from curve_figures(session.requests, curve, options.draws)
    requests = seed_requests(session.requests, options.prompts)
    decided = decided_once(
        "seeds",
        requests,
        sorted({curve.knee, MOST_STEPS}),
        options.out,
        keep=options.keep_decisions,
        threads=options.threads,
    )
    yield from diversity_figures(session, decided, options.draws)


if __name__ == "__main__":
    main()
