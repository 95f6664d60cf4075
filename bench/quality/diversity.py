"""Whether other seeds give other pictures: pictures of one caption, with and without reuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from quality.decisions import Decision
from quality.figures import QualityFigure, interval_of
from quality.measures import Floats, mean_pair_distance
from quality.methods import Method, Reuse, plain, run_of
from quality.pictures import Pixels
from quality.session import Session
from quality.trace import NEW, CaptionRequest

SEEDS: Final = 16
_DRAW_SEED: Final = 4


def seed_requests(requests: Sequence[CaptionRequest], prompts: int) -> list[CaptionRequest]:
    """The first new captions of a trace, each with SEEDS seeds in a row."""
    chosen = [request for request in requests if request.kind == NEW][:prompts]
    found: list[CaptionRequest] = []
    for caption in chosen:
        for number in range(SEEDS):
            place = len(found)
            found.append(dataclasses.replace(caption, index=place, seed=caption.seed + number))
    return found


def diversity_figures(
    session: Session, decided: Mapping[int, Sequence[Decision]], draws: int
) -> Iterator[QualityFigure]:
    """Spread of the pictures of one caption under reuse over that of full runs, per N.

    The spread is the mean root mean square difference of two pictures; the value is the mean over
    captions.

    Args:
        session: Makes the pictures.
        decided: N -> the product's decisions on `seed_requests`.
        draws: Of the bootstrap over captions.
    """
    requests = seed_requests(session.requests, session.options.prompts)
    for steps, decisions in decided.items():
        ratios = []
        for start in range(0, len(requests), SEEDS):
            reused, full = (
                _pixels(session, method, range(start, start + SEEDS), requests, decisions)
                for method in (Method("latent cache", steps, Reuse.LATENT), plain(steps))
            )
            if not (reused and full):
                break
            ratios.append(mean_pair_distance(reused) / mean_pair_distance(full))
        if ratios:
            yield _figure(steps, np.array(ratios), draws)
            yield _reused_share(steps, decisions[: len(ratios) * SEEDS])


def _pixels(
    session: Session,
    method: Method,
    indices: Sequence[int],
    requests: Sequence[CaptionRequest],
    decisions: Sequence[Decision],
) -> list[Pixels]:
    """Pictures of one caption under all seeds; none when the time is up."""
    runs = [run_of(method, index, requests, decisions) for index in indices]
    if not all(session.made(run) for run in runs):
        return []
    return [session.studio.pixels(run) for run in runs]


def _figure(steps: int, ratios: Floats, draws: int) -> QualityFigure:
    rng = np.random.default_rng(_DRAW_SEED)
    means = ratios[rng.integers(len(ratios), size=(draws, len(ratios)))].mean(axis=1)
    return QualityFigure(
        "seed_diversity",
        "latent cache",
        steps,
        float(ratios.mean()),
        interval_of(means),
        float(np.median(ratios)),
        n=len(ratios),
    )


def _reused_share(steps: int, decisions: Sequence[Decision]) -> QualityFigure:
    """Mean share of the steps that requests with another seed skip."""
    skipped = [decision.skip_steps / steps for decision in decisions if decision.donor is not None]
    value = float(np.mean(skipped)) if skipped else 0.0
    return QualityFigure("same_prompt_skipped_share", "latent cache", steps, value, n=len(skipped))
