"""Figures that need no picture: steps and tiers of the whole trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quality import measures
from quality.curve import thread_weights
from quality.decisions import Decision
from quality.figures import QualityFigure, interval_of, quantiles_of
from quality.measures import Floats
from quality.methods import Method, executed_steps
from quality.trace import CaptionRequest, same_scene
from skipstone_shared.orchestration import HitTier


def steps_of(method: Method, decisions: Sequence[Decision]) -> Floats:
    """Steps that each request runs, `(requests,)`."""
    return np.array([executed_steps(method, d) for d in decisions], dtype=np.float64)


def cost_figures(method: Method, calls: Floats, weights: Floats) -> Iterator[QualityFigure]:
    """Mean denoiser calls of a request.

    Args:
        method: Of the figure.
        calls: Of every request.
        weights: Of the requests, the trace itself first.
    """
    draws = measures.weighted_mean(calls, weights)
    p50, p99 = quantiles_of(calls)
    interval = interval_of(draws[1:])
    yield QualityFigure(
        "mean_steps", method.name, method.steps, float(draws[0]), interval, p50, p99, len(calls)
    )


def tier_figures(
    method: Method, decisions: Sequence[Decision], weights: Floats
) -> Iterator[QualityFigure]:
    """Share of each tier."""
    for tier in HitTier:
        there = np.array([float(decision.tier == tier.value) for decision in decisions])
        draws = measures.weighted_mean(there, weights)
        figure, interval = f"tier_share_{tier.value}", interval_of(draws[1:])
        yield QualityFigure(
            figure, method.name, method.steps, float(draws[0]), interval, n=len(there)
        )


def wrong_hit_figures(
    method: Method, requests: Sequence[CaptionRequest], decisions: Sequence[Decision]
) -> Iterator[QualityFigure]:
    """Share of approximate hits whose donor shows another scene than the one asked for."""
    hits = [
        (request, requests[decision.donor])
        for request, decision in zip(requests, decisions, strict=True)
        if decision.tier == HitTier.APPROXIMATE.value and decision.donor is not None
    ]
    if hits:
        wrong = [not same_scene(request.caption, donor.caption) for request, donor in hits]
        share = float(np.mean(wrong))
        yield QualityFigure("wrong_hit_share", method.name, method.steps, share, n=len(hits))


def replay_figures(
    method: Method, requests: Sequence[CaptionRequest], decisions: Sequence[Decision], draws: int
) -> Iterator[QualityFigure]:
    """Steps and tiers of a trace that has no pictures."""
    weights = thread_weights(requests, range(len(requests)), draws)
    yield from cost_figures(method, steps_of(method, decisions), weights)
    yield from tier_figures(method, decisions, weights)
    yield from wrong_hit_figures(method, requests, decisions)
