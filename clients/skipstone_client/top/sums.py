"""What several replicas tell of the same things, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from skipstone_shared.orchestration import BreakerState, DriftReport, DriftTier, ServiceState

K = TypeVar("K")

_WORSE = (BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN)


def total(counts: Iterable[Mapping[K, int]]) -> dict[K, int]:
    """The sums of counts, by key."""
    found: Counter[K] = Counter()
    for one in counts:
        found.update(one)
    return dict(found)


def worst_of_services(of_replicas: Iterable[Sequence[ServiceState]]) -> tuple[ServiceState, ...]:
    """Each service as the replica sees it that sees it worst."""
    found: dict[str, ServiceState] = {}
    for states in of_replicas:
        for state in states:
            worst = found.get(state.service, state)
            if _WORSE.index(state.breaker) > _WORSE.index(worst.breaker):
                worst = state
            found[state.service] = worst
    return tuple(found.values())


def sum_of_drift(reports: Sequence[DriftReport]) -> DriftReport | None:
    """What the guards of several replicas have measured, each on its own.

    A tier is closed that one of them has closed; its mean is that of all audits, its bound the
    highest.
    """
    if not reports:
        return None
    tiers: dict[str, list[DriftTier]] = {}
    for report in reports:
        for tier in report.tiers:
            tiers.setdefault(tier.tier, []).append(tier)
    return DriftReport(
        max(report.max_drift for report in reports),
        tuple(_tier(same) for same in tiers.values()),
        total(report.audits for report in reports),
        sum(report.audit_steps for report in reports),
        sum(report.queued_audits for report in reports),
        sum(report.quarantined_donors for report in reports),
    )


def _tier(same: Sequence[DriftTier]) -> DriftTier:
    measured = [(tier.mean, tier.audits) for tier in same if tier.mean is not None and tier.audits]
    audits = sum(count for _, count in measured)
    return DriftTier(
        same[0].tier,
        sum(tier.audits for tier in same),
        any(tier.closed for tier in same),
        sum(mean * count for mean, count in measured) / audits if audits else None,
        max((tier.bound for tier in same if tier.bound is not None), default=None),
    )
