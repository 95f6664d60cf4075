"""Lookup and Save for engines that denoise themselves: the same decision, the same save."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from skipstone_orchestrator.backends import LatentEntries
from skipstone_orchestrator.breaker import Clock
from skipstone_orchestrator.cache_options import CacheDefaults, check_key_steps, resolve_options
from skipstone_orchestrator.compatibility import (
    exact_entry_id,
    fresh_entry_id,
    full_run_of,
    is_exact_entry_id,
    resumed_entry_id,
)
from skipstone_orchestrator.decision import Decision, Query
from skipstone_orchestrator.guard import Guard
from skipstone_orchestrator.journal import Journal
from skipstone_orchestrator.lookup import Lookup
from skipstone_orchestrator.noise_levels import Schedule
from skipstone_orchestrator.plans import check_prompt, check_seed
from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_orchestrator.reuse_policy import ReusePolicy, default_key_steps
from skipstone_orchestrator.saver import EntryWriter, SaveJob
from skipstone_orchestrator.served_counts import ServedCounts
from skipstone_shared.calibration import model_hash
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.frame_samples import checked_frames
from skipstone_shared.latents import (
    LatentFingerprint,
    checked_entry_id,
    checked_namespace,
    compatibility_key,
)
from skipstone_shared.orchestration import (
    CacheOptions,
    Entry,
    HitTier,
    LookupDecision,
    ReuseKind,
)


@dataclasses.dataclass(frozen=True, slots=True)
class LookupCall:
    """What an outside engine asks: its run's fingerprint and sigmas, and the prompt."""

    namespace: str
    prompt: str
    fingerprint: LatentFingerprint
    sigmas: tuple[float, ...]
    seed: int | None = None
    options: CacheOptions = dataclasses.field(default_factory=CacheOptions)
    explain: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SaveCall:
    """What an outside engine has written to latent_kv and wants to be found."""

    namespace: str
    entry_id: str
    prompt: str
    seed: int
    fingerprint: LatentFingerprint
    depth: int = 0
    frames: tuple[EncodedImage, ...] = ()


class OutsideEngines:
    """Serves engines outside Skipstone."""

    def __init__(
        self,
        *,
        lookup: Lookup,
        writer: EntryWriter,
        store: LatentEntries,
        store_guard: Guard,
        counts: ServedCounts,
        policy: ReusePolicy,
        defaults: CacheDefaults,
        prompts: PromptKeys,
        donor_frames: int,
        timeout_s: float,
        clock: Clock,
    ) -> None:
        """Creates the service.

        Args:
            lookup: Decides.
            writer: Saves.
            store: Latent store.
            store_guard: Its guard.
            counts: Where fallbacks and saves are counted.
            policy: Reuse policy.
            defaults: What holds for requests that do not say.
            prompts: How prompts stand in what is saved.
            donor_frames: Frames of a run by which it is found; 0: by its prompt.
            timeout_s: Seconds a call of a save may take.
            clock: Seconds.
        """
        self._lookup = lookup
        self._writer = writer
        self._store = store
        self._store_guard = store_guard
        self._counts = counts
        self._policy = policy
        self._defaults = defaults
        self._prompts = prompts
        self._donor_frames = donor_frames
        self._timeout_s = timeout_s
        self._clock = clock

    async def look_up(self, call: LookupCall) -> LookupDecision:
        """Decides whether and from where a run may be resumed.

        Raises:
            InvalidArgument: A bad prompt, fingerprint or option.
        """
        query = self._query(call)
        journal = Journal(self._clock)
        decision = await self._lookup.decide(query, journal)
        self._counts.count_fallbacks(journal.fallbacks, query.namespace)
        use = query.use
        steps = use.key_steps or default_key_steps(self._policy, query.schedule, use.limits.kind)
        return LookupDecision(
            tier=decision.tier,
            reason=decision.reason,
            policy_version=decision.policy_version(self._policy),
            compatibility_key=query.compatibility_key,
            entry_id=self._entry_id(query, decision),
            donor=decision.donor,
            skip_steps=decision.skip_steps,
            reuse_kind=decision.kind,
            similarity=decision.similarity,
            rerank_score=decision.score,
            candidates=decision.candidates if call.explain else (),
            fallbacks=journal.fallbacks,
            key_steps=steps if use.mode.writes else (),
            donor_frames=self._donor_frames if use.mode.writes else 0,
        )

    async def save(self, call: SaveCall) -> Entry:
        """Makes an entry findable; when it returns the next lookup can find it.

        Raises:
            InvalidArgument: A bad prompt, fingerprint, seed, id or frame.
            EntryNotFound: The entry is not in the store, or its lease ended.
            Unavailable: A service cannot be reached.
        """
        namespace, entry_id = checked_namespace(call.namespace), checked_entry_id(call.entry_id)
        check_prompt(call.prompt, "prompt")
        check_seed(call.seed, "seed")
        if call.depth < 0:
            raise InvalidArgument(f"depth is {call.depth}", field="depth", allowed="0 and up")
        frames = checked_frames(call.frames)
        key = _checked_key(call.fingerprint)
        request = key, self._prompts.exact(call.prompt), call.seed
        _check_owner(entry_id, exact_entry_id(*request))
        stored = await self._store_guard.call(
            lambda: self._store.get_entry(namespace, entry_id), self._timeout_s
        )
        others = {s.metadata.compatibility_key for s in stored.snapshots} - {key}
        if others:
            raise InvalidArgument(
                f"fingerprint has key {key}, the snapshots were written under {min(others)}",
                field="fingerprint",
                allowed="the fingerprint of the run that wrote the snapshots",
            )
        # What the snapshots say of their depth cannot be talked down.
        depth = max([call.depth, *(s.metadata.depth for s in stored.snapshots)])
        job = SaveJob(
            namespace=namespace,
            entry_id=entry_id,
            prompt=call.prompt,
            seed=call.seed,
            compatibility_key=key,
            snapshots=tuple(s.ref for s in stored.snapshots),
            depth=depth,
            frames=frames,
            replaces=stored.committed,
        )
        entry = await self._writer.write(job)
        self._counts.count_saved(namespace)
        return Entry(entry_id, entry.prompt, call.seed, key, entry.snapshots, depth)

    def _entry_id(self, query: Query, decision: Decision) -> str:
        """Id under which the engine is to store what its run gives."""
        if query.seed is None:
            return fresh_entry_id()
        request = query.compatibility_key, query.exact_prompt, query.seed
        if decision.tier is HitTier.APPROXIMATE:
            return resumed_entry_id(*request, decision.result_version)
        return exact_entry_id(*request)

    def _query(self, call: LookupCall) -> Query:
        namespace = checked_namespace(call.namespace)
        check_prompt(call.prompt, "prompt")
        if call.seed is not None:
            check_seed(call.seed, "seed")
        use = resolve_options(call.options, self._defaults)
        _check_sigmas(call.sigmas, call.fingerprint.num_inference_steps)
        check_key_steps(use.key_steps, call.fingerprint.num_inference_steps)
        return Query(
            namespace=namespace,
            prompt=call.prompt,
            seed=call.seed,
            exact_wanted=call.seed is not None,
            decodable=True,
            compatibility_key=_checked_key(call.fingerprint),
            model_hash=model_hash(call.fingerprint),
            # The engine knows what it can do and says so with reuse_kind.
            schedule=Schedule.of(call.sigmas, call.fingerprint.prediction_type, ReuseKind),
            use=use,
            prompts=self._prompts,
        )


def _checked_key(fingerprint: LatentFingerprint) -> str:
    try:
        return compatibility_key(fingerprint)
    except ValueError:
        raise InvalidArgument(
            "fingerprint has a number that is not finite", field="fingerprint", allowed="finite"
        ) from None


def _check_owner(entry_id: str, full_run_id: str) -> None:
    """Checks that an entry does not take the place of another request's exact result."""
    if is_exact_entry_id(entry_id) and full_run_of(entry_id) != full_run_id:
        raise InvalidArgument(
            f"entry_id {entry_id} is that of another prompt, seed or fingerprint",
            field="entry_id",
            allowed=f"what Lookup gave, {full_run_id} of a full run, or an id of another form",
        )


def _check_sigmas(sigmas: Sequence[float], num_inference_steps: int) -> None:
    right_length = num_inference_steps >= 1 and len(sigmas) == num_inference_steps + 1
    if not right_length or not all(math.isfinite(s) and s >= 0 for s in sigmas):
        raise InvalidArgument(
            f"{len(sigmas)} sigmas for {num_inference_steps} steps",
            field="sigmas",
            allowed="num_inference_steps + 1 finite values, 0 and up",
        )
