"""A calibration holds for the services it was made with, within the limits of the operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skipstone_orchestrator.calibration import (
    CALIBRATION_MISMATCH,
    NO_CALIBRATION,
    CalibrationLimits,
    Policies,
    calibrated_tables,
    load_calibration,
)
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.reuse_policy import (
    FEWER_STEPS_WIN,
    PUBLISHED_TABLE,
    SEED_DIVERSITY,
    Donor,
    Limits,
    ReusePolicy,
    judge,
)
from skipstone_shared.calibration import (
    CalibratedTier,
    Calibration,
    CalibrationError,
    Interval,
    Measurement,
    PlainRun,
    Scores,
    ServiceIds,
    read_calibration,
)
from skipstone_shared.orchestration import ReuseKind

SERVICES = ServiceIds(embedder_id="minilm", reranker_id="gate-1", model_hash="aa")
LIMITS = CalibrationLimits()
BASE = ReusePolicy(sigma_floor=0.4)


def interval(value: float, spread: float = 0.05, n: int = 50) -> Interval:
    return Interval(value=value, low=max(0.0, value - spread), high=value + spread, n=n)


def tier(level: float, above: float, **changes: Any) -> CalibratedTier:
    facts: dict[str, Any] = {
        "kind": ReuseKind.RENOISE,
        "same_seed": False,
        "level": level,
        "executed_steps": 10,
        "above": above,
        "pairs": 50,
        "wrong": interval(0.02),
        "drift": interval(0.8),
        "diversity": interval(1.0),
        "open": True,
    }
    return CalibratedTier(**{**facts, **changes})


def plain(steps: int, drift: float, wrong: float = 0.1) -> PlainRun:
    return PlainRun(steps=steps, drift=interval(drift), wrong=interval(wrong))


def calibration(*tiers: CalibratedTier, **changes: Any) -> Calibration:
    facts: dict[str, Any] = {
        "schema_version": 1,
        "services": SERVICES,
        "measured": Measurement(
            by="a test",
            at="2026-11-30",
            command="skipstone calibrate",
            skipstone="0.1.0",
            model_name="scenes",
            source="captions",
            pairs=50,
            num_inference_steps=20,
            guidance_scale=3.0,
            drift="pixels",
        ),
        "random_scores": Scores(n=500, p50=0.1, p90=0.2, p99=0.5, highest=0.6),
        "edited_scores": None,
        "tiers": tiers or (tier(0.7, 0.9), tier(0.5, 0.95)),
        "plain_runs": (),
    }
    return Calibration(**{**facts, **changes})


class Warnings(list[tuple[str, dict[str, object]]]):
    def __call__(self, sentence: str, facts: dict[str, object]) -> None:
        self.append((sentence, facts))


def in_force(found: Calibration | None, limits: CalibrationLimits = LIMITS) -> ReusePolicy:
    return Policies(BASE, found, limits, Warnings()).in_force(SERVICES)


def skipped(policy: ReusePolicy, score: float, steps: int = 20, **donor: Any) -> int:
    return verdict(policy, score, steps, **donor).skip_steps


def verdict(policy: ReusePolicy, score: float, steps: int = 20, **donor: Any) -> Any:
    sigmas = [1 - k / steps for k in range(steps + 1)]
    schedule = Schedule.of(sigmas, "flow", ReuseKind)
    return judge(policy, schedule, Donor(0.99, {steps}, score=score, **donor), Limits())


def test_with_the_services_it_was_made_with_its_tiers_decide() -> None:
    policy = in_force(calibration())
    assert [skipped(policy, score) for score in (0.9, 0.91, 0.96)] == [0, 6, 10]


@pytest.mark.parametrize(
    ("other", "limits"),
    [
        ("embedder_id", LIMITS),
        ("reranker_id", LIMITS),
        ("model_hash", CalibrationLimits(otherwise="closed")),
    ],
)
def test_with_other_services_no_donor_is_used_and_an_operator_is_told_what_differs(
    other: str, limits: CalibrationLimits
) -> None:
    warnings = Warnings()
    policies = Policies(BASE, calibration(), limits, warnings)
    policy = policies.in_force(SERVICES.model_copy(update={other: "something else"}))
    told = verdict(policy, 1.0)
    assert (told.skip_steps, told.reason) == (0, CALIBRATION_MISMATCH)
    ((sentence, facts),) = warnings
    assert "skipstone calibrate" in sentence
    assert facts["differs"] == [other]


def test_with_another_model_the_same_scores_are_trusted_but_not_deep() -> None:
    """What a score means does not depend on the model; what a depth costs does."""
    warnings = Warnings()
    found = calibration(tier(0.9, 0.7), tier(0.5, 0.95), plain_runs=(plain(18, 0.0),))
    policies = Policies(BASE, found, LIMITS, warnings)
    policy = policies.in_force(SERVICES.model_copy(update={"model_hash": "another"}))
    assert [skipped(policy, score) for score in (0.7, 0.8, 0.96)] == [0, 2, 4]
    ((sentence, facts),) = warnings
    assert "shallow" in sentence
    assert facts["differs"] == ["model_hash"]


def test_services_that_come_again_are_warned_of_once() -> None:
    warnings = Warnings()
    policies = Policies(BASE, None, LIMITS, warnings)
    for _ in range(3):
        assert policies.in_force(SERVICES).closed == NO_CALIBRATION
    assert len(warnings) == 1


def test_an_operator_may_let_the_table_decide_where_nothing_was_measured() -> None:
    for found in (None, calibration(services=SERVICES.model_copy(update={"model_hash": "b"}))):
        policy = in_force(found, CalibrationLimits(otherwise="table"))
        assert policy.tables.renoise == PUBLISHED_TABLE
        assert skipped(policy, 0.96) == 10


def test_a_tier_that_unrelated_prompts_reach_is_refused() -> None:
    found = calibration(tier(0.7, 0.49), tier(0.5, 0.95))
    tables, closed = calibrated_tables(found, LIMITS)
    assert [row.level for row in tables.renoise] == [0.5]
    assert "unrelated prompts reach its score" in closed[found.tiers[0]]


def test_a_tier_that_prompts_with_one_thing_changed_reach_is_refused() -> None:
    edited = Scores(n=500, p50=0.1, p90=0.5, p99=0.92, highest=0.99)
    found = calibration(edited_scores=edited)
    tables, closed = calibrated_tables(found, LIMITS)
    assert [row.level for row in tables.renoise] == [0.5]
    assert "one thing changed" in closed[found.tiers[0]]


def test_only_depths_whose_drift_bound_holds_are_open() -> None:
    """The bound counts, not the mean."""
    found = calibration(tier(0.7, 0.9, drift=interval(0.6, 0.1)), tier(0.5, 0.9))
    for max_drift, levels in ((1.0, [0.5, 0.7]), (0.75, [0.7]), (0.65, [])):
        tables, _ = calibrated_tables(found, CalibrationLimits(max_drift=max_drift))
        assert [row.level for row in tables.renoise] == levels


def test_a_closed_tier_stays_closed_whatever_the_limits() -> None:
    found = calibration(tier(0.7, 0.9, open=False, closed_because="shows the donor's scene"))
    _, closed = calibrated_tables(found, CalibrationLimits(max_drift=9.0, min_diversity=0.0))
    assert list(closed.values()) == ["shows the donor's scene"]


def test_the_same_prompt_with_another_seed_needs_a_tier_that_keeps_pictures_different() -> None:
    found = calibration(tier(0.9, 0.9), tier(0.5, 0.9, diversity=interval(0.6)))
    policy = in_force(found)
    assert skipped(policy, 0.99) == 10, "nobody has seen a picture of this prompt"
    assert skipped(policy, 0.99, same_prompt=True) == 2
    assert skipped(policy, 0.99, prompt_seen=True) == 2
    assert skipped(policy, 0.99, same_prompt=True, same_seed=True) == 0, "has tiers of its own"
    deep_only = in_force(calibration(found.tiers[1]))
    assert verdict(deep_only, 0.99, same_prompt=True).reason == SEED_DIVERSITY
    barely = in_force(calibration(tier(0.9, 0.9, diversity=interval(0.98, 0.04))))
    assert verdict(barely, 0.99, same_prompt=True).reason == SEED_DIVERSITY, "the bound counts"


def test_with_another_model_nobody_knows_whether_seeds_stay_different() -> None:
    policy = Policies(BASE, calibration(tier(0.9, 0.9)), LIMITS, Warnings()).in_force(
        SERVICES.model_copy(update={"model_hash": "another"})
    )
    assert skipped(policy, 0.99) == 2
    assert verdict(policy, 0.99, same_prompt=True).reason == SEED_DIVERSITY


PLAIN = (plain(4, 2.0), plain(6, 1.2), plain(10, 0.7), plain(15, 0.3))


def own_seed(level: float, drift: float = 0.8) -> CalibratedTier:
    return tier(level, 0.9, same_seed=True, diversity=None, drift=interval(drift))


def test_with_the_requests_own_seed_a_tier_must_be_nearer_than_as_many_plain_steps() -> None:
    """Level 0.5 leaves 10 steps of 20, and 10 plain steps drift less; of 12 it leaves 6."""
    found = calibration(own_seed(0.5), plain_runs=PLAIN)
    policy = in_force(found)
    assert verdict(policy, 0.95, same_seed=True).reason == FEWER_STEPS_WIN
    assert skipped(policy, 0.95, steps=12, same_seed=True) == 6
    anyway = in_force(found, CalibrationLimits(beat_fewer_steps=False))
    assert skipped(anyway, 0.95, same_seed=True) == 10


def test_another_seeds_picture_need_not_be_near_to_one_that_nobody_asked_for() -> None:
    policy = in_force(calibration(tier(0.5, 0.9), plain_runs=PLAIN))
    assert skipped(policy, 0.95) == 10


def test_between_measured_plain_runs_the_better_one_counts() -> None:
    runs = (plain(4, 2.0), plain(10, 0.7), plain(15, 0.3))
    policy = in_force(calibration(own_seed(0.5), plain_runs=runs))
    told = verdict(policy, 0.95, steps=12, same_seed=True)
    assert told.reason == FEWER_STEPS_WIN, "6 steps count as 10"
    assert skipped(policy, 0.95, steps=8, same_seed=True) == 4


def test_a_shallow_tier_that_wins_is_taken_where_a_deep_one_loses() -> None:
    found = calibration(own_seed(0.9, 0.2), own_seed(0.5), plain_runs=(plain(18, 0.3),))
    assert skipped(in_force(found), 0.95, same_seed=True) == 2


@pytest.mark.parametrize("same_seed", [False, True])
def test_a_tier_that_is_wrong_more_often_than_plain_steps_loses_though_it_is_nearer(
    same_seed: bool,
) -> None:
    wrong = tier(0.5, 0.9, wrong=interval(0.5), same_seed=same_seed)
    found = calibration(wrong, plain_runs=(plain(10, 2.0, wrong=0.1),))
    told = verdict(in_force(found), 0.95, same_seed=same_seed)
    assert told.reason == FEWER_STEPS_WIN


def test_beyond_the_longest_plain_run_its_share_of_wrong_pictures_counts() -> None:
    wrong = tier(0.5, 0.9, wrong=interval(0.5))
    found = calibration(wrong, plain_runs=(plain(10, 2.0, wrong=0.1),))
    assert verdict(in_force(found), 0.95, steps=100).reason == FEWER_STEPS_WIN


def test_the_policys_version_changes_with_the_file_and_with_every_limit() -> None:
    found = calibration()
    measured = found.measured.model_copy(update={"at": "2026-12-01"})
    variants = [
        (found, LIMITS),
        (None, LIMITS),
        (found.model_copy(update={"measured": measured}), LIMITS),
        (found, CalibrationLimits(max_drift=0.5)),
        (found, CalibrationLimits(min_diversity=0.5)),
        (found, CalibrationLimits(beat_fewer_steps=False)),
        (found, CalibrationLimits(otherwise="table")),
    ]
    versions = {Policies(BASE, *variant, Warnings()).base.version for variant in variants}
    assert len(versions) == len(variants)


def test_a_file_is_read_as_it_was_written_and_its_layout_does_not_count(tmp_path: Path) -> None:
    found = calibration()
    path = tmp_path / "calibration.json"
    path.write_text(found.as_json())
    assert read_calibration(path) == found
    path.write_text(found.model_dump_json())
    assert read_calibration(path).content_hash == found.content_hash


def text_of(**changes: Any) -> str:
    return json.dumps({**calibration().model_dump(mode="json"), **changes})


def plainly(*records: Any, **changes: Any) -> list[Any]:
    return [{**record.model_dump(mode="json"), **changes} for record in records]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "schema_version None"),
        ('{"schema_version": 2}', "schema_version 2, this release reads 1"),
        ('{"schema_version": 1}', "services: Field required"),
        (text_of(tiers=plainly(tier(0.5, 0.9), level=1.5)), "tiers.0.level"),
        (text_of(tiers=plainly(tier(0.5, 0.9), tier(0.5, 0.8))), "same kind, seed and level"),
        (text_of(plain_runs=plainly(plain(9, 0.1), plain(4, 0.2))), "do not ascend"),
        (text_of(random_scores={"n": 1, "p50": "x"}), "random_scores.p50"),
        (text_of(colour="red"), "colour"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_by_name_and_place(
    text: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=says) as caught:
        read_calibration(path)
    assert str(path) in str(caught.value)


def test_an_open_tier_needs_pairs_and_a_drift_and_a_closed_one_a_reason() -> None:
    for wrong in ({"pairs": 19}, {"drift": None}, {"open": False}, {"closed_because": "x"}):
        with pytest.raises(ValueError):
            tier(0.5, 0.9, **wrong)


def test_a_setting_names_no_file_the_bundled_one_or_a_path(tmp_path: Path) -> None:
    assert load_calibration("") is None
    with pytest.raises(CalibrationError, match="cannot be read"):
        load_calibration(str(tmp_path / "missing.json"))


def test_policies_are_kept_for_a_bounded_number_of_services() -> None:
    warnings = Warnings()
    policies = Policies(BASE, None, LIMITS, warnings)
    for number in range(200):
        policies.in_force(_numbered(number))
    assert len(policies._kept) <= 64
    assert len(warnings) == 200


def _numbered(number: int) -> ServiceIds:
    return SERVICES.model_copy(update={"model_hash": str(number)})
