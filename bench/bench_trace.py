"""What reuse saves on a trace of 1,000 captions, and what it costs in quality.

Measures on the bundled model, at the knee of its quality curve and at 50 steps: block caching
alone, the exact tier alone, latent reuse by the product's default policy and gate, these together,
and latent reuse by a published table of cosines alone. The captions have the threads, repeats and
reuse distances of a real request log (`quality/trace.py`). The product's services decide on every
request; a random sample of them gets pictures from the executor's own engine, whose attributes a
program reads. Pictures are kept in `out/bench/quality/`: a run that was stopped goes on.

Prints one JSON line per figure. The rival is the plain run with fewer steps: `equal_quality_gain`
is the number of plain steps of equal quality over the mean steps of a method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from quality.costs import replay_figures
from quality.curve import Curve
from quality.decisions import Decision, decided_once
from quality.estimates import Base, Estimator
from quality.figures import QualityFigure, publish
from quality.hits import Hits, methods_of_hits, resumed_indices
from quality.methods import FRESH_SEEDS, MOST_STEPS, Method, Reuse, compared, run_of
from quality.pictures import PictureStore, Run, Studio
from quality.sample import sampled
from quality.session import TRACE_FIGURES, Session, parse_options, tell
from quality.trace import CaptionRequest, with_new_seeds
from server_process import end_in_order_on_sigterm

DECIDERS: Final = {
    Reuse.LATENT: (),
    Reuse.TABLE: ("--gate", "similarity", "--uncalibrated", "table"),
}
"""Who decides -> flags of the orchestrator; none for the product as it is."""

Decisions = Mapping[Reuse, Sequence[Decision]]


def main() -> None:
    """Runs the benchmark."""
    end_in_order_on_sigterm()
    options = parse_options(__doc__)
    with Studio(PictureStore(options.out), options.threads) as studio:
        session = Session(options, studio)
        curve = session.curve()
        if curve is None:
            return
        tell(f"the knee is at {curve.knee} steps")
        bases = sorted({curve.knee, MOST_STEPS})
        decided = {
            reuse: _decide(session, f"trace-{reuse.value}", session.requests, bases, policy)
            for reuse, policy in DECIDERS.items()
        }
        fresh = with_new_seeds(session.requests)
        decided_fresh = {
            name: _decide(session, f"trace-new-seeds-{number}", fresh, bases, policy)
            for number, (name, policy) in enumerate(FRESH_SEEDS.items())
        }
        figures: list[QualityFigure] = []
        for steps in bases:
            decisions = {reuse: by_steps[steps] for reuse, by_steps in decided.items()}
            base = base_of(session, curve, steps, decisions)
            if base is not None:
                figures += Estimator(base, options.draws).figures()
            for name, by_steps in decided_fresh.items():
                method = Method(name, steps, Reuse.LATENT)
                figures += replay_figures(method, fresh, by_steps[steps], options.draws)
    publish(figures, options.out / TRACE_FIGURES)


def _decide(
    session: Session,
    name: str,
    requests: Sequence[CaptionRequest],
    bases: Sequence[int],
    policy: Sequence[str] = (),
) -> dict[int, list[Decision]]:
    options = session.options
    return decided_once(
        name,
        requests,
        bases,
        options.out,
        keep=options.keep_decisions,
        threads=options.threads,
        policy=policy,
    )


def base_of(session: Session, curve: Curve, steps: int, decisions: Decisions) -> Base | None:
    """Decisions and pictures of one N; None when the time went before two requests."""
    made = session.pictures(
        f"reuse at {steps} steps",
        curve.sample,
        lambda index: _runs(session, compared(steps), index, decisions),
    )
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
        {reuse: hits_of(session, steps, reuse, decisions) for reuse in decisions},
    )


def hits_of(session: Session, steps: int, reuse: Reuse, decisions: Decisions) -> Hits:
    """Pictures of resumed requests."""
    order = sampled(len(session.requests), len(session.requests))
    indices = resumed_indices(order, decisions[reuse], session.options.hits)
    methods = methods_of_hits(steps, reuse)
    made = session.pictures(
        f"hits of {reuse.value} at {steps} steps",
        indices,
        lambda index: _runs(session, methods, index, decisions),
    )
    count = len(made[methods[0].name].records) if made else 0
    return Hits(tuple(indices[:count]), made or {})


def _runs(
    session: Session, methods: Sequence[Method], index: int, decisions: Decisions
) -> dict[str, Run]:
    """Name of a method -> the run whose picture a request gets."""
    of_product = decisions[Reuse.LATENT]
    return {
        method.name: run_of(
            method, index, session.requests, decisions.get(method.reuse, of_product)
        )
        for method in methods
    }


if __name__ == "__main__":
    main()
