"""What a reused step takes instead of its middle blocks."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipstone_denoise.blockcache.dbcache import DBCacheState
from skipstone_denoise.blockcache.patterns import Streams
from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.taylorseer import (
    DividedDifferenceForecaster,
    Forecaster,
    RepeatForecaster,
    TaylorForecaster,
    make_forecaster,
)


def value(number: float) -> Tensor:
    return torch.tensor([number, 10 * number], dtype=torch.float64)


def after(forecaster: Forecaster, *computed: tuple[int, float]) -> Forecaster:
    for step, number in computed:
        forecaster.update(step, value(number))
    return forecaster


def test_repeating_gives_the_last_value_whatever_the_step() -> None:
    forecaster = after(RepeatForecaster(), (0, 1.0), (3, 5.0))
    assert torch.equal(forecaster.value_at(9), value(5.0))


def test_order_one_extrapolates_along_the_last_difference_per_step() -> None:
    # From step 2 to 5 the value rises by 9, so by 3 a step.
    forecaster = after(TaylorForecaster(1), (0, 1.0), (2, 2.0), (5, 11.0))
    assert torch.equal(forecaster.value_at(6), value(14.0))
    assert torch.equal(forecaster.value_at(8), value(20.0))


def test_order_two_adds_the_difference_of_differences() -> None:
    # D1 is 3 at step 5 and (21 - 11) / 2 = 5 at step 7, so D2 is (5 - 3) / 2 = 1.
    computed = (0, 1.0), (2, 2.0), (5, 11.0), (7, 21.0)
    assert torch.equal(after(TaylorForecaster(2), *computed).value_at(8), value(21 + 5 + 0.5))
    assert torch.equal(after(TaylorForecaster(2), *computed).value_at(9), value(21 + 10 + 2.0))
    assert torch.equal(after(TaylorForecaster(1), *computed).value_at(9), value(21 + 10.0))


def test_the_earliest_steps_make_no_difference() -> None:
    early = after(TaylorForecaster(2), (4, 1.0), (5, 3.0), (6, 9.0))
    assert torch.equal(early.value_at(7), value(9.0))
    # Three steps after the first one it begins, with the last gap alone.
    assert torch.equal(after(early, (7, 10.0)).value_at(8), value(11.0))


def test_one_value_is_repeated_by_every_forecaster() -> None:
    for forecast in Forecast:
        forecaster = make_forecaster(DBCacheSettings(forecast=forecast, taylor_order=2))
        assert torch.equal(after(forecaster, (3, 4.0)).value_at(5), value(4.0))


def test_two_values_make_a_line_where_a_parabola_was_asked_for() -> None:
    forecaster = after(DividedDifferenceForecaster(2), (0, 1.0), (2, 5.0))
    assert torch.equal(forecaster.value_at(3), value(7.0))


@settings(deadline=None)
@given(
    coefficients=st.lists(st.integers(-9, 9), min_size=1, max_size=3),
    gaps=st.lists(st.integers(1, 7), min_size=2, max_size=6),
    ahead=st.integers(1, 5),
)
def test_divided_differences_continue_every_polynomial_of_their_order(
    coefficients: list[int], gaps: list[int], ahead: int
) -> None:
    def polynomial(step: int) -> float:
        return float(sum(c * step**power for power, c in enumerate(coefficients)))

    steps = list(itertools.accumulate(gaps, initial=0))
    forecaster = DividedDifferenceForecaster(2)
    after(forecaster, *((step, polynomial(step)) for step in steps))
    goal = steps[-1] + ahead
    # Numbers up to 1e5, so this is 1e-11 of them.
    assert torch.allclose(forecaster.value_at(goal), value(polynomial(goal)), rtol=0, atol=1e-6)


@settings(deadline=None)
@given(gap=st.integers(1, 6), ahead=st.integers(1, 4), slope=st.integers(-9, 9))
def test_both_forecasts_agree_on_lines(gap: int, ahead: int, slope: int) -> None:
    computed = [(0, 0.0), (3, 3.0 * slope), (3 + gap, (3.0 + gap) * slope)]
    taylor = after(TaylorForecaster(1), *computed)
    divided = after(DividedDifferenceForecaster(1), *computed)
    step = 3 + gap + ahead
    assert torch.allclose(taylor.value_at(step), divided.value_at(step))
    assert torch.allclose(taylor.value_at(step), value(float(step * slope)))


@pytest.mark.parametrize("forecast", Forecast)
def test_a_forecast_changes_nothing_that_is_held_and_keeps_the_dtype(forecast: Forecast) -> None:
    forecaster = make_forecaster(DBCacheSettings(forecast=forecast, taylor_order=2))
    for step in (0, 3, 4, 6):
        forecaster.update(step, torch.tensor([float(step * step)], dtype=torch.bfloat16))
    before = [tensor.clone() for tensor in forecaster.tensors()]
    first, again = forecaster.value_at(8), forecaster.value_at(8)
    assert first.dtype == torch.bfloat16
    assert torch.equal(first, again)
    assert all(torch.equal(*pair) for pair in zip(before, forecaster.tensors(), strict=True))


@pytest.mark.parametrize("forecast", Forecast)
def test_no_more_is_held_than_the_order_needs(forecast: Forecast) -> None:
    forecaster = make_forecaster(DBCacheSettings(forecast=forecast, taylor_order=2))
    after(forecaster, *((step, float(step)) for step in range(0, 20, 2)))
    assert len(forecaster.tensors()) == (1 if forecast is Forecast.REPEAT else 3)


@pytest.mark.parametrize("whole", [False, True])
def test_both_streams_are_forecast(whole: bool) -> None:
    state = DBCacheState(DBCacheSettings(forecast=Forecast.TAYLOR, forecast_hidden=whole))
    for step, factor in ((0, 1.0), (3, 2.0), (4, 4.0)):
        front = Streams(value(1.0), value(2.0))
        state.store(step, value(1.0), front, Streams(value(1.0 + factor), value(2.0 - factor)))
    hidden, encoder = state.reuse(5, Streams(value(100.0), value(200.0)))
    assert encoder is not None
    # The residual goes from 2 to 4 in a step, so to 6; as hidden states from 5 to 7.
    assert torch.equal(hidden, value(7.0 if whole else 106.0))
    assert torch.equal(encoder, value(-4.0 if whole else 194.0))


@pytest.mark.parametrize("forecast", Forecast)
def test_a_step_that_is_run_again_does_not_divide_by_its_own_distance(forecast: Forecast) -> None:
    state = DBCacheState(DBCacheSettings(forecast=forecast))
    front = Streams(value(1.0), None)
    for step, residual in ((0, 1.0), (3, 2.0), (3, 3.0)):
        state.store(step, value(1.0), front, Streams(value(1.0 + residual), None))
    assert torch.equal(state.reuse(4, front).hidden, value(4.0))
