"""Which reuse policy holds for the services that are really connected.

A calibration file is a measurement of one encoder, reranker and model together. Its tiers hold only
for these. With another model its scores still mean the same and only what a depth costs is unknown:
then donors are used, but not deep. With another encoder or reranker nobody knows what a score
means, and none is used. An operator may close the tier in both cases, or let a table decide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from skipstone_orchestrator.reuse_policy import ReusePolicy, Rival, Tables, Tier
from skipstone_shared.calibration import (
    CalibratedTier,
    Calibration,
    ServiceIds,
    read_calibration,
)
from skipstone_shared.latents import canonical_hash
from skipstone_shared.orchestration import ReuseKind
from skipstone_shared.structured_logging import get_logger

CALIBRATION_MISMATCH = "CALIBRATION_MISMATCH"
NO_CALIBRATION = "NO_CALIBRATION"

BUNDLED = "bundled"
"""Name of the file that comes with Skipstone: the default encoder and gate on the bundled model."""

SHALLOW_LEVEL = 0.8
"""Noise level down to which donors are used with a model that was not measured: what the published
table gives to the second lowest of its scores."""

Uncalibrated = Literal["shallow", "closed", "table"]

_BUNDLED_FILE = Path(__file__).parent / "bundled_calibration.json"
_MAX_KEPT = 64
_REMEDY = "make one for these services with `skipstone calibrate` and set calibration_file"


@dataclasses.dataclass(frozen=True, slots=True)
class CalibrationLimits:
    """What an operator accepts of a measured tier.

    Attributes:
        max_drift: Largest upper bound of a tier's drift; 1 is the distance of two seeds.
        min_diversity: Least lower bound of a tier's diversity over seeds, as a share of the
            uncached one; below it a prompt that was answered with another seed before gets none.
        beat_fewer_steps: Whether a tier must beat plain runs of as many steps.
        otherwise: What holds where the calibration does not.
    """

    max_drift: float = 1.0
    min_diversity: float = 0.95
    beat_fewer_steps: bool = True
    otherwise: Uncalibrated = "shallow"


class Policies:
    """The policy for each set of services; kept, since hardly any replica sees a second one."""

    def __init__(
        self,
        base: ReusePolicy,
        calibration: Calibration | None,
        limits: CalibrationLimits,
        warn: Callable[[str, dict[str, object]], None] | None = None,
    ) -> None:
        """Works out which tiers the limits leave open.

        Args:
            base: Everything but the tables, and the tables that hold where no calibration does.
            calibration: The file; None when none is to be used.
            limits: What is accepted of it.
            warn: Takes a sentence and facts that an operator must see; by default they are logged.
        """
        basis = (
            None if calibration is None else calibration.content_hash,
            dataclasses.asdict(limits),
        )
        self.base = dataclasses.replace(base, basis=canonical_hash(basis)[:16])
        self._calibration = calibration
        self._limits = limits
        self._warn = _log if warn is None else warn
        self._kept: dict[ServiceIds, ReusePolicy] = {}
        if calibration is not None:
            self._tables, self.closed_tiers = calibrated_tables(calibration, limits)
            self._rivals = _rivals(calibration) if limits.beat_fewer_steps else ()

    def in_force(self, services: ServiceIds) -> ReusePolicy:
        """The policy for candidates of an encoder, scored by a reranker, for a model."""
        policy = self._kept.get(services)
        if policy is None:
            policy = self._policy(services)
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[services] = policy
        return policy

    def _policy(self, services: ServiceIds) -> ReusePolicy:
        """The policy for these services. Its version names them: they made the scores."""
        basis = canonical_hash([self.base.basis, services.model_dump()])[:16]
        return dataclasses.replace(self._tables_for(services), basis=basis)

    def _tables_for(self, services: ServiceIds) -> ReusePolicy:
        reason = NO_CALIBRATION
        differences: tuple[str, ...] = ("calibration_file",)
        if self._calibration is not None:
            differences = self._calibration.services.differences(services)
            if not differences:
                return dataclasses.replace(self.base, tables=self._tables, rivals=self._rivals)
            reason = CALIBRATION_MISMATCH
        facts: dict[str, object] = {"differs": list(differences), **services.model_dump()}
        if self._limits.otherwise == "table":
            self._warn(
                f"similarity_table decides, which nobody has measured here; {_REMEDY}", facts
            )
            return self.base
        if self._limits.otherwise == "shallow" and differences == ("model_hash",):
            self._warn(
                f"reuse stays shallow: the calibration is of another model; {_REMEDY}", facts
            )
            return dataclasses.replace(self.base, tables=_shallow(self._tables))
        self._warn(f"the approximate tier is closed: no calibration fits; {_REMEDY}", facts)
        return dataclasses.replace(self.base, closed=reason)


def load_calibration(name: str) -> Calibration | None:
    """The calibration that a setting names: `bundled`, a path, or empty for none.

    Raises:
        CalibrationError: There is no such file, or it cannot be used.
    """
    if not name:
        return None
    return read_calibration(_BUNDLED_FILE if name == BUNDLED else Path(name))


def calibrated_tables(
    calibration: Calibration, limits: CalibrationLimits
) -> tuple[Tables, dict[CalibratedTier, str]]:
    """The rows that may be used, and why each other one may not."""
    reasons = {tier: closing_reason(tier, calibration, limits) for tier in calibration.tiers}
    rows: dict[tuple[ReuseKind, bool], list[Tier]] = {}
    for tier, reason in reasons.items():
        if not reason:
            row = _row(tier, limits)
            rows.setdefault((tier.kind, tier.same_seed), []).append(row)
    tables = Tables(
        **{
            f"{kind.value}{'_same_seed' if same_seed else ''}": tuple(
                sorted(rows.get((kind, same_seed), ()), key=lambda row: row.level)
            )
            for kind in ReuseKind
            for same_seed in (False, True)
        }
    )
    return tables, {tier: reason for tier, reason in reasons.items() if reason}


def closing_reason(
    tier: CalibratedTier, calibration: Calibration, limits: CalibrationLimits
) -> str:
    """Why a tier may not be used, empty when it may. What was not measured does not hold."""
    if not tier.open:
        return tier.closed_because
    for scores, whose in (
        (calibration.random_scores, "unrelated prompts"),
        (calibration.edited_scores, "prompts with one thing changed"),
    ):
        if scores is not None and tier.above < scores.p99:
            return (
                f"{whose} reach its score: it begins above {tier.above:.3f}, and one pair of them "
                f"in a hundred scores {scores.p99:.3f}"
            )
    if tier.drift is None or tier.drift.high > limits.max_drift:
        high = "not measured" if tier.drift is None else f"up to {tier.drift.high:.2f}"
        return f"its drift is {high}, max_drift is {limits.max_drift:g}"
    return ""


def _shallow(tables: Tables) -> Tables:
    """The same scores for another model: nothing deep, and nothing that was measured of depth."""

    def raised(rows: tuple[Tier, ...]) -> tuple[Tier, ...]:
        return tuple(
            dataclasses.replace(
                row,
                level=max(row.level, SHALLOW_LEVEL),
                drift=None,
                wrong=None,
                diverse=False,
            )
            for row in rows
        )

    return Tables(
        raised(tables.renoise),
        raised(tables.trajectory),
        raised(tables.renoise_same_seed),
        raised(tables.trajectory_same_seed),
    )


def _row(tier: CalibratedTier, limits: CalibrationLimits) -> Tier:
    diversity = tier.diversity
    return Tier(
        tier.above,
        tier.level,
        drift=None if tier.drift is None else tier.drift.value,
        wrong=None if tier.wrong is None else tier.wrong.low,
        diverse=diversity is not None and diversity.low >= limits.min_diversity,
    )


def _rivals(calibration: Calibration) -> tuple[Rival, ...]:
    return tuple(
        Rival(run.steps, run.drift.value, None if run.wrong is None else run.wrong.high)
        for run in calibration.plain_runs
    )


def _log(sentence: str, facts: dict[str, object]) -> None:
    get_logger().warning(sentence, **facts)
