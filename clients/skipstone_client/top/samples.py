"""Looks at a deployment, and what happened between two looks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from skipstone_client.denoise import DenoiseClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.denoise_runs import DenoiseStats
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.orchestration import DriftReport, HitTier, OrchestratorStats, ServiceState

_EXECUTOR_TIMEOUT_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One look.

    Attributes:
        at_s: When, on a clock that never goes back.
        stats: What the orchestrator has counted since its start; None where it did not answer.
        runs: What an executor tells of its runs; None where none could be asked.
        error: Why there are no stats.
    """

    at_s: float
    stats: OrchestratorStats | None = None
    runs: DenoiseStats | None = None
    error: str = ""


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
class View:
    """What is shown.

    Attributes:
        target: Whose view it is.
        error: Why the orchestrator does not answer; empty where it does.
        lately: Since the look before; None without one, or where another replica answered.
        running: Generations that the executor runs; None where it cannot be asked.
        queued: Generations that wait for it, likewise.
        queued_saves: Entries that wait to be saved.
        dropped_saves: Entries lost since the start.
        tiers: Requests by tier since the start.
        executed_steps: Steps run since the start.
        skipped_steps: Steps skipped since the start.
        entry_count: Entries stored; -1: unknown.
        latent_bytes: Bytes of latents stored; -1: unknown.
        services: Services behind the orchestrator, with their breakers.
        drift: What audits found.
    """

    target: str
    error: str = ""
    lately: Lately | None = None
    running: int | None = None
    queued: int | None = None
    queued_saves: int = 0
    dropped_saves: int = 0
    tiers: Mapping[HitTier, int] = dataclasses.field(default_factory=dict)
    executed_steps: int = 0
    skipped_steps: int = 0
    entry_count: int = -1
    latent_bytes: int = -1
    services: tuple[ServiceState, ...] = ()
    drift: DriftReport | None = None


class Sampler:
    """Looks at one orchestrator and an executor behind it."""

    def __init__(
        self,
        target: str,
        namespace: str,
        timeout_s: float,
        credentials: Credentials | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connects to nothing yet.

        Args:
            target: gRPC target of the orchestrator.
            namespace: Whose entries and bytes are told.
            timeout_s: Deadline of its answer.
            credentials: Who asks.
            clock: Seconds on a clock that never goes back.
        """
        self._namespace = namespace
        self._credentials = credentials
        self._clock = clock
        self._orchestrator = OrchestratorClient(
            target, timeout_s=timeout_s, credentials=credentials
        )
        self._executor: DenoiseClient | None = None
        self._executor_target = ""

    def look(self) -> Sample:
        """Looks once. Takes the deadline and a second at most; raises nothing of Skipstone's."""
        try:
            stats = self._orchestrator.get_stats(self._namespace)
        except SkipstoneError as error:
            return Sample(self._clock(), error=str(error))
        return Sample(self._clock(), stats, self._runs(stats))

    def close(self) -> None:
        """Closes the connections."""
        self._orchestrator.close()
        if self._executor is not None:
            self._executor.close()

    def _runs(self, stats: OrchestratorStats) -> DenoiseStats | None:
        target = next((s.target for s in stats.services if s.service == "denoise"), "")
        if not target:
            return None
        if self._executor is None or target != self._executor_target:
            if self._executor is not None:
                self._executor.close()
            self._executor = DenoiseClient(
                target, timeout_s=_EXECUTOR_TIMEOUT_S, credentials=self._credentials
            )
            self._executor_target = target
        try:
            return self._executor.get_stats()
        except SkipstoneError:
            return None  # its name may mean something only inside of a cluster


def view_of(target: str, before: Sample | None, now: Sample) -> View:
    """What is shown after a look.

    Args:
        target: Whose.
        before: The look before; None at the first.
        now: The look.
    """
    stats, runs = now.stats, now.runs
    if stats is None:
        return View(target, now.error)
    earlier = None if before is None else before.stats
    return View(
        target,
        lately=None if before is None or earlier is None else _lately(before, earlier, now, stats),
        running=None if runs is None else runs.running_count,
        queued=None if runs is None else runs.queued_count,
        queued_saves=stats.queued_saves,
        dropped_saves=stats.dropped_saves,
        tiers=stats.tiers,
        executed_steps=stats.executed_steps,
        skipped_steps=stats.skipped_steps,
        entry_count=stats.entry_count,
        latent_bytes=stats.latent_bytes,
        services=stats.services,
        drift=stats.drift,
    )


def _lately(
    before: Sample, earlier: OrchestratorStats, now: Sample, stats: OrchestratorStats
) -> Lately | None:
    seconds = now.at_s - before.at_s
    tiers = {tier: stats.tiers.get(tier, 0) - earlier.tiers.get(tier, 0) for tier in HitTier}
    executed = stats.executed_steps - earlier.executed_steps
    skipped = stats.skipped_steps - earlier.skipped_steps
    saved = stats.saved_count - earlier.saved_count
    # Counts go back when the replica was started again, or another one has answered.
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
