"""From a quality curve of plain runs: where it has its knee, and how many steps a quality is worth.

Curves are losses, lower is better, over ascending numbers of steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quality.measures import Floats
from skipstone_client.calibrate.intervals import falling


def knee(steps: Sequence[int], losses: Floats) -> int:
    """The measured number of steps at which more of them stop paying.

    That is where the falling curve, both axes scaled to 0..1, lies furthest below the straight line
    between its ends (Satopää et al. 2011, "Finding a Kneedle in a Haystack", section III). Where
    steps change nothing it is the fewest.
    """
    places = np.asarray(steps, dtype=np.float64)
    curve = np.asarray(falling(losses.tolist()), dtype=np.float64)
    if curve[0] <= curve[-1]:
        return steps[0]
    x = (places - places[0]) / (places[-1] - places[0])
    y = (curve - curve[-1]) / (curve[0] - curve[-1])
    return steps[int(np.argmax(1.0 - x - y))]


def steps_of_equal_loss(steps: Sequence[int], losses: Floats, loss: float) -> float:
    """Fewest plain steps whose loss is at most a given one, straight between measured numbers.

    What counts is the excess over the last number of steps, the full run, on both sides: pictures
    that are the full run's are worth all its steps, whatever the fit makes of a noisy end.

    Returns:
        At most the last number, since no more can be had, and at least the first.
    """
    curve = np.asarray(falling(losses.tolist()), dtype=np.float64)
    excess = loss - float(losses[-1])
    above_end = curve - curve[-1]
    if excess <= 0.0:
        return float(steps[-1])
    if excess >= above_end[0]:
        return float(steps[0])
    after = int(np.argmax(above_end <= excess))
    before = after - 1
    share = (above_end[before] - excess) / (above_end[before] - above_end[after])
    return float(steps[before] + share * (steps[after] - steps[before]))
