"""What reuse saves on a trace of 1,000 captions, and what it costs in quality.

Measures on the bundled model, at the knee of its quality curve and at 50 steps, beside full runs
and against plain runs with fewer steps: block caching alone, the exact tier alone, latent reuse by
the product's default policy and gate, and both together. The captions have the threads, repeats and
reuse distances of a real request log (`quality/trace.py`). The product's services decide on every
request; a random sample of them gets pictures from the executor's own engine, whose attributes a
program reads. Pictures are kept in `out/bench/quality/`: a run that was stopped goes on.

Prints one JSON line per figure. The rival is the plain run with fewer steps: `equal_quality_gain`
is the number of plain steps of equal quality over the mean steps of a method.
"""

from __future__ import annotations

from collections.abc import Sequence

from quality.curve import Curve
from quality.decisions import Decision, decided_once
from quality.estimates import Base, Estimator
from quality.figures import QualityFigure, publish
from quality.hits import Hits, methods_of_hits, resumed_indices
from quality.methods import MOST_STEPS, compared, run_of
from quality.pictures import PictureStore, Run, Studio
from quality.sample import sampled
from quality.session import TRACE_FIGURES, Session, parse_options, tell


def main() -> None:
    """Runs the benchmark."""
    options = parse_options(__doc__)
    with Studio(PictureStore(options.out), options.threads) as studio:
        session = Session(options, studio)
        curve = session.curve()
        if curve is None:
            return
        tell(f"the knee is at {curve.knee} steps")
        bases = sorted({curve.knee, MOST_STEPS})
        decided = decided_once(
            "trace",
            session.requests,
            bases,
            options.out,
            keep=options.keep_decisions,
            threads=options.threads,
        )
        figures: list[QualityFigure] = []
        for steps in bases:
            base = base_of(session, curve, steps, decided[steps])
            if base is not None:
                figures += Estimator(base, options.draws).figures()
    publish(figures, options.out / TRACE_FIGURES)


def base_of(
    session: Session, curve: Curve, steps: int, decisions: Sequence[Decision]
) -> Base | None:
    """Decisions and pictures of one N; None when the time went before two requests."""

    def runs_of(index: int) -> dict[str, Run]:
        return {
            method.name: run_of(method, index, session.requests, decisions)
            for method in compared(steps)
        }

    made = session.pictures(f"reuse at {steps} steps", curve.sample, runs_of)
    if made is None:
        return None
    count = len(made[compared(steps)[0].name].records)
    plain_pictures = {name: p.first(count) for name, p in curve.pictures.items()}
    return Base(
        steps,
        session.requests,
        decisions,
        curve.sample[:count],
        {**plain_pictures, **made},
        curve.reference.first(count),
        hits_of(session, steps, decisions),
    )


def hits_of(session: Session, steps: int, decisions: Sequence[Decision]) -> Hits:
    """Pictures of resumed requests."""

    def runs_of(index: int) -> dict[str, Run]:
        return {
            method.name: run_of(method, index, session.requests, decisions)
            for method in methods_of_hits(steps)
        }

    order = sampled(len(session.requests), len(session.requests))
    indices = resumed_indices(order, decisions, session.options.hits)
    made = session.pictures(f"hits at {steps} steps", indices, runs_of) or {}
    count = len(next(iter(made.values())).records) if made else 0
    return Hits(tuple(indices[:count]), made)


if __name__ == "__main__":
    main()
