"""Watches what reuse costs in quality: tiers that drift too far close, bad donors are set aside.

Drift is the distance between what a hit produced and what the full run would have produced, as the
executor measures it: 0 for the same latents, about 1 for unrelated ones. Every replica learns by
its own audits and forgets with its end; a calibration, not this, is what knows the tiers.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from skipstone_orchestrator.reuse_policy import ReusePolicy, Tables, Tier, Verdict
from skipstone_shared.orchestration import DriftTier, ReuseKind
from skipstone_shared.structured_logging import get_logger

TIER_CLOSED = "TIER_CLOSED"
QUARANTINED = "QUARANTINED"

_CONFIDENCE = 0.95
_MAX_QUARANTINED = 10_000
_WAY_OF_TABLE: Mapping[str, tuple[ReuseKind, bool]] = MappingProxyType(
    {
        "renoise": (ReuseKind.RENOISE, False),
        "renoise_same_seed": (ReuseKind.RENOISE, True),
        "trajectory": (ReuseKind.TRAJECTORY, False),
        "trajectory_same_seed": (ReuseKind.TRAJECTORY, True),
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class ReuseTier:
    """Donors used in one way down to one noise level: what is watched together.

    A donor of the request's own seed drifts far less, so that the two would hide each other.
    """

    kind: ReuseKind
    level: float
    same_seed: bool = False

    @classmethod
    def of(cls, verdict: Verdict) -> ReuseTier | None:
        """The tier of a candidate that was taken, None for one that was refused."""
        if verdict.kind is None or verdict.tier is None:
            return None
        return cls(verdict.kind, verdict.tier.level, verdict.same_seed)

    @property
    def name(self) -> str:
        """Such as `renoise 0.60`, or `renoise 0.60 same seed`."""
        seed = " same seed" if self.same_seed else ""
        return f"{self.kind.value} {self.level:.2f}{seed}"


@dataclasses.dataclass(frozen=True, slots=True)
class DriftLimits:
    """What is asked of a tier.

    Attributes:
        max_drift: Largest drift that is accepted: of a tier its bound, of a donor one audit.
        min_audits: Audits before a tier is closed or opened.
        window: Latest audits of a tier that count.
    """

    max_drift: float
    min_audits: int
    window: int


class DriftGuard:
    """Closes and opens tiers and sets donors aside. For one event loop."""

    def __init__(self, limits: DriftLimits) -> None:
        """Starts with all tiers open and no audit."""
        self._limits = limits
        self._audits: dict[ReuseTier, deque[float]] = {}
        self._closed: dict[ReuseTier, tuple[float, ...]] = {}
        self._quarantined: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._opened: dict[ReusePolicy, ReusePolicy] = {}

    @property
    def max_drift(self) -> float:
        """Largest drift that is accepted."""
        return self._limits.max_drift

    @property
    def quarantined_count(self) -> int:
        """Donors set aside."""
        return len(self._quarantined)

    def opened(self, policy: ReusePolicy) -> ReusePolicy:
        """A policy without the rows of closed tiers; the same object while none is closed."""
        if not self._closed:
            return policy
        found = self._opened.get(policy)
        if found is None:
            found = dataclasses.replace(policy, tables=_without(policy.tables, self._closed))
            self._opened[policy] = found
        return found

    def is_quarantined(self, namespace: str, entry_id: str) -> bool:
        """Whether a donor is set aside."""
        return (namespace, entry_id) in self._quarantined

    def quarantine(self, namespace: str, entry_id: str) -> None:
        """Sets a donor aside; of very many the ones set aside first are forgotten."""
        self._quarantined[namespace, entry_id] = None
        if len(self._quarantined) > _MAX_QUARANTINED:
            self._quarantined.popitem(last=False)
        get_logger().warning("donor quarantined", namespace=namespace, entry_id=entry_id)

    def record(self, tier: ReuseTier, drift: float) -> None:
        """Takes in one audit of a tier; it may close or open it.

        A closed tier starts over, so that only what was measured since can open it again.
        """
        audits = self._audits.setdefault(tier, deque(maxlen=self._limits.window))
        audits.append(drift)
        if len(audits) < self._limits.min_audits:
            return
        is_bad = upper_bound(audits) > self._limits.max_drift
        if is_bad == (tier in self._closed):
            return
        get_logger().warning(
            "tier closed" if is_bad else "tier opened",
            tier=tier.name,
            bound=upper_bound(audits),
            max_drift=self._limits.max_drift,
        )
        if is_bad:
            self._closed[tier] = tuple(audits)
            audits.clear()
        else:
            del self._closed[tier]
        self._opened.clear()

    def states(self) -> tuple[DriftTier, ...]:
        """Every tier that was audited, by name.

        Mean and bound of a closed tier are those that closed it until there are enough audits that
        may open it again.
        """
        return tuple(self._state(tier, audits) for tier, audits in self._snapshot())

    def _state(self, tier: ReuseTier, audits: tuple[float, ...]) -> DriftTier:
        enough = len(audits) >= self._limits.min_audits
        told = audits if enough else self._closed.get(tier, audits)
        return DriftTier(
            tier=tier.name,
            audits=len(audits),
            closed=tier in self._closed,
            mean=statistics.fmean(told) if told else None,
            bound=upper_bound(told) if enough or tier in self._closed else None,
        )

    def _snapshot(self) -> list[tuple[ReuseTier, tuple[float, ...]]]:
        """Copies, since a scrape asks from another thread."""
        tiers = sorted(self._audits.items(), key=lambda item: item[0].name)
        return [(tier, tuple(audits)) for tier, audits in tiers]


def upper_bound(audits: Sequence[float]) -> float:
    """One-sided 95 % confidence bound of the mean (Student); of one audit the audit itself."""
    count = len(audits)
    if count < 2:
        return audits[0]
    error = statistics.stdev(audits) / math.sqrt(count)
    return statistics.fmean(audits) + _student(count - 1) * error


def _student(freedom: int) -> float:
    """The 95 % quantile of Student's t.

    The expansion of Abramowitz and Stegun (1964), 26.7.5: within 1 % from 3 degrees of freedom up;
    below it is too low, by a fifth for 1.
    """
    z = statistics.NormalDist().inv_cdf(_CONFIDENCE)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _without(tables: Tables, closed: Collection[ReuseTier]) -> Tables:
    left: dict[str, tuple[Tier, ...]] = {
        name: tuple(
            row
            for row in getattr(tables, name)
            if ReuseTier(kind, row.level, same_seed) not in closed
        )
        for name, (kind, same_seed) in _WAY_OF_TABLE.items()
    }
    return Tables(**left)
