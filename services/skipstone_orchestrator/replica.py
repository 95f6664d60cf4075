"""What one replica can tell about itself: counts, the services behind it, policy and limits."""

from __future__ import annotations

import asyncio
import dataclasses

from skipstone_orchestrator.audits import DriftAudits
from skipstone_orchestrator.backends import EntryIndex, LatentEntries
from skipstone_orchestrator.deadlines import Guards
from skipstone_orchestrator.guard import Guard
from skipstone_orchestrator.plans import Planner
from skipstone_orchestrator.reuse_policy import ReusePolicy
from skipstone_orchestrator.saver import Saver
from skipstone_orchestrator.served_counts import ServedCounts
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.generation import MAX_PROMPT_BYTES
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import (
    CacheMode,
    OrchestratorCapabilities,
    OrchestratorStats,
    ServiceState,
)

UNKNOWN = -1


class Replica:
    """Answers questions about this replica."""

    def __init__(
        self,
        *,
        version: str,
        policy: ReusePolicy,
        default_mode: CacheMode,
        donor_frames: int,
        counts: ServedCounts,
        audits: DriftAudits,
        saver: Saver,
        planner: Planner,
        index: EntryIndex,
        store: LatentEntries,
        guards: Guards,
        denoise_guard: Guard,
        timeout_s: float,
    ) -> None:
        """Creates the view.

        Args:
            version: Version of Skipstone.
            policy: Reuse policy in force.
            default_mode: Cache mode of requests that give none.
            donor_frames: Frames by which donors are found; 0: by their prompts.
            counts: What was served.
            audits: What was audited.
            saver: Knows what waits.
            planner: Knows the model.
            index: Counts entries.
            store: Counts bytes.
            guards: Guards of the services of a lookup.
            denoise_guard: Guard of the executor.
            timeout_s: Seconds that an answer may wait for each service.
        """
        self._version = version
        self._policy = policy
        self._default_mode = default_mode
        self._donor_frames = donor_frames
        self._counts = counts
        self._audits = audits
        self._saver = saver
        self._planner = planner
        self._index = index
        self._store = store
        self._guards = guards
        self._denoise_guard = denoise_guard
        self._timeout_s = timeout_s

    def service_states(self) -> tuple[ServiceState, ...]:
        """What is known of the four services."""
        guards = self._guards
        all_guards = (guards.embedding, guards.index, guards.store, self._denoise_guard)
        return tuple(guard.state for guard in all_guards)

    async def stats(self, namespace: str, *, of_all: bool = True) -> OrchestratorStats:
        """Counts since the start; those of the namespace are UNKNOWN when its store is down.

        Args:
            namespace: Whose entries are counted.
            of_all: Tell what was done for all namespaces, and of the services behind; else what was
                done for this one alone, and of the services only whether they work.

        Raises:
            InvalidArgument: A bad namespace.
        """
        namespace = checked_namespace(namespace)
        entries, size = await asyncio.gather(
            self._entry_count(namespace), self._latent_bytes(namespace)
        )
        counted = self._counted() if of_all else self._counted_of(namespace)
        return dataclasses.replace(counted, entry_count=entries, latent_bytes=size)

    def _counted(self) -> OrchestratorStats:
        return dataclasses.replace(
            self._counts.stats(),
            services=self.service_states(),
            queued_saves=self._saver.waiting_saves,
            drift=self._audits.report(),
        )

    def _counted_of(self, namespace: str) -> OrchestratorStats:
        """Without drift, which is measured on the hits of all."""
        return dataclasses.replace(
            self._counts.stats(namespace),
            services=tuple(
                dataclasses.replace(state, target="", last_error="")
                for state in self.service_states()
            ),
            queued_saves=self._saver.waiting_saves_of(namespace),
        )

    async def capabilities(self) -> OrchestratorCapabilities:
        """Policy and limits, and the model when the executor can be reached."""
        known = OrchestratorCapabilities(
            self._version,
            self._policy.version,
            self._default_mode,
            MAX_PROMPT_BYTES,
            donor_frames=self._donor_frames,
        )
        try:
            model = await self._denoise_guard.call(self._planner.ask_executor, self._timeout_s)
        except SkipstoneError:
            return known
        return dataclasses.replace(
            known,
            model_id=model.model_id,
            default_steps=model.default_steps,
            max_steps=model.max_steps,
            frame_rate=model.frame_rate,
            frame_step=model.frame_step,
            max_num_frames=model.max_num_frames,
        )

    async def _entry_count(self, namespace: str) -> int:
        try:
            found = await self._guards.index.call(
                lambda: self._index.get_stats(namespace), self._timeout_s
            )
        except SkipstoneError:
            return UNKNOWN
        return found.entry_count

    async def _latent_bytes(self, namespace: str) -> int:
        try:
            found = await self._guards.store.call(
                lambda: self._store.get_stats(namespace), self._timeout_s
            )
        except SkipstoneError:
            return UNKNOWN
        return found.size_bytes
