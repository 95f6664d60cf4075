"""Confidence bounds, and the falling curve nearest to measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from skipstone_shared.calibration import Interval

Z: Final = 1.959963984540054
"""Of the normal distribution, for 95 % between both bounds."""


def wilson(count: int, n: int) -> Interval:
    """A share with its bounds (Wilson 1927, J. Am. Stat. Assoc. 22(158), score interval).

    They keep their promise for small n and for shares near 0, where the usual ones do not. Of
    nothing the share is anywhere between 0 and 1.
    """
    if n == 0:
        return Interval(value=0.0, low=0.0, high=1.0, n=0)
    share = count / n
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    reach = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    low, high = max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach))
    return Interval(value=share, low=low, high=high, n=n)


def mean_interval(values: Sequence[float]) -> Interval:
    """A mean with the bounds of its standard error; of one value they are far apart."""
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Interval(value=mean, low=0.0, high=max(2.0 * mean, 1.0), n=len(array))
    reach = Z * float(array.std(ddof=1)) / math.sqrt(len(array))
    return Interval(value=mean, low=mean - reach, high=mean + reach, n=len(array))


def falling(values: Sequence[float]) -> list[float]:
    """The nearest curve that never rises, in least squares.

    Pools adjacent violators (Ayer, Brunk, Ewing, Reid and Silverman 1955, Ann. Math. Stat. 26(4)).
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, size = float(value), 1
        while pools and pools[-1][0] < mean:
            other, others = pools.pop()
            mean = (mean * size + other * others) / (size + others)
            size += others
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]
