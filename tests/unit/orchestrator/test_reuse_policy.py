"""The reuse policy: depth by sigma, the floor, and requests that can only tighten it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.reuse_policy import (
    BELOW_LOWEST_TIER,
    BELOW_MIN_SIMILARITY,
    DONOR_DEPTH,
    DONOR_RESUMED,
    KIND_UNSUPPORTED,
    MAX_SKIP_STEPS,
    NO_SNAPSHOT,
    SEED_IGNORED,
    SIGMA_FLOOR,
    TIERS_CLOSED,
    Donor,
    Limits,
    ReusePolicy,
    Tables,
    Tier,
    default_key_steps,
    judge,
)
from skipstone_shared.orchestration import ReuseKind

POLICY = ReusePolicy()
NO_LIMITS = Limits()
BOTH = tuple(ReuseKind)


def shifted(steps: int, shift: float = 1.0) -> list[float]:
    """Sigmas of a flow-matching schedule with a timestep shift."""
    plain = [1 - k / steps for k in range(steps + 1)]
    return [shift * s / (1 + (shift - 1) * s) for s in plain]


def flow(steps: int = 50, shift: float = 1.0, kinds: tuple[ReuseKind, ...] = BOTH) -> Schedule:
    return Schedule.of(shifted(steps, shift), "flow", kinds)


def clean_donor(similarity: float, steps: int = 50) -> Donor:
    return Donor(similarity, {steps})


schedules = st.builds(
    flow, st.integers(1, 120), st.floats(0.2, 12), st.sampled_from([BOTH, *zip(BOTH)])
)
scores = st.floats(-1, 1)
limits = st.builds(
    Limits,
    st.none() | st.floats(0, 1),
    st.none() | st.integers(0, 130),
    st.none() | st.sampled_from(ReuseKind),
)


@st.composite
def donors(draw: st.DrawFn, schedule: Schedule) -> Donor:
    steps = draw(st.sets(st.integers(1, schedule.num_inference_steps)))
    return Donor(
        draw(scores),
        steps,
        depth=draw(st.integers(0, 1)),
        same_prompt=draw(st.booleans()),
        same_seed=draw(st.booleans()),
    )


@pytest.mark.parametrize(
    ("similarity", "skip_steps"),
    [(0.99, 25), (0.951, 25), (0.95, 20), (0.91, 20), (0.86, 15), (0.76, 10), (0.66, 5)],
)
def test_at_50_steps_and_shift_1_the_published_table_holds(
    similarity: float, skip_steps: int
) -> None:
    verdict = judge(POLICY, flow(), clean_donor(similarity), NO_LIMITS)
    assert verdict.skip_steps == skip_steps
    assert verdict.reason == DONOR_RESUMED


def test_other_numbers_of_steps_and_shifts_are_read_by_sigma() -> None:
    """Step 25 of 50 is sigma 0.5 at shift 1 but 0.75 at shift 3, so shift 3 may go deeper."""
    assert judge(POLICY, flow(20), clean_donor(0.99, 20), NO_LIMITS).skip_steps == 10
    at_shift_3 = judge(POLICY, flow(50, shift=3), clean_donor(0.99), NO_LIMITS)
    assert at_shift_3.skip_steps == 37
    assert flow(50, shift=3).sigmas[37] >= 0.5 > flow(50, shift=3).sigmas[38]


def test_sigmas_of_other_families_are_compared_by_their_share_of_noise() -> None:
    """x0 + 1.0 * noise is half noise, as flow sigma 0.5 is."""
    sigmas = [14.6, 4.0, 1.5, 1.0, 0.9, 0.3, 0.0]
    schedule = Schedule.of(sigmas, "epsilon", BOTH)
    verdict = judge(POLICY, schedule, clean_donor(0.99, 6), NO_LIMITS)
    assert verdict.skip_steps == 3


def test_float32_rounding_of_a_sigma_does_not_cost_a_step() -> None:
    sigmas = [1.0, 0.75, 0.49999997, 0.25, 0.0]
    schedule = Schedule.of(sigmas, "flow", BOTH)
    assert judge(POLICY, schedule, clean_donor(0.99, 4), NO_LIMITS).skip_steps == 2


def test_a_schedule_that_is_not_monotone_is_never_skipped_past_its_first_low_step() -> None:
    schedule = Schedule.of([1.0, 0.9, 0.2, 0.8, 0.1, 0.0], "flow", BOTH)
    assert judge(POLICY, schedule, clean_donor(0.99, 5), NO_LIMITS).skip_steps == 1


tables = st.lists(st.builds(Tier, st.floats(0, 1), st.floats(0.01, 0.99)), max_size=6).map(tuple)
policies = st.builds(
    ReusePolicy,
    tables=st.builds(Tables, tables, tables, tables, tables),
    sigma_floor=st.floats(0, 0.99),
    min_similarity=st.floats(0, 1),
    default_kind=st.sampled_from(ReuseKind),
    max_donor_depth=st.integers(0, 1),
)


@given(st.data(), policies, schedules, scores, scores, limits)
def test_skipped_steps_never_fall_when_the_score_rises(
    data: st.DataObject, policy: ReusePolicy, schedule: Schedule, a: float, b: float, asked: Limits
) -> None:
    """Whatever tables somebody makes, rows out of order among them."""
    donor = data.draw(donors(schedule))
    low, high = sorted((a, b))
    lower = judge(policy, schedule, dataclasses.replace(donor, score=low), asked)
    higher = judge(policy, schedule, dataclasses.replace(donor, score=high), asked)
    assert higher.skip_steps >= lower.skip_steps


@given(st.data(), policies, schedules, scores, scores, limits)
def test_nor_when_the_similarity_rises(
    data: st.DataObject, policy: ReusePolicy, schedule: Schedule, a: float, b: float, asked: Limits
) -> None:
    donor = data.draw(donors(schedule))
    low, high = sorted((a, b))
    lower = judge(policy, schedule, dataclasses.replace(donor, similarity=low), asked)
    higher = judge(policy, schedule, dataclasses.replace(donor, similarity=high), asked)
    assert higher.skip_steps >= lower.skip_steps


@given(st.data(), schedules, limits, st.floats(0, 0.99))
def test_nothing_is_skipped_past_the_sigma_floor(
    data: st.DataObject, schedule: Schedule, asked: Limits, floor: float
) -> None:
    policy = ReusePolicy(sigma_floor=floor)
    verdict = judge(policy, schedule, data.draw(donors(schedule)), asked)
    skipped = schedule.levels[: verdict.skip_steps + 1] if verdict.taken else ()
    assert all(level >= floor - 1e-6 for level in skipped)


@given(st.data(), schedules, limits)
def test_a_request_can_only_tighten(data: st.DataObject, schedule: Schedule, asked: Limits) -> None:
    donor = data.draw(donors(schedule))
    free = judge(POLICY, schedule, donor, Limits(kind=asked.kind))
    tightened = judge(POLICY, schedule, donor, asked)
    assert tightened.skip_steps <= free.skip_steps
    if tightened.taken and asked.max_skip_steps is not None:
        assert tightened.skip_steps <= asked.max_skip_steps
    if tightened.taken and asked.min_similarity is not None:
        assert donor.similarity >= asked.min_similarity


@given(st.data(), schedules, limits)
def test_what_is_taken_is_stored_and_supported_and_never_the_whole_run(
    data: st.DataObject, schedule: Schedule, asked: Limits
) -> None:
    donor = data.draw(donors(schedule))
    verdict = judge(POLICY, schedule, donor, asked)
    if not verdict.taken:
        assert verdict.kind is None
        assert verdict.reason != DONOR_RESUMED
        return
    steps = schedule.num_inference_steps
    assert 1 <= verdict.skip_steps < steps
    assert verdict.kind in schedule.kinds
    assert (steps if verdict.kind is ReuseKind.RENOISE else verdict.skip_steps) in donor.steps
    assert donor.depth == 0


@given(st.data(), schedules, limits)
def test_the_same_prompt_with_another_seed_never_goes_on_from_a_snapshot(
    data: st.DataObject, schedule: Schedule, asked: Limits
) -> None:
    """A deterministic sampler would give the donor's picture again."""
    donor = data.draw(donors(schedule))
    donor = dataclasses.replace(donor, same_prompt=True, same_seed=False)
    assert judge(POLICY, schedule, donor, asked).kind is not ReuseKind.TRAJECTORY


def test_each_refusal_names_its_reason() -> None:
    twin = Donor(1.0, {50, 25}, same_prompt=True)
    trajectory = Limits(kind=ReuseKind.TRAJECTORY)
    reasons = {
        DONOR_DEPTH: (flow(), Donor(1.0, {50}, depth=1), NO_LIMITS),
        BELOW_MIN_SIMILARITY: (flow(), clean_donor(0.9), Limits(min_similarity=0.95)),
        BELOW_LOWEST_TIER: (flow(), clean_donor(0.65), NO_LIMITS),
        SEED_IGNORED: (flow(), twin, trajectory),
        KIND_UNSUPPORTED: (flow(kinds=(ReuseKind.RENOISE,)), clean_donor(0.9), trajectory),
        SIGMA_FLOOR: (flow(1), clean_donor(0.99, 1), NO_LIMITS),
        NO_SNAPSHOT: (flow(), Donor(0.99, {10}), NO_LIMITS),
        MAX_SKIP_STEPS: (flow(), clean_donor(0.99), Limits(max_skip_steps=0)),
    }
    for reason, case in reasons.items():
        assert judge(POLICY, *case).reason == reason


def test_an_operators_own_limit_is_named_as_such() -> None:
    """It is not the table that refuses: it would have taken this donor."""
    policy = ReusePolicy(min_similarity=0.8)
    assert judge(policy, flow(), clean_donor(0.79), NO_LIMITS).reason == BELOW_MIN_SIMILARITY
    assert judge(policy, flow(), clean_donor(0.81), NO_LIMITS).taken


def test_a_similarity_that_is_not_a_number_is_refused_even_with_a_good_score() -> None:
    donor = Donor(float("nan"), {50}, score=0.99)
    assert not judge(POLICY, flow(), donor, NO_LIMITS).taken


def test_trajectory_takes_the_deepest_stored_snapshot_above_the_target() -> None:
    policy = ReusePolicy(default_kind=ReuseKind.TRAJECTORY)
    verdict = judge(policy, flow(), Donor(0.88, {5, 10, 14, 20, 25, 50}), NO_LIMITS)
    assert (verdict.skip_steps, verdict.kind) == (14, ReuseKind.TRAJECTORY)


def test_trajectory_starts_only_where_the_scheduler_may_resume() -> None:
    """A Heun scheduler gives garbage at odd indices."""
    policy = ReusePolicy(default_kind=ReuseKind.TRAJECTORY)
    schedule = Schedule.of(shifted(50), "flow", BOTH, resumable_steps=range(2, 50, 2))
    assert judge(policy, schedule, Donor(0.88, {7, 12, 15}), NO_LIMITS).skip_steps == 12


def test_a_default_kind_that_the_scheduler_cannot_do_gives_way_to_the_other() -> None:
    schedule = flow(kinds=(ReuseKind.TRAJECTORY,))
    verdict = judge(POLICY, schedule, Donor(0.99, {20, 50}), NO_LIMITS)
    assert (verdict.skip_steps, verdict.kind) == (20, ReuseKind.TRAJECTORY)


def test_a_policy_that_is_closed_takes_nobody_and_says_why() -> None:
    policy = ReusePolicy(closed="CALIBRATION_MISMATCH")
    verdict = judge(policy, flow(), clean_donor(1.0), NO_LIMITS)
    assert (verdict.taken, verdict.reason) == (False, "CALIBRATION_MISMATCH")


def test_a_donor_of_the_requests_own_seed_has_tables_of_its_own() -> None:
    """It began in the same noise, so that more of it fits."""
    policy = ReusePolicy(tables=Tables((Tier(0.9, 0.9),), (), (Tier(0.9, 0.5),), ()))
    stranger, own = (Donor(0.99, {50}, same_seed=same) for same in (False, True))
    assert judge(policy, flow(), stranger, NO_LIMITS).skip_steps == 5
    verdict = judge(policy, flow(), own, NO_LIMITS)
    assert (verdict.skip_steps, verdict.tier) == (25, Tier(0.9, 0.5))


def test_the_snapshots_of_a_donor_of_the_own_seed_are_gone_on_from() -> None:
    """It began in the same noise: its path leads nearer to the full run than its renoised end."""
    own = Donor(0.99, {20, 50}, same_seed=True)
    assert judge(POLICY, flow(), own, NO_LIMITS).kind is ReuseKind.TRAJECTORY
    stranger = dataclasses.replace(own, same_seed=False)
    assert judge(POLICY, flow(), stranger, NO_LIMITS).kind is ReuseKind.RENOISE
    clean_only = dataclasses.replace(own, steps={50})
    assert judge(POLICY, flow(), clean_only, NO_LIMITS).kind is ReuseKind.RENOISE
    asked = Limits(kind=ReuseKind.RENOISE)
    assert judge(POLICY, flow(), own, asked).kind is ReuseKind.RENOISE


def test_a_kind_without_tiers_gives_way_to_one_that_has_some_unless_it_was_asked_for() -> None:
    policy = ReusePolicy(tables=Tables((), (Tier(0.9, 0.6),), (), ()))
    donor = Donor(0.99, {20, 50})
    taken = judge(policy, flow(), donor, NO_LIMITS)
    assert (taken.kind, taken.skip_steps) == (ReuseKind.TRAJECTORY, 20)
    assert judge(policy, flow(), donor, Limits(kind=ReuseKind.RENOISE)).reason == TIERS_CLOSED
    twin = dataclasses.replace(donor, same_prompt=True)
    assert judge(policy, flow(), twin, NO_LIMITS).reason == TIERS_CLOSED


def test_the_gates_score_replaces_similarity_in_the_table() -> None:
    donor = Donor(0.99, {50}, score=0.7)
    assert judge(POLICY, flow(), donor, NO_LIMITS).skip_steps == 5


def test_renoise_needs_no_key_steps_and_trajectory_stores_those_near_its_levels() -> None:
    assert default_key_steps(POLICY, flow(), None) == ()
    wanted = default_key_steps(POLICY, flow(), ReuseKind.TRAJECTORY)
    assert wanted == (5, 10, 15, 20, 25)
    assert default_key_steps(POLICY, flow(2), ReuseKind.TRAJECTORY) == (1,)
    assert default_key_steps(POLICY, flow(1), ReuseKind.TRAJECTORY) == ()


@given(schedules, st.sampled_from(ReuseKind))
def test_key_steps_ascend_inside_the_run_and_above_the_floor(
    schedule: Schedule, kind: ReuseKind
) -> None:
    steps = default_key_steps(POLICY, schedule, kind)
    assert list(steps) == sorted(set(steps))
    assert all(1 <= s < schedule.num_inference_steps for s in steps)
    assert all(schedule.levels[s] >= POLICY.sigma_floor - 1e-6 for s in steps)


def test_every_setting_of_the_policy_changes_its_version() -> None:
    changed = [
        ReusePolicy(tables=Tables.alike((Tier(0.9, 0.8),))),
        ReusePolicy(sigma_floor=0.6),
        ReusePolicy(min_similarity=0.7),
        ReusePolicy(default_kind=ReuseKind.TRAJECTORY),
        ReusePolicy(max_donor_depth=1),
        ReusePolicy(key_levels=(0.9,)),
        ReusePolicy(closed="CALIBRATION_MISMATCH"),
    ]
    assert len({policy.version for policy in [POLICY, *changed]}) == len(changed) + 1
    assert ReusePolicy().version == POLICY.version
