"""The quality curve of plain runs and its knee."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from quality import measures
from quality.equal_quality import knee
from quality.figures import QualityFigure, interval_of
from quality.measures import Floats, Pictures
from quality.methods import GRID, MOST_STEPS, plain
from quality.trace import CaptionRequest

_SEED: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """Plain pictures of the sample, as far as the time went.

    Attributes:
        sample: Indices of the requests that have pictures.
        pictures: Method -> pictures.
        reference: Converged pictures from other noise.
        knee: Steps at which more of them stop paying.
    """

    sample: tuple[int, ...]
    pictures: Mapping[str, Pictures]
    reference: Pictures
    knee: int


def energy_curves(pictures: Mapping[str, Pictures], reference: Pictures, weights: Floats) -> Floats:
    """Energy distances of plain runs from the reference, `(draws, numbers of steps)`.

    Args:
        pictures: Plain method -> pictures.
        reference: Converged pictures of the same captions.
        weights: Of the requests, `(draws, requests)`.
    """
    kernels = (measures.energy_kernel(pictures[plain(steps).name], reference) for steps in GRID)
    return np.stack([measures.energy_distance(kernel, weights) for kernel in kernels], axis=1)


def measured_knee(pictures: Mapping[str, Pictures], reference: Pictures) -> int:
    """The knee of the energy distance by steps."""
    ones = np.ones((1, len(reference.records)))
    return knee(GRID, energy_curves(pictures, reference, ones)[0])


def curve_figures(
    requests: Sequence[CaptionRequest], curve: Curve, draws: int
) -> Iterator[QualityFigure]:
    """Quality by number of steps, and the knee with its interval."""
    weights = thread_weights(requests, curve.sample, draws)[:, list(curve.sample)]
    energies = energy_curves(curve.pictures, curve.reference, weights)
    n = len(curve.sample)
    knees = [knee(GRID, row) for row in energies[1:]]
    yield QualityFigure("knee_steps", "plain", MOST_STEPS, curve.knee, interval_of(knees), n=n)
    most = curve.pictures[plain(MOST_STEPS).name]
    for steps, energy in zip(GRID, energies.T, strict=True):
        pictures, name = curve.pictures[plain(steps).name], plain(steps).name
        values = {
            "energy_distance": energy,
            "attribute_accuracy": _mean(measures.attribute_accuracy(pictures), weights),
            "everything_right": _mean(measures.everything_right(pictures), weights),
            "distance_to_50_steps": _mean(measures.distances(pictures, most), weights),
        }
        for figure, drawn in values.items():
            interval = interval_of(drawn[1:])
            yield QualityFigure(figure, name, steps, float(drawn[0]), interval, n=n)


def thread_weights(requests: Sequence[CaptionRequest], sample: Sequence[int], draws: int) -> Floats:
    """How often each request comes when whole threads are drawn, `(1 + draws, requests)`.

    The first row is the trace itself: ones. Draws without two requests of the sample are left out,
    which happens only to a sample of a few.
    """
    threads, thread_of = np.unique([r.thread for r in requests], return_inverse=True)
    rng = np.random.default_rng(_SEED)
    counts = rng.multinomial(len(threads), np.full(len(threads), 1 / len(threads)), size=draws)
    drawn = counts[:, thread_of].astype(np.float64)
    usable = (drawn[:, list(sample)] > 0).sum(axis=1) > 1
    return np.concatenate([np.ones((1, len(requests))), drawn[usable]])


def _mean(values: Floats, weights: Floats) -> Floats:
    return measures.weighted_mean(values, weights)
