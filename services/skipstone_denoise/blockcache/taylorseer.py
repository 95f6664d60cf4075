"""What a reused step takes instead of the middle blocks: the last value, or a forecast.

TaylorSeer: Liu et al., 2025, arXiv 2503.06923, equations 5 to 7 (finite differences of the features
at computed steps stand in for derivatives). Divided differences: Newton's interpolation formula,
exact for polynomials of the order at any spacing of the computed steps.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast

FIRST_DIFFERENCE_AFTER = 3
"""Steps between the first computed step and the first difference: the earliest steps change too
fast to be extrapolated from. The reference does the same."""


class Forecaster(Protocol):
    """Remembers values of computed steps and gives one for a later step.

    Steps rise from call to call. Values keep shape and dtype; they are held, not copied.
    """

    def update(self, step: int, value: Tensor) -> None:
        """Takes the value of a computed step."""

    def value_at(self, step: int) -> Tensor:
        """The value to use at a step after the last update, in the shape and dtype of it."""

    def tensors(self) -> tuple[Tensor, ...]:
        """All that is held."""


def make_forecaster(settings: DBCacheSettings) -> Forecaster:
    """The forecaster that the settings ask for."""
    if settings.forecast is Forecast.TAYLOR:
        return TaylorForecaster(settings.taylor_order)
    if settings.forecast is Forecast.DIVIDED_DIFFERENCE:
        return DividedDifferenceForecaster(settings.taylor_order)
    return RepeatForecaster()


class RepeatForecaster:
    """Repeats the last value."""

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._value: Tensor | None = None

    def update(self, step: int, value: Tensor) -> None:
        """Replaces the value."""
        del step
        self._value = value

    def value_at(self, step: int) -> Tensor:
        """The last value."""
        del step
        assert self._value is not None
        return self._value

    def tensors(self) -> tuple[Tensor, ...]:
        """The last value."""
        return () if self._value is None else (self._value,)


class TaylorForecaster:
    """Sum of `D_i k^i / i!`, with `D_i` the i-th finite difference and `k` the steps elapsed.

    `D_0` is the last value; `D_{i+1} = (D_i - previous D_i) / gap`, with the gap in steps between
    the two computed ones.
    """

    def __init__(self, order: int) -> None:
        """Holds nothing yet; `order` is the highest difference used, at least 1."""
        self._order = order
        self._first_step: int | None = None
        self._last_step = 0
        self._terms: list[Tensor] = []

    def update(self, step: int, value: Tensor) -> None:
        """Takes the differences to the step before."""
        if self._first_step is None:
            self._first_step = step
        terms = [value]
        if step - self._first_step >= FIRST_DIFFERENCE_AFTER:
            gap = step - self._last_step
            for previous in self._terms[: self._order]:
                terms.append((terms[-1] - previous) / gap)
        self._terms = terms
        self._last_step = step

    def value_at(self, step: int) -> Tensor:
        """The forecast; the last value itself while there is no difference."""
        elapsed = step - self._last_step
        value = self._terms[0]
        for power, term in enumerate(self._terms[1:], start=1):
            value = torch.add(value, term, alpha=elapsed**power / math.factorial(power))
        return value

    def tensors(self) -> tuple[Tensor, ...]:
        """The last value and its differences."""
        return tuple(self._terms)


class DividedDifferenceForecaster:
    """Extrapolates the polynomial through the last `order + 1` computed steps.

    With `x_0` the newest step: `f[x_0] + f[x_0, x_1] (x - x_0) + f[x_0, x_1, x_2] (x - x_0)(x -
    x_1)`.
    """

    def __init__(self, order: int) -> None:
        """Holds nothing yet; `order` is the polynomial's, at least 1."""
        self._order = order
        self._steps: list[int] = []
        self._terms: list[Tensor] = []

    def update(self, step: int, value: Tensor) -> None:
        """Takes the divided differences that begin at this step."""
        terms = [value]
        for previous, older in zip(self._terms[: self._order], self._steps, strict=False):
            terms.append((terms[-1] - previous) / (step - older))
        self._terms = terms
        self._steps = [step, *self._steps][: self._order + 1]

    def value_at(self, step: int) -> Tensor:
        """The polynomial's value."""
        value, product = self._terms[0], 1
        for term, earlier in zip(self._terms[1:], self._steps, strict=False):
            product *= step - earlier
            value = torch.add(value, term, alpha=product)
        return value

    def tensors(self) -> tuple[Tensor, ...]:
        """The last value and its divided differences."""
        return tuple(self._terms)
