"""What is shown: what happened between two looks, of every replica and of all together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum

from skipstone_client.top.samples import Look, Sample
from skipstone_client.top.sums import sum_of_drift, total, worst_of_services
from skipstone_shared.orchestration import (
    BreakerState,
    DriftReport,
    HitTier,
    OrchestratorStats,
    ServiceState,
)


class ReplicaState(Enum):
    """How a replica is."""

    SERVING = "serving"
    SILENT = "no answer"
    GONE = "gone"
    """The name does not stand for it any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lately:
    """What happened between two looks.

    Attributes:
        seconds: Time between them.
        requests_per_s: Requests served a second.
        tiers: Requests by tier.
        executed_steps: Steps run.
        skipped_steps: Steps skipped.
        saved: Entries saved.
        fallbacks: Things that went wrong, by stage and reason.
    """

    seconds: float
    requests_per_s: float
    tiers: Mapping[HitTier, int]
    executed_steps: int
    skipped_steps: int
    saved: int
    fallbacks: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaView:
    """One orchestrator.

    Attributes:
        address: Where it is.
        state: How it is.
        error: Why it does not answer.
        lately: Since the look before; None without one, or where it was started again.
        queued_saves: Entries that wait to be saved.
        dropped_saves: Entries lost since the start.
        open_breakers: Services that it does not ask.
    """

    address: str
    state: ReplicaState
    error: str = ""
    lately: Lately | None = None
    queued_saves: int = 0
    dropped_saves: int = 0
    open_breakers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """All replicas together; counts are sums over those that answer.

    Attributes:
        target: Whose view it is.
        error: Why no orchestrator answers; empty where one does.
        lately: Since the look before; None where no replica tells of it.
        running: Generations that executors run; None where none can be asked.
        queued: Generations that wait for them, likewise.
        executors: Executors that could be asked.
        queued_saves: Entries that wait to be saved.
        dropped_saves: Entries lost since the start.
        tiers: Requests by tier since the start.
        executed_steps: Steps run since the start.
        skipped_steps: Steps skipped since the start.
        entry_count: Entries stored, which all replicas share; -1: unknown.
        latent_bytes: Bytes of latents stored, likewise.
        services: Services behind the orchestrators, each with the worst breaker that a replica has.
        drift: What audits found.
        replicas: The orchestrators, those that are gone last.
    """

    target: str
    error: str = ""
    lately: Lately | None = None
    running: int | None = None
    queued: int | None = None
    executors: int = 0
    queued_saves: int = 0
    dropped_saves: int = 0
    tiers: Mapping[HitTier, int] = dataclasses.field(default_factory=dict)
    executed_steps: int = 0
    skipped_steps: int = 0
    entry_count: int = -1
    latent_bytes: int = -1
    services: tuple[ServiceState, ...] = ()
    drift: DriftReport | None = None
    replicas: tuple[ReplicaView, ...] = ()


def view_of(target: str, before: Look | None, now: Look) -> View:
    """What is shown after a look.

    Args:
        target: Whose.
        before: The look before; None at the first.
        now: The look.
    """
    earlier = {} if before is None else before.replicas
    replicas = tuple(
        _replica(address, earlier.get(address), sample) for address, sample in now.replicas.items()
    )
    answers = [sample.stats for sample in now.replicas.values() if sample.stats is not None]
    if not answers:
        errors = (replica.error for replica in replicas if replica.error)
        return View(target, next(errors, "all replicas are gone"), replicas=replicas)
    runs = now.runs
    return View(
        target,
        lately=_sum([replica.lately for replica in replicas if replica.lately is not None]),
        running=sum(run.running_count for run in runs) if runs else None,
        queued=sum(run.queued_count for run in runs) if runs else None,
        executors=len(runs),
        queued_saves=sum(stats.queued_saves for stats in answers),
        dropped_saves=sum(stats.dropped_saves for stats in answers),
        tiers=total(stats.tiers for stats in answers),
        executed_steps=sum(stats.executed_steps for stats in answers),
        skipped_steps=sum(stats.skipped_steps for stats in answers),
        entry_count=max(stats.entry_count for stats in answers),
        latent_bytes=max(stats.latent_bytes for stats in answers),
        services=worst_of_services([stats.services for stats in answers]),
        drift=sum_of_drift([stats.drift for stats in answers if stats.drift is not None]),
        replicas=replicas,
    )


def _replica(address: str, before: Sample | None, now: Sample) -> ReplicaView:
    stats = now.stats
    if stats is None:
        state = ReplicaState.SILENT if now.error else ReplicaState.GONE
        return ReplicaView(address, state, now.error)
    earlier = None if before is None else before.stats
    return ReplicaView(
        address,
        ReplicaState.SERVING,
        lately=None if before is None or earlier is None else _lately(before, earlier, now, stats),
        queued_saves=stats.queued_saves,
        dropped_saves=stats.dropped_saves,
        open_breakers=tuple(s.service for s in stats.services if s.breaker is BreakerState.OPEN),
    )


def _lately(
    before: Sample, earlier: OrchestratorStats, now: Sample, stats: OrchestratorStats
) -> Lately | None:
    seconds = now.at_s - before.at_s
    tiers = {tier: stats.tiers.get(tier, 0) - earlier.tiers.get(tier, 0) for tier in HitTier}
    executed = stats.executed_steps - earlier.executed_steps
    skipped = stats.skipped_steps - earlier.skipped_steps
    saved = stats.saved_count - earlier.saved_count
    # Counts go back when the replica was started again, or one address hides several.
    if seconds <= 0 or min(*tiers.values(), executed, skipped, saved) < 0:
        return None
    counts = {k: n - earlier.fallbacks.get(k, 0) for k, n in stats.fallbacks.items()}
    return Lately(
        seconds,
        sum(tiers.values()) / seconds,
        tiers,
        executed,
        skipped,
        saved,
        {name: count for name, count in counts.items() if count > 0},
    )


def _sum(parts: Sequence[Lately]) -> Lately | None:
    if not parts:
        return None
    return Lately(
        max(part.seconds for part in parts),
        sum(part.requests_per_s for part in parts),
        total(part.tiers for part in parts),
        sum(part.executed_steps for part in parts),
        sum(part.skipped_steps for part in parts),
        sum(part.saved for part in parts),
        total(part.fallbacks for part in parts),
    )
