"""From measured pairs to tiers: bounds, falling curves, thresholds, and what closes a tier."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone_client.calibrate.fit import Bars, Scored, calibration_of, threshold
from skipstone_client.calibrate.intervals import falling, mean_interval, wilson
from skipstone_client.calibrate.pairs import Pair
from skipstone_client.calibrate.records import (
    PairRecord,
    Plain,
    Records,
    Resumed,
    SeedRecord,
    Setup,
    Spread,
)
from skipstone_client.calibrate.report import SEED_DIVERSITY, draw, markdown, served_to
from skipstone_orchestrator.calibration import load_calibration
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.reuse_policy import Rival, Tier, loses_to_fewer_steps
from skipstone_shared.calibration import CalibratedTier, Calibration, Measurement, ServiceIds
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import ReuseKind

RENOISE = ReuseKind.RENOISE
SERVICES = ServiceIds(embedder_id="e", reranker_id="r", model_hash="m")
MEASURED = Measurement(
    by="a test",
    at="2026-11-30",
    command="skipstone calibrate",
    skipstone="0",
    model_name="scenes",
    source="pairs.csv",
    pairs=1,
    num_inference_steps=10,
    guidance_scale=3.0,
    drift="pixels",
)
UNIT = 10.0
CHANCE = [0.0, 0.1, 0.2]


def test_the_wilson_interval_is_the_published_one() -> None:
    """Newcombe (1998), Statistics in Medicine 17, table I: 81 of 263, and 0 of 20."""
    found = wilson(81, 263)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    none = wilson(0, 20)
    assert (none.value, none.low, round(none.high, 4)) == (0.0, 0.0, 0.1611)


@given(st.integers(0, 400), st.integers(1, 400))
def test_a_share_lies_between_its_bounds_and_they_between_0_and_1(count: int, n: int) -> None:
    found = wilson(min(count, n), n)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


def test_of_nothing_a_share_may_be_anything() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_more_values_bring_the_bounds_of_a_mean_together() -> None:
    few, many = mean_interval([1.0, 2.0] * 2), mean_interval([1.0, 2.0] * 50)
    assert few.value == many.value == 1.5
    assert few.high - few.low > many.high - many.low > 0


losses = st.lists(st.floats(0, 10), min_size=1, max_size=40)


@given(losses)
def test_a_falling_curve_falls_and_keeps_the_mean(values: list[float]) -> None:
    curve = falling(values)
    assert all(a >= b for a, b in itertools.pairwise(curve))
    assert sum(curve) == pytest.approx(sum(values), abs=1e-6)


@given(losses)
def test_what_falls_already_stays_as_it_is(values: list[float]) -> None:
    ordered = sorted(values, reverse=True)
    assert falling(ordered) == pytest.approx(ordered)


def test_a_threshold_lies_below_the_first_score_from_which_the_loss_keeps_the_bar() -> None:
    points = [(0.3, 1.0), (0.4, 1.0), (0.6, 0.0), (0.7, 0.0), (0.9, 0.0)]
    assert threshold(points, 0.0, 0.1) == pytest.approx(0.55)
    assert threshold(points, 0.58, 0.1) == 0.58, "the floor, where all above it keep the bar"
    assert threshold(points, 0.0, 2.0) == pytest.approx(0.25), "further down nobody has looked"
    assert threshold([(0.9, 1.0)], 0.0, 0.1) is None
    assert threshold(points, 0.95, 0.1) is None, "nothing was measured up there"


def test_one_lucky_pair_among_bad_ones_opens_nothing() -> None:
    points = [(0.3, 1.0), (0.4, 0.0), (0.5, 1.0), (0.6, 1.0), (0.8, 0.0), (0.9, 0.0)]
    assert threshold(points, 0.0, 0.1) == pytest.approx(0.75)


def test_scores_closer_to_the_measured_ones_than_the_reach_begin_at_a_failing_one() -> None:
    assert threshold([(0.88, 1.0), (0.9, 0.0)], 0.0, 0.1) == 0.88


def test_no_tier_begins_below_the_least_score_that_was_asked_for() -> None:
    found = fitted(scored(30, 0.9, lambda i: record(i, 9.0)), Bars(min_score=0.89))
    assert only_tier(found).above == 0.89


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30), st.floats(0, 1))
def test_a_tighter_bar_never_gives_a_lower_threshold(
    points: list[tuple[float, float]], bar: float
) -> None:
    loose, tight = threshold(points, 0.1, bar), threshold(points, 0.1, bar / 2)
    assert tight is None or (loose is not None and loose <= tight)


def record(
    number: int, distance: float, right: bool = True, full_right: bool = True, relation: str = ""
) -> PairRecord:
    return PairRecord(
        donor=f"donor {number}",
        prompt=f"prompt {number}",
        relation=relation,
        full_right=full_right,
        plain=(Plain(5, 15.0, True), Plain(8, 3.0, True)),
        resumed=(Resumed(RENOISE, False, 0.5, 5, distance, right),),
    )


def fitted(
    scored: list[Scored], bars: Bars | None = None, edited: list[float] | None = None
) -> Calibration:
    records = Records(Path("unused"))
    spread = Spread(RENOISE, 0.5, 6.0)
    records.seeds = {"a": SeedRecord("a", 4, UNIT, (spread,))}
    records.pairs = {(s.record.donor, s.record.prompt): s.record for s in scored}
    bars = bars or Bars(max_wrong=0.2, max_wrong_bound=0.2)
    return calibration_of(records, scored, CHANCE, edited or [], SERVICES, MEASURED, bars)


def only_tier(found: Calibration) -> CalibratedTier:
    (tier,) = found.tiers
    return tier


def scored(
    count: int, score: float, make: Callable[[int], PairRecord], start: int = 0
) -> list[Scored]:
    return [Scored(make(start + i), score + i * 1e-4) for i in range(count)]


def test_a_tier_is_open_where_its_pictures_are_right_and_near() -> None:
    tier = only_tier(fitted(scored(30, 0.9, lambda i: record(i, 9.0))))
    assert tier.open
    assert (tier.pairs, tier.kind, tier.same_seed, tier.level) == (30, RENOISE, False, 0.5)
    assert tier.executed_steps == 5
    assert tier.above == pytest.approx(0.85)
    assert tier.drift is not None
    assert tier.drift.value == pytest.approx(0.9)
    assert tier.diversity is not None
    assert tier.diversity.value == pytest.approx(0.6)


def test_scores_at_which_pictures_are_wrong_are_left_below_the_threshold() -> None:
    pairs = scored(30, 0.4, lambda i: record(i, 9.0, right=False))
    pairs += scored(30, 0.9, lambda i: record(i, 9.0), start=100)
    tier = only_tier(fitted(pairs))
    assert 0.4 < tier.above < 0.9
    assert (tier.open, tier.pairs) == (True, 30)


def test_no_threshold_lies_where_edited_prompts_score() -> None:
    found = fitted(scored(30, 0.9, lambda i: record(i, 9.0)), edited=[0.0, 0.5, 0.88])
    assert found.edited_scores is not None
    assert only_tier(found).above == pytest.approx(found.edited_scores.p99)


def test_what_the_full_run_gets_wrong_too_is_not_held_against_reuse() -> None:
    pairs = scored(30, 0.9, lambda i: record(i, 9.0, right=False, full_right=False))
    pairs += scored(30, 0.95, lambda i: record(i, 9.0), start=100)
    tier = only_tier(fitted(pairs))
    assert tier.wrong is not None
    assert (tier.wrong.value, tier.wrong.n) == (0.0, 30)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (scored(19, 0.9, lambda i: record(i, 9.0)), "only 19 pairs"),
        (scored(40, 0.9, lambda i: record(i, 9.0, right=False)), "are wrong"),
        (scored(40, 0.9, lambda i: record(i, 20.0)), "drift"),
        (scored(40, 0.15, lambda i: record(i, 9.0)), "only 0 pairs"),
        (scored(25, 0.9, lambda i: record(i, 9.0, right=i % 8 > 0)), "may be"),
    ],
)
def test_a_tier_that_keeps_a_bar_nowhere_is_closed_and_says_why(
    pairs: list[Scored], says: str
) -> None:
    tier = only_tier(fitted(pairs))
    assert not tier.open
    assert says in tier.closed_because


def test_a_share_that_is_too_large_at_its_lowest_scores_lifts_a_tier_though_all_of_it_is_fine() -> (
    None
):
    """3 of 23 are wrong there; among all 203 they would hardly count."""
    pairs = [Scored(record(i, 9.0, right=i > 2), 0.5) for i in range(23)]
    pairs += [Scored(record(100 + i, 9.0), 0.9) for i in range(180)]
    tier = only_tier(fitted(pairs, Bars(max_wrong=0.05, max_wrong_bound=0.15)))
    assert (tier.open, tier.above, tier.pairs) == (True, pytest.approx(0.85), 180)


def test_where_a_bound_fails_a_tier_begins_higher_up() -> None:
    """3 of 23 keep the bar as a share and not as a bound; of the 30 above them none is wrong."""
    pairs = [Scored(record(i, 9.0, right=i > 2), 0.5) for i in range(23)]
    pairs += [Scored(record(100 + i, 9.0), 0.9) for i in range(30)]
    tier = only_tier(fitted(pairs, Bars(max_wrong=0.14, max_wrong_bound=0.14)))
    assert (tier.open, tier.above, tier.pairs) == (True, pytest.approx(0.85), 30)
    tier = only_tier(fitted(pairs, Bars(max_wrong=0.14, max_wrong_bound=0.16)))
    assert (tier.open, tier.above, tier.pairs) == (True, pytest.approx(0.45), 53)


def test_the_bound_closes_a_tier_and_not_the_share() -> None:
    """3 of 25 is 0.12, and up to 0.30."""
    pairs = scored(25, 0.9, lambda i: record(i, 9.0, right=i < 22))
    tier = only_tier(fitted(pairs, Bars(max_wrong=0.2, max_wrong_bound=0.2)))
    assert tier.wrong is not None
    assert tier.wrong.value < 0.2 < tier.wrong.high
    assert not tier.open


def test_plain_runs_are_told_in_the_same_unit() -> None:
    found = fitted(scored(30, 0.9, lambda i: record(i, 9.0)))
    told = {run.steps: run.drift.value for run in found.plain_runs}
    assert told == pytest.approx({5: 1.5, 8: 0.3})


def test_nothing_measured_is_refused_in_words() -> None:
    with pytest.raises(InvalidArgument, match=r"too little .* 0 pairs .* 1 prompts for diversity"):
        fitted([])


def test_the_report_names_every_tier_and_the_plot_is_a_picture(tmp_path: Path) -> None:
    found = fitted(scored(30, 0.9, lambda i: record(i, 9.0)))
    text = markdown(found, {("colour", RENOISE, False, 0.5): (mean_interval([1.0, 2.0]), None)})
    assert "| renoise | other | 0.500 | 5 | 0.850 | 0.90" in text
    assert "| colour | renoise | other | 0.500 | 1.50" in text
    assert "score highest" not in text
    draw(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_shows_which_unrelated_prompts_score_highest() -> None:
    found = fitted(scored(30, 0.9, lambda i: record(i, 9.0)))
    text = markdown(found, {}, [(0.97, Pair("a `fox`", "a fox" + " in snow" * 30))])
    assert "- 0.970: `a 'fox'` / `a fox in snow in snow" in text
    assert "..." in text


def test_the_report_tells_whom_the_orchestrator_serves() -> None:
    bundled = load_calibration("bundled")
    assert bundled is not None
    settings = OrchestratorSettings()
    assert settings.min_seed_diversity == SEED_DIVERSITY
    rivals = [
        Rival(run.steps, run.drift.value, None if run.wrong is None else run.wrong.high)
        for run in bundled.plain_runs
    ]
    told = {tier: served_to(tier, bundled.plain_runs) for tier in bundled.tiers}
    for tier, whom in told.items():
        assert tier.drift is not None
        assert tier.wrong is not None
        row = Tier(tier.above, tier.level, tier.drift.value, tier.wrong.low)
        loses = loses_to_fewer_steps(row, rivals, tier.executed_steps, tier.same_seed)
        assert whom.startswith("nobody") == (loses or not tier.open), tier
    assert set(told.values()) >= {
        "prompts not answered with another seed yet",
        "requests with the donor's seed",
    }
    for tier, whom in told.items():
        diverse = tier.diversity is not None and tier.diversity.low >= SEED_DIVERSITY
        assert whom != "every prompt" or diverse, tier
    closed = bundled.tiers[0].model_copy(update={"open": False})
    assert served_to(closed, bundled.plain_runs) == "nobody"
    assert any("plain steps do better" in whom for whom in told.values())


SETUP = Setup("m", "hash", 10, 30, 3.0, (0.9, 0.5), (4, 8), "pairs.csv", 1)


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    written = Records(path)
    written.open(SETUP)
    written.add_pair(record(1, 9.0, relation="colour"))
    written.add_seeds(SeedRecord("a", 4, UNIT, (Spread(RENOISE, 0.5, 6.0),)))
    found = Records(path)
    assert found.read() == SETUP
    assert (found.pairs, found.seeds) == (written.pairs, written.seeds)


def test_a_line_that_was_cut_short_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    written = Records(path)
    written.open(SETUP)
    written.add_pair(record(1, 9.0))
    whole = path.read_text()
    path.write_text(whole + '{"pair": {"donor": "x')
    again = Records(path)
    again.open(SETUP)
    assert list(again.pairs) == [("donor 1", "prompt 1")]
    again.add_pair(record(2, 9.0))
    last = Records(path)
    last.read()
    assert list(last.pairs) == [("donor 1", "prompt 1"), ("donor 2", "prompt 2")]


def test_records_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    Records(path).open(SETUP)
    other = Setup("m", "other hash", 10, 30, 3.0, (0.9, 0.5), (4, 8), "pairs.csv", 1)
    with pytest.raises(InvalidArgument, match="model_hash"):
        Records(path).open(other)
    path.write_text("no json\n\n")
    with pytest.raises(InvalidArgument, match="no file of records"):
        Records(path).open(SETUP)
