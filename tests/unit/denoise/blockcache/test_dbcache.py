"""When a step is computed and when it is reused, rule by rule."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from skipstone_denoise.blockcache.dbcache import (
    DBCacheState,
    Reason,
    StepRecord,
    relative_differences,
)
from skipstone_denoise.blockcache.patterns import Streams
from skipstone_denoise.blockcache.settings import DBCacheSettings

C = Reason.NOT_BELOW_THRESHOLD
R = Reason.BELOW_THRESHOLD
WARM = Reason.WARM_UP
NEW = Reason.NOTHING_STORED

SMALL = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]
"""Residuals that change by at most 7 % in all."""


def settings(**changes: object) -> DBCacheSettings:
    plain: dict[str, object] = {
        "max_warmup_steps": 0,
        "max_continuous_cached_steps": -1,
        "residual_diff_threshold": 0.5,
    }
    return DBCacheSettings(**{**plain, **changes})


def tensor(number: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full((1, 2, 2), number, dtype=dtype)


def take(state: DBCacheState, step: int, number: float) -> Reason:
    """One step in which every value of the front blocks' residual is `number`."""
    front, diff = Streams(tensor(5.0), None), math.nan
    reason = state.rule(step, front.shapes)
    if reason is None:
        diff = relative_differences([state.measure(tensor(number))], None)[0]
        reason = state.judge(diff)
    state.record(StepRecord(step, reason, diff))
    if reason.reuses:
        state.reuse(step, front)
    else:
        residual = tensor(number) if state.keeps_reference else None
        state.store(step, residual, front, Streams(tensor(6.0), None))
    return reason


def decided(chosen: DBCacheSettings, numbers: list[float]) -> list[Reason]:
    state = DBCacheState(chosen)
    return [take(state, step, number) for step, number in enumerate(numbers)]


def test_the_difference_is_relative_to_the_last_computed_step() -> None:
    state = DBCacheState(settings())
    assert [take(state, step, n) for step, n in enumerate([1.0, 1.3, 1.6, 2.0, 2.3])] == [
        NEW,
        R,  # 0.3 of 1.0
        C,  # 0.6 of 1.0: a reused step is no reference
        R,  # 0.4 of 1.6
        R,  # 0.7 of 1.6 is 0.4375
    ]
    diffs = [record.residual_diff for record in state.records]
    assert math.isnan(diffs[0])
    assert diffs[1:] == pytest.approx([0.3, 0.6, 0.25, 0.4375])


def test_only_a_difference_below_the_threshold_reuses() -> None:
    assert decided(settings(residual_diff_threshold=0.5), [2.0, 3.0])[1] is C
    just_above = math.nextafter(0.5, 1.0)
    assert decided(settings(residual_diff_threshold=just_above), [2.0, 3.0])[1] is R


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_computed_and_forgotten(number: float) -> None:
    assert decided(settings(), [1.0, number, 1.0, 1.0]) == [
        NEW,
        Reason.NOT_FINITE,
        Reason.NOT_FINITE,
        R,
    ]


def test_a_residual_of_zero_is_no_measure() -> None:
    assert decided(settings(), [0.0, 0.0, 1.0]) == [NEW] + 2 * [Reason.NOT_FINITE]


def test_a_threshold_of_zero_never_reuses_and_one_always_does() -> None:
    zero, one = settings(residual_diff_threshold=0.0), settings(residual_diff_threshold=1.0)
    assert decided(zero, [1.0, 1.0, 1.0]) == [NEW] + 2 * [Reason.THRESHOLD_ZERO]
    assert decided(one, [1.0, 9.0, math.nan]) == [NEW] + 2 * [Reason.THRESHOLD_ONE]


def test_the_warm_up_computes_every_so_manieth_of_its_steps() -> None:
    chosen = settings(max_warmup_steps=5, warmup_interval=2)
    assert decided(chosen, SMALL[:7]) == [WARM, R, WARM, R, WARM, R, R]


def test_the_longest_run_of_reused_steps_ends_in_a_computed_one() -> None:
    chosen = settings(max_continuous_cached_steps=2)
    limit = Reason.MAX_CONTINUOUS
    assert decided(chosen, SMALL) == [NEW, R, R, limit, R, R, limit, R]
    assert decided(settings(max_continuous_cached_steps=0), SMALL[:3]) == [NEW, limit, limit]


def test_a_run_goes_on_over_steps_in_which_the_branch_is_not_called() -> None:
    """Guidance that is applied at every other step only."""
    state = DBCacheState(settings(max_continuous_cached_steps=2))
    assert [take(state, step, 1.0) for step in (0, 2, 4, 6, 8)] == [
        NEW,
        R,
        R,
        Reason.MAX_CONTINUOUS,
        R,
    ]


def test_no_more_steps_are_reused_than_allowed_in_all() -> None:
    limit = Reason.MAX_CACHED_STEPS
    chosen = settings(max_cached_steps=2, max_continuous_cached_steps=1)
    assert decided(chosen, SMALL[:6]) == [NEW, R, Reason.MAX_CONTINUOUS, R, limit, limit]
    assert decided(settings(max_cached_steps=0), SMALL[:3]) == [NEW, limit, limit]


def test_nothing_is_reused_once_the_measured_differences_sum_up_to_the_limit() -> None:
    chosen = settings(max_accumulated_residual_diff=1.0)
    limit = Reason.MAX_ACCUMULATED
    # 0.25, then 0.75 that is computed and counts too; 1.0 is reached.
    assert decided(chosen, [4.0, 5.0, 7.0, 7.0, 7.0]) == [NEW, R, C, limit, limit]


def test_a_dynamic_mask_computes_where_it_says_and_measures_elsewhere() -> None:
    mask = (True, False, True, False, False)
    chosen = settings(steps_mask=mask)
    assert decided(chosen, [1.0, 1.1, 1.2, 1.3, 9.0]) == [
        Reason.MASK_COMPUTES,
        R,
        Reason.MASK_COMPUTES,
        R,
        C,
    ]


def test_a_static_mask_decides_alone_and_keeps_no_reference() -> None:
    mask = (True, False, False, True, False)
    chosen = settings(steps_mask=mask, static_mask=True, max_continuous_cached_steps=1)
    compute, reuse = Reason.MASK_COMPUTES, Reason.MASK_REUSES
    assert decided(chosen, [1.0, 9.0, -9.0, 1.0, 9.0]) == [compute, reuse, reuse, compute, reuse]
    state = DBCacheState(chosen)
    take(state, 0, 1.0)
    assert not state.keeps_reference
    assert len(state.tensors()) == 1


def test_a_static_mask_that_begins_with_reuse_computes_first_what_it_will_reuse() -> None:
    chosen = settings(steps_mask=(False, False, True), static_mask=True)
    assert decided(chosen, SMALL[:3]) == [NEW, Reason.MASK_REUSES, Reason.MASK_COMPUTES]


def test_steps_past_the_end_of_a_mask_are_not_computed_by_it() -> None:
    dynamic = settings(steps_mask=(True, False))
    assert decided(dynamic, [1.0, 1.0, 1.0, 9.0])[2:] == [R, C]
    static = settings(steps_mask=(True, False), static_mask=True)
    assert decided(static, [1.0, 1.0, 9.0])[2] is Reason.MASK_REUSES


def test_a_mask_that_reuses_during_the_warm_up_ends_it() -> None:
    chosen = settings(steps_mask=(True, True, False, True), max_warmup_steps=4)
    assert decided(chosen, SMALL[:5]) == [WARM, WARM, R, Reason.MASK_COMPUTES, R]
    assert list(settings(steps_mask=(True,) * 9, max_warmup_steps=4).warmup_steps) == [0, 1, 2, 3]


LADDER: list[tuple[Reason, dict[str, object]]] = [
    (Reason.WARM_UP, {"max_warmup_steps": 9}),
    (Reason.MASK_COMPUTES, {"steps_mask": (True,) * 9}),
    (Reason.MAX_CACHED_STEPS, {"max_cached_steps": 0}),
    (Reason.MAX_CONTINUOUS, {"max_continuous_cached_steps": 0}),
    (Reason.MAX_ACCUMULATED, {"max_accumulated_residual_diff": 0.0}),
    (Reason.THRESHOLD_ZERO, {"residual_diff_threshold": 0.0}),
]
"""The rules in the order in which they are asked, each with settings under which it speaks."""


@pytest.mark.parametrize("first", range(len(LADDER)))
def test_the_rules_are_asked_in_order(first: int) -> None:
    everything: dict[str, object] = {}
    for _, change in LADDER[first:]:
        everything |= change
    state = DBCacheState(settings(**everything))
    take(state, 0, 1.0)
    assert take(state, 1, 1.0) is LADDER[first][0]


def test_a_static_mask_comes_before_all_limits() -> None:
    limits = {key: value for _, change in LADDER[2:] for key, value in change.items()}
    chosen = settings(steps_mask=(True, False), static_mask=True, **limits)
    assert decided(chosen, [1.0, 9.0])[1] is Reason.MASK_REUSES


@pytest.mark.parametrize(
    ("changes", "tensors"),
    [
        ({}, 2),
        ({"residual_diff_threshold": 0.0}, 1),
        ({"residual_diff_threshold": 1.0}, 1),
        ({"steps_mask": (True, False), "static_mask": True}, 1),
        ({"steps_mask": (True, False)}, 2),
        ({"static_mask": True}, 2),
    ],
)
def test_a_reference_is_kept_only_where_something_is_measured(
    changes: dict[str, object], tensors: int
) -> None:
    state = DBCacheState(settings(**changes))
    take(state, 0, 1.0)
    assert len(state.tensors()) == tensors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_differences_of_short_dtypes_are_summed_in_float32(dtype: torch.dtype) -> None:
    """A sum of 20,000 ones stops at 256 in bfloat16, and at 2,048 in float16."""
    state = DBCacheState(settings())
    reference = torch.ones(1, 10_000, 2, dtype=dtype)
    streams = Streams(reference, None)
    state.store(0, reference, streams, streams)
    moved = reference.clone()
    moved[:, :100] = 1.5
    numerator, denominator = state.measure(moved)
    assert (numerator.dtype, denominator.dtype) == (torch.float32, torch.float32)
    assert (numerator.item(), denominator.item()) == (100.0, 20_000.0)


@pytest.mark.parametrize("hidden", [(1, 3, 2), (2, 2, 2)])
def test_another_size_inside_a_request_starts_over(hidden: tuple[int, ...]) -> None:
    state = DBCacheState(settings())
    take(state, 0, 1.0)
    assert state.rule(1, (hidden, None)) is NEW
    assert state.rule(1, ((1, 2, 2), (1, 7, 2))) is NEW
    assert state.rule(1, ((1, 2, 2), None)) is None


def test_what_is_released_is_gone_and_the_next_step_computed() -> None:
    state = DBCacheState(settings())
    take(state, 0, 1.0)
    state.release()
    assert state.tensors() == ()
    assert [take(state, 1, 1.0), take(state, 2, 1.0)] == [NEW, R]
