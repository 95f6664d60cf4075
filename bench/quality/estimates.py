"""Figures of every method of a base: what it costs, how good it is, what it gains.

Costs are known for the whole trace, quality for a sample of it. Intervals come from a bootstrap
over threads of the log, since requests of one thread are not independent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from quality import measures
from quality.costs import cost_figures, steps_of, tier_figures, wrong_hit_figures
from quality.curve import thread_weights
from quality.decisions import Decision
from quality.equal_quality import steps_of_equal_loss
from quality.figures import QualityFigure, interval_of, quantiles_of
from quality.hits import Hits, resumed_share
from quality.measures import Floats, Pictures
from quality.methods import GRID, Method, Reuse, alone, compared, plain
from quality.trace import CaptionRequest

DRAWS: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    """What figures of one number of steps are made of.

    Attributes:
        steps: N.
        requests: The whole trace.
        decisions: Who decides (Reuse.LATENT, Reuse.TABLE) -> one decision per request.
        sample: Indices of the requests that have pictures.
        pictures: Method -> its pictures of the sample; plain methods of the grid among them.
        reference: Converged pictures of the same captions from other noise.
        hits: Who decides -> resumed requests of the whole trace with their pictures.
    """

    steps: int
    requests: Sequence[CaptionRequest]
    decisions: Mapping[Reuse, Sequence[Decision]]
    sample: Sequence[int]
    pictures: Mapping[str, Pictures]
    reference: Pictures
    hits: Mapping[Reuse, Hits]

    @property
    def full(self) -> Pictures:
        """Pictures of the full runs."""
        return self.pictures[plain(self.steps).name]

    @property
    def grid(self) -> list[int]:
        """Plain numbers of steps up to N."""
        return [steps for steps in GRID if steps <= self.steps]


@dataclasses.dataclass(frozen=True, slots=True)
class Losses:
    """Losses of one method's pictures; lower is better.

    Attributes:
        attributes: Share of attributes that are wrong, `(requests,)`.
        distance: From the own full run, `(requests,)`.
        kernel: Of the energy distance from the reference, `(requests, requests)`.
    """

    attributes: Floats
    distance: Floats
    kernel: Floats

    def under(self, weights: Floats) -> dict[str, Floats]:
        """Name of the loss -> its value under each row of weights, `(draws,)`."""
        return {
            "attributes": measures.weighted_mean(self.attributes, weights),
            "distance": measures.weighted_mean(self.distance, weights),
            "energy": measures.energy_distance(self.kernel, weights),
        }


class Estimator:
    """Makes the figures of a base."""

    def __init__(self, base: Base, draws: int = DRAWS) -> None:
        """Measures all pictures.

        Args:
            base: What was decided and made.
            draws: Of the bootstrap.
        """
        self._base = base
        self._weights: Floats = thread_weights(base.requests, base.sample, draws)
        self._sample_weights: Floats = self._weights[:, list(base.sample)]
        self._losses = {name: self._losses_of(p) for name, p in base.pictures.items()}
        self._under = {
            name: losses.under(self._sample_weights) for name, losses in self._losses.items()
        }
        for method in compared(base.steps):
            if method.reuse.resumes:
                self._under[method.name]["attributes"] = self._attribute_loss(method)

    def figures(self) -> Iterator[QualityFigure]:
        """All figures."""
        base = self._base
        methods = [*map(plain, base.grid), *compared(base.steps)]
        for method in methods:
            yield from cost_figures(method, self._calls(method), self._weights)
            yield from self._quality(method)
        for method in compared(base.steps):
            yield from self._gain(method)
            if method.reuse.resumes:
                yield from self._of_hits(method)
                decisions = base.decisions[method.reuse]
                yield from tier_figures(method, decisions, self._weights)
                yield from wrong_hit_figures(method, base.requests, decisions)

    def _losses_of(self, pictures: Pictures) -> Losses:
        return Losses(
            1.0 - measures.attribute_accuracy(pictures),
            measures.distances(pictures, self._base.full),
            measures.energy_kernel(pictures, self._base.reference),
        )

    def _attribute_loss(self, method: Method) -> Floats:
        """Of a method that resumes: that of runs from noise and what its hits lose beside it."""
        hits, loss = self._base.hits[method.reuse], self._under[alone(method).name]["attributes"]
        if not hits.indices:
            return loss
        share = resumed_share(self._base.decisions[method.reuse], self._weights)
        return loss + share * measures.weighted_mean(hits.lost(method), self._hit_weights(hits))

    def _hit_weights(self, hits: Hits) -> Floats:
        weights = self._weights[:, list(hits.indices)]
        weights[weights.sum(axis=1) == 0.0] = 1.0  # a draw without any hit says nothing of them
        return weights

    def _of_hits(self, method: Method) -> Iterator[QualityFigure]:
        hits = self._base.hits[method.reuse]
        if not hits.indices:
            return
        weights = self._hit_weights(hits)
        accuracy = measures.attribute_accuracy(hits.pictures[method.name])
        for figure, values in (
            ("hit_attribute_accuracy", accuracy),
            ("hit_attribute_accuracy_less_full", -hits.lost(method)),
            ("hit_distance_to_full_run", hits.distance(method)),
        ):
            draws = measures.weighted_mean(values, weights)
            yield self._figure(figure, method.name, draws, len(values), values)

    def _calls(self, method: Method) -> Floats:
        """Denoiser calls of every request of the trace; block-cached ones as full calls."""
        base = self._base
        decisions = base.decisions[method.reuse if method.reuse.resumes else Reuse.LATENT]
        steps = steps_of(method, decisions)
        if method.preset is None:
            return steps
        # What block caching leaves to compute is known of the sample: a share of its own for runs
        # from noise and for resumed ones, which have no warm-up left.
        resumed = np.array([0 < s < method.steps for s in steps])
        shares = [self._computed_share(method, resumed=kind) for kind in (False, True)]
        shared: Floats = steps * np.where(resumed, shares[1], shares[0])
        return shared

    def _computed_share(self, method: Method, *, resumed: bool) -> float:
        records = self._base.pictures[method.name].records
        chosen = [r for r in records if (r.executed_steps < method.steps) == resumed]
        ran = sum(record.executed_steps for record in chosen or records)
        return sum(record.full_calls for record in chosen or records) / ran

    def _quality(self, method: Method) -> Iterator[QualityFigure]:
        pictures, n = self._base.pictures[method.name], len(self._base.sample)
        under, full = self._under[method.name], self._under[plain(self._base.steps).name]
        right = measures.everything_right(pictures)
        yield self._figure("attribute_accuracy", method.name, 1.0 - under["attributes"], n)
        gap = full["attributes"] - under["attributes"]
        yield self._figure("attribute_accuracy_less_full", method.name, gap, n)
        everything = measures.weighted_mean(right, self._sample_weights)
        yield self._figure("everything_right", method.name, everything, n)
        single = self._losses[method.name].distance
        yield self._figure("distance_to_full_run", method.name, under["distance"], n, single)
        yield self._figure("energy_distance", method.name, under["energy"], n)

    def _gain(self, method: Method) -> Iterator[QualityFigure]:
        n = len(self._base.sample)
        kept = ~self._resumed(method)
        equal = {
            "energy": self._equal_steps(method, "energy", self._under),
            # A resumed run is another picture by design: only the others can be compared with
            # their own full runs.
            "distance": self._equal_steps(method, "distance", self._all_under(kept)),
            "attributes": self._equal_steps(method, "attributes", self._under),
        }
        yield self._figure("equal_steps_by_energy", method.name, equal["energy"], n)
        of_kept = int(kept.sum())
        yield self._figure("equal_steps_by_distance", method.name, equal["distance"], of_kept)
        yield self._figure("equal_steps_by_attributes", method.name, equal["attributes"], n)
        worth = np.minimum(equal["energy"], equal["distance"])
        if self._loses_attributes(method):
            worth = np.minimum(worth, equal["attributes"])
        mean = measures.weighted_mean(self._calls(method), self._weights)
        yield self._figure("equal_quality_gain", method.name, worth / mean, n)
        if method.reuse.resumes:
            exact = Method("exact cache", self._base.steps, Reuse.EXACT)
            asked = measures.weighted_mean(self._calls(exact), self._weights) / exact.steps
            gain = worth * asked / mean
            yield self._figure("equal_quality_gain_over_exact_cache", method.name, gain, n)

    def _resumed(self, method: Method) -> npt.NDArray[np.bool_]:
        """Which pictures of the sample come from a resumed run."""
        records = self._base.pictures[method.name].records
        return np.array([record.executed_steps < method.steps for record in records])

    def _all_under(self, kept: npt.NDArray[np.bool_]) -> dict[str, dict[str, Floats]]:
        """Distances of all methods over some requests of the sample.

        A draw of a tiny sample may have none of them; the sample itself stands in for it.
        """
        weights = self._sample_weights * kept
        weights[weights.sum(axis=1) == 0.0] = kept if kept.any() else 1.0
        return {
            name: {"distance": measures.weighted_mean(losses.distance, weights)}
            for name, losses in self._losses.items()
        }

    def _loses_attributes(self, method: Method) -> bool:
        """Whether a method has measurably fewer attributes right than the full run."""
        full = self._under[plain(self._base.steps).name]["attributes"]
        gap = self._under[method.name]["attributes"] - full
        return interval_of(gap[1:])[0] > 0.0

    def _equal_steps(
        self, method: Method, loss: str, under: Mapping[str, Mapping[str, Floats]]
    ) -> Floats:
        """Plain steps of equal quality under each row of weights."""
        grid = self._base.grid
        curves = np.stack([under[plain(steps).name][loss] for steps in grid], axis=1)
        own = under[method.name][loss]
        return np.array(
            [
                steps_of_equal_loss(grid, curve, value)
                for curve, value in zip(curves, own, strict=True)
            ]
        )

    def _figure(
        self,
        figure: str,
        method: str,
        draws: Floats,
        n: int,
        single: Floats | None = None,
    ) -> QualityFigure:
        """A figure from its values under all weights, the first of which is the trace itself."""
        p50, p99 = (None, None) if single is None else quantiles_of(single)
        return QualityFigure(
            figure, method, self._base.steps, float(draws[0]), interval_of(draws[1:]), p50, p99, n
        )
