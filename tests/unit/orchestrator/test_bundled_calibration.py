"""The calibration that comes with Skipstone is that of what comes with Skipstone."""

from __future__ import annotations

import pytest

from skipstone_embedding.gate.prompt_gate import PromptGate
from skipstone_embedding.model_files import find_bundled_gate
from skipstone_orchestrator.calibration import BUNDLED, load_calibration
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.reuse_policy import SEED_DIVERSITY, Donor, Limits, ReusePolicy, judge
from skipstone_shared.calibration import MIN_PAIRS, Calibration
from skipstone_shared.orchestration import ReuseKind


@pytest.fixture(scope="module")
def bundled() -> Calibration:
    found = load_calibration(BUNDLED)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def policy(bundled: Calibration) -> ReusePolicy:
    return OrchestratorSettings().policies().in_force(bundled.services)


def skipped(policy: ReusePolicy, score: float, steps: int, **donor: bool) -> int:
    sigmas = [1 - k * 0.999 / (steps - 1) for k in range(steps)]
    schedule = Schedule.of([*sigmas, 0.0], "flow", ReuseKind)
    candidate = Donor(0.9, {steps}, score=score, **donor)
    return judge(policy, schedule, candidate, Limits()).skip_steps


def test_it_is_of_the_bundled_gate_as_it_is_now(bundled: Calibration) -> None:
    """After a change of the gate's rules `make calibration` fits the file anew."""
    assert bundled.services.reranker_id == PromptGate(find_bundled_gate()).reranker_id


def test_the_default_settings_follow_it(policy: ReusePolicy) -> None:
    assert policy.closed == ""
    assert policy.rivals
    assert OrchestratorSettings().policies().base.version != ReusePolicy().version


def test_no_tier_begins_where_the_gate_itself_would_say_no(bundled: Calibration) -> None:
    assert all(tier.above >= 0.65 for tier in bundled.tiers)
    assert bundled.edited_scores is not None
    assert bundled.edited_scores.highest == bundled.random_scores.highest == 0.0


def test_every_open_tier_rests_on_enough_pairs_and_tells_its_bounds(bundled: Calibration) -> None:
    opened = [tier for tier in bundled.tiers if tier.open]
    assert opened
    for tier in opened:
        assert tier.pairs >= MIN_PAIRS
        assert tier.wrong is not None
        assert tier.wrong.high <= 0.15


def test_a_rewording_skips_deep_and_an_added_detail_shallow(policy: ReusePolicy) -> None:
    assert skipped(policy, 0.99, 50) > skipped(policy, 0.7, 50) > 0
    assert skipped(policy, 0.6, 50) == 0


def test_the_same_prompt_with_another_seed_stays_a_different_picture(policy: ReusePolicy) -> None:
    """Only where 16 seeds spread as they do without a cache."""
    steps = 50
    assert skipped(policy, 1.0, steps, same_prompt=True) < skipped(policy, 1.0, steps)
    schedule = Schedule.of([1.0, 0.85, 0.5, 0.0], "flow", ReuseKind)
    donor = Donor(1.0, {3}, score=1.0, same_prompt=True)
    assert judge(policy, schedule, donor, Limits()).reason == SEED_DIVERSITY
