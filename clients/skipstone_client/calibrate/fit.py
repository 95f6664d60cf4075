"""From records and scores to a calibration: which score earns which depth, and what it costs."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from skipstone_client.calibrate.intervals import falling, mean_interval, wilson
from skipstone_client.calibrate.records import PairRecord, Records, Resumed
from skipstone_shared.calibration import (
    MIN_PAIRS,
    Bucket,
    CalibratedTier,
    Calibration,
    Interval,
    Measurement,
    PlainRun,
    Scores,
    ServiceIds,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import ReuseKind

BUCKET_EDGES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
REACH: Final = 0.05
"""How far below the lowest measured score a threshold may lie: further down nobody has looked."""

MAX_WRONG: Final = 0.05
MAX_WRONG_BOUND: Final = 0.15
MAX_DRIFT: Final = 1.25
_HIGHEST_THRESHOLD: Final = 0.9999


@dataclasses.dataclass(frozen=True, slots=True)
class Bars:
    """What a tier must keep to be open.

    Attributes:
        max_wrong: Largest share of wrong pictures at any score of the tier, by the falling curve.
        max_wrong_bound: Largest upper bound of their share in the whole tier.
        max_drift: Largest upper bound of the mean drift; 1 is the distance of two seeds.
        min_score: No tier begins below it.
    """

    max_wrong: float = MAX_WRONG
    max_wrong_bound: float = MAX_WRONG_BOUND
    max_drift: float = MAX_DRIFT
    min_score: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Scored:
    """A record with the score of its pair."""

    record: PairRecord
    score: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Point:
    score: float
    skip_steps: int
    drift: float
    wrong: bool | None


_Way = tuple[ReuseKind, bool, float]
"""Kind, same seed, level."""


def calibration_of(
    records: Records,
    scored: Sequence[Scored],
    random_scores: Sequence[float],
    edited_scores: Sequence[float],
    services: ServiceIds,
    measured: Measurement,
    bars: Bars,
) -> Calibration:
    """Fits a calibration.

    Args:
        records: What was measured.
        scored: Its pairs with their scores.
        random_scores: Scores of pairs of unrelated prompts.
        edited_scores: Scores of pairs that differ in something a picture shows.
        services: What it holds for.
        measured: How it came about.
        bars: What a tier must keep.

    Raises:
        InvalidArgument: There is too little to fit.
    """
    if not scored or not random_scores or not records.seeds:
        raise InvalidArgument(
            f"too little was measured to fit anything: {len(scored)} pairs (at least 1, and "
            f"{MIN_PAIRS} to open a tier), {len(records.seeds)} prompts for diversity (at least 1) "
            f"and {len(random_scores)} pairs of unrelated prompts (at least 1, from 2 pairs)",
            field="--budget-minutes",
        )
    unit = unit_of(records)
    chance = distribution(random_scores)
    changed = distribution(edited_scores) if edited_scores else None
    lowest = max(chance.p99, changed.p99 if changed else 0.0, bars.min_score)
    floor = min(lowest, _HIGHEST_THRESHOLD)
    points = points_by_way(scored, unit)
    return Calibration(
        schema_version=1,
        services=services,
        measured=measured,
        random_scores=chance,
        edited_scores=changed,
        tiers=tuple(
            _tier(way, found, measured.num_inference_steps, floor, _diversity(records, way), bars)
            for way, found in points.items()
        ),
        plain_runs=tuple(_plain_runs(scored, unit)),
        buckets=tuple(itertools.chain.from_iterable(_buckets(way, p) for way, p in points.items())),
    )


def unit_of(records: Records) -> float:
    """The distance that counts as 1: of two seeds of one prompt."""
    return statistics.fmean(record.full for record in records.seeds.values())


def distribution(scores: Sequence[float]) -> Scores:
    """What the policy asks of a set of scores."""
    p50, p90, p99 = (float(q) for q in np.quantile(scores, (0.5, 0.9, 0.99)))
    return Scores(n=len(scores), p50=p50, p90=p90, p99=p99, highest=max(scores))


def points_by_way(scored: Sequence[Scored], unit: float) -> dict[_Way, list[_Point]]:
    """Every resumed run as a point, by the way its donor was used, deepest first."""
    points: dict[_Way, list[_Point]] = {}
    for item in scored:
        for run in item.record.resumed:
            way = run.kind, run.same_seed, run.level
            wrong = _wrong(item.record, run.right)
            point = _Point(item.score, run.skip_steps, run.distance / unit, wrong)
            points.setdefault(way, []).append(point)
    return dict(sorted(points.items(), key=lambda p: (p[0][0].value, p[0][1], p[0][2])))


def threshold(points: Sequence[tuple[float, float]], floor: float, bar: float) -> float | None:
    """The least score above which a loss that falls with the score keeps a bar.

    The losses are first made to fall with the score (isotonic regression), since single pairs jump.
    The threshold never lies more than REACH below a score that was measured.

    Args:
        points: Score and loss of each pair.
        floor: No threshold lies below it.
        bar: Largest loss.

    Returns:
        None where no score keeps the bar.
    """
    ordered = sorted(point for point in points if point[0] > floor)
    if not ordered:
        return None
    # Equal scores are one place of the curve: their order would be chance.
    places: list[tuple[float, list[float]]] = [
        (score, [loss for _, loss in group])
        for score, group in itertools.groupby(ordered, key=lambda point: point[0])
    ]
    weighted = [statistics.fmean(losses) for _, losses in places for _ in losses]
    curve = falling(weighted)
    starts = itertools.accumulate((len(losses) for _, losses in places), initial=0)
    lowest = floor
    for (score, _), start in zip(places, starts, strict=False):
        if curve[start] <= bar:
            return max(lowest, score - REACH)
        lowest = score
    return None


def _tier(
    way: _Way,
    points: Sequence[_Point],
    steps: int,
    floor: float,
    diversity: Interval | None,
    bars: Bars,
) -> CalibratedTier:
    """The least threshold whose bounds keep the bars; without one, the least that was tried."""
    kind, same_seed, level = way
    least = _least_threshold(points, floor, bars)
    # A bound may fail where the curve keeps the bar: then higher up, where more pairs are right.
    starts = [above for above in thresholds([p.score for p in points], floor) if above > least]
    tried = [_Cut.at(above, points, bars) for above in (least, *starts)]
    cut = next((cut for cut in tried if not cut.why_closed), tried[0])
    return CalibratedTier(
        kind=kind,
        same_seed=same_seed,
        level=level,
        executed_steps=steps - points[0].skip_steps,
        above=cut.above,
        pairs=cut.pairs,
        wrong=cut.wrong,
        drift=cut.drift,
        diversity=diversity,
        open=not cut.why_closed,
        closed_because=cut.why_closed,
    )


def thresholds(scores: Sequence[float], floor: float) -> list[float]:
    """Where a tier may begin: below each measured score, by REACH or down to the next one."""
    above = sorted({score for score in scores if score > floor})
    return [max(lower, score - REACH) for lower, score in zip((floor, *above), above, strict=False)]


def _least_threshold(points: Sequence[_Point], floor: float, bars: Bars) -> float:
    """Where the curves of both losses keep their bars; the floor where one does nowhere."""
    judged = [(p.score, float(p.wrong)) for p in points if p.wrong is not None]
    drifts = [(p.score, p.drift) for p in points]
    found = [
        threshold(losses, floor, bar)
        for losses, bar in ((judged, bars.max_wrong), (drifts, bars.max_drift))
        if losses
    ]
    return max((above for above in found if above is not None), default=floor)


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """What lies above a threshold."""

    above: float
    pairs: int
    wrong: Interval | None
    drift: Interval | None
    why_closed: str

    @classmethod
    def at(cls, above: float, points: Sequence[_Point], bars: Bars) -> _Cut:
        inside = [point for point in points if point.score > above]
        wrong = _wrong_share(inside)
        drift = mean_interval([point.drift for point in inside]) if inside else None
        return cls(above, len(inside), wrong, drift, _why_closed(len(inside), wrong, drift, bars))


def _why_closed(pairs: int, wrong: Interval | None, drift: Interval | None, bars: Bars) -> str:
    if pairs < MIN_PAIRS or drift is None:
        return f"only {pairs} pairs lie above its score, {MIN_PAIRS} are needed"
    if wrong is not None and wrong.high > bars.max_wrong_bound:
        return f"up to {wrong.high:.2f} of its pictures are wrong, {bars.max_wrong_bound:g} may be"
    if drift.high > bars.max_drift:
        return f"its drift is up to {drift.high:.2f}, {bars.max_drift:g} is the most"
    return ""


def _diversity(records: Records, way: _Way) -> Interval | None:
    """Spread over seeds from one donor over that of full runs, prompt by prompt."""
    kind, same_seed, level = way
    shares = [
        spread.distance / record.full
        for record in records.seeds.values()
        for spread in record.resumed
        if not same_seed and spread.kind is kind and spread.level == level
    ]
    return mean_interval(shares) if shares else None


def _plain_runs(scored: Sequence[Scored], unit: float) -> Iterator[PlainRun]:
    steps = sorted({run.steps for item in scored for run in item.record.plain})
    for count in steps:
        runs = [(i.record, r) for i in scored for r in i.record.plain if r.steps == count]
        drift = mean_interval([run.distance / unit for _, run in runs])
        wrong = _share([_wrong(record, run.right) for record, run in runs])
        yield PlainRun(steps=count, drift=drift, wrong=wrong)


def _buckets(way: _Way, points: Sequence[_Point]) -> Iterator[Bucket]:
    kind, same_seed, level = way
    for low, high in itertools.pairwise(BUCKET_EDGES):
        inside = [p for p in points if low < p.score <= high or (low == 0.0 and p.score == 0.0)]
        if inside:
            yield Bucket(
                kind=kind,
                same_seed=same_seed,
                level=level,
                score_from=low,
                score_to=high,
                wrong=_wrong_share(inside),
                drift=mean_interval([point.drift for point in inside]),
            )


def _wrong(record: PairRecord, right: bool | None) -> bool | None:
    """Whether a picture is wrong where the full run's is not; None where that cannot be said."""
    return None if right is None or not record.full_right else not right


def _wrong_share(points: Sequence[_Point]) -> Interval | None:
    return _share([point.wrong for point in points])


def _share(wrong: Sequence[bool | None]) -> Interval | None:
    judged = [item for item in wrong if item is not None]
    return wilson(sum(judged), len(judged)) if judged else None


def losses_by_relation(
    scored: Sequence[Scored], unit: float
) -> dict[tuple[str, ReuseKind, bool, float], tuple[Interval, Interval | None]]:
    """Drift and wrong pictures by what was changed, for the report."""

    def relation_of(item: Scored) -> Callable[[Resumed], tuple[str, ReuseKind, bool, float]]:
        return lambda run: (item.record.relation, run.kind, run.same_seed, run.level)

    groups: dict[tuple[str, ReuseKind, bool, float], list[_Point]] = {}
    for item in scored:
        place = relation_of(item)
        for run in item.record.resumed:
            wrong = _wrong(item.record, run.right)
            point = _Point(item.score, run.skip_steps, run.distance / unit, wrong)
            groups.setdefault(place(run), []).append(point)
    return {
        place: (mean_interval([p.drift for p in points]), _wrong_share(points))
        for place, points in groups.items()
    }
