"""Noise levels of all schedulers on one scale: the share of noise, 0 (clean) to 1 (only noise).

Sigma itself has two scales: flow matching mixes `(1 - sigma) * x0 + sigma * noise`, the other
families add `x0 + sigma * noise`.
"""

from __future__ import annotations

from collections.abc import Sequence

FLOW = "flow"
"""Prediction type of flow matching."""

TOLERANCE = 1e-6
"""Schedulers compute sigmas in float32: a level meant as 0.5 may come out as 0.49999997."""


def noise_shares(sigmas: Sequence[float], prediction_type: str) -> tuple[float, ...]:
    """Sigmas as shares of noise.

    Args:
        sigmas: As the scheduler states them, 0 and up.
        prediction_type: `flow`, or that of another family such as `epsilon`.
    """
    if prediction_type == FLOW:
        return tuple(sigmas)
    return tuple(sigma / (1.0 + sigma) for sigma in sigmas)


def steps_down_to(shares: Sequence[float], level: float) -> range:
    """Steps a run may start at so that all it skips lies at or above a noise level.

    Counted from the front up to the first step below the level: in a schedule that is not monotone
    a later step above the level would skip others below it.

    Args:
        shares: Share of noise entering each step, and 0 behind the last one.
        level: The noise level, 0 to 1.
    """
    end = 0
    while end < len(shares) - 1 and shares[end] >= level - TOLERANCE:
        end += 1
    return range(1, end)
