"""What audits do to tiers and donors."""

from __future__ import annotations

import math
import statistics

import pytest

from skipstone_orchestrator.drift_guard import DriftGuard, DriftLimits, ReuseTier, upper_bound
from skipstone_orchestrator.reuse_policy import ReusePolicy, Tables
from skipstone_shared.orchestration import ReuseKind

DEEP = ReuseTier(ReuseKind.RENOISE, 0.5)
SHALLOW = ReuseTier(ReuseKind.RENOISE, 0.9)
POLICY = ReusePolicy()


def guard_of(max_drift: float = 0.5, min_audits: int = 3, window: int = 4) -> DriftGuard:
    return DriftGuard(DriftLimits(max_drift, min_audits, window))


def levels(tables: Tables, kind: ReuseKind, *, same_seed: bool = False) -> set[float]:
    return {row.level for row in tables.rows(kind, same_seed)}


def record(guard: DriftGuard, tier: ReuseTier, *drifts: float) -> None:
    for drift in drifts:
        guard.record(tier, drift)


def test_before_any_audit_the_policy_is_the_operators_own() -> None:
    assert guard_of().opened(POLICY) is POLICY
    assert guard_of().states() == ()


def test_a_tier_whose_bound_is_above_the_limit_closes_alone() -> None:
    guard = guard_of()
    record(guard, DEEP, 0.9, 0.8, 0.9)
    tables = guard.opened(POLICY).tables
    assert levels(tables, ReuseKind.RENOISE) == {0.6, 0.7, 0.8, 0.9}
    assert tables.trajectory == POLICY.tables.trajectory, "the other way is another tier"
    assert tables.renoise_same_seed == POLICY.tables.renoise_same_seed, "so is the own seed"
    assert [state.closed for state in guard.states()] == [True]


def test_good_donors_of_the_own_seed_do_not_hide_bad_ones_of_another() -> None:
    """At one level the one drifts by 0.35 and the other by 1."""
    guard = guard_of(max_drift=0.8, min_audits=3, window=64)
    own = ReuseTier(ReuseKind.RENOISE, DEEP.level, same_seed=True)
    for _ in range(16):
        record(guard, own, 0.35, 0.35, 0.35)
        record(guard, DEEP, 1.0)
    tables = guard.opened(POLICY).tables
    assert DEEP.level not in levels(tables, ReuseKind.RENOISE)
    assert own.level in levels(tables, ReuseKind.RENOISE, same_seed=True)
    assert {state.tier for state in guard.states()} == {"renoise 0.50", "renoise 0.50 same seed"}


def test_a_tier_below_the_limit_stays_open() -> None:
    guard = guard_of()
    record(guard, DEEP, 0.3, 0.31, 0.29, 0.3, 0.3)
    assert guard.opened(POLICY) is POLICY
    (state,) = guard.states()
    assert (state.audits, state.closed) == (4, False)
    assert state.bound == pytest.approx(0.3, abs=0.05)
    assert state.bound > 0.3


def test_too_few_audits_decide_nothing() -> None:
    guard = guard_of(min_audits=3)
    record(guard, DEEP, 5.0, 5.0)
    assert guard.opened(POLICY) is POLICY
    assert guard.states()[0].bound is None


def test_a_mean_below_the_limit_is_not_enough_when_the_audits_differ_a_lot() -> None:
    guard = guard_of(max_drift=0.5)
    record(guard, DEEP, 0.1, 0.9, 0.2)
    assert statistics.fmean((0.1, 0.9, 0.2)) < 0.5
    assert guard.states()[0].closed


def test_a_closed_tier_opens_by_as_many_new_good_audits_and_no_old_ones() -> None:
    guard = guard_of(min_audits=3)
    record(guard, DEEP, 0.9, 0.9, 0.9)
    record(guard, DEEP, 0.1, 0.1)
    assert guard.states()[0].closed
    record(guard, DEEP, 0.1)
    assert not guard.states()[0].closed
    assert guard.opened(POLICY) is POLICY


def test_a_tier_that_gets_worse_closes_once_the_window_shows_it() -> None:
    guard = guard_of(min_audits=3, window=4)
    record(guard, DEEP, *[0.1] * 10)
    record(guard, DEEP, *[0.9] * 4)
    assert guard.states()[0].closed


def test_closing_two_tiers_leaves_the_rest() -> None:
    guard = guard_of(min_audits=1)
    record(guard, DEEP, 2.0)
    assert levels(guard.opened(POLICY).tables, ReuseKind.RENOISE) == {0.6, 0.7, 0.8, 0.9}
    record(guard, SHALLOW, 2.0)
    assert levels(guard.opened(POLICY).tables, ReuseKind.RENOISE) == {0.6, 0.7, 0.8}
    assert guard.opened(POLICY).version != POLICY.version


def test_a_donor_is_set_aside_in_its_namespace() -> None:
    guard = guard_of()
    guard.quarantine("a", "x1")
    assert guard.is_quarantined("a", "x1")
    assert not guard.is_quarantined("b", "x1")
    assert guard.quarantined_count == 1


@pytest.mark.parametrize(("count", "quantile"), [(4, 2.353), (8, 1.895), (30, 1.699)])
def test_the_bound_is_students(count: int, quantile: float) -> None:
    audits = [0.1 * (n % 3) for n in range(count)]
    expected = statistics.fmean(audits) + quantile * statistics.stdev(audits) / math.sqrt(count)
    assert upper_bound(audits) == pytest.approx(expected, rel=0.01)
