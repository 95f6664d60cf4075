"""The calls of a reuse session: none raises because of the cache, and each has its time.

What an engine waits for is a flow (``_reuse_flows``); what is stored beside its loop is done by a
thread, whatever the engine is written with, so that it goes on while an event loop is busy or gone.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from skipstone_client._reuse_flows import Flow
from skipstone_client.donor_checks import READ_REASONS, DonorRefused
from skipstone_client.engine_runs import EngineRun
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_client.session_limits import SessionLimits
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.errors import DeadlineExceeded, SkipstoneError, Unavailable
from skipstone_shared.latents import LatentRef, SnapshotMetadata
from skipstone_shared.orchestration import (
    CacheMode,
    CacheOptions,
    Fallback,
    HitTier,
    LookupDecision,
)
from skipstone_shared.stored_entries import Snapshot
from skipstone_shared.tensor_messages import Array

LOOKUP_FAILED = "LOOKUP_FAILED"
INVALID_ARGUMENT = "INVALID_ARGUMENT"
"""Reason of a miss: the run is described in a way that no service takes."""

_log = logging.getLogger(__name__)


class ReuseCalls:
    """Asks and tells the services. Threads may share it."""

    def __init__(
        self,
        orchestrator: OrchestratorClient,
        store: LatentKVClient,
        namespace: str,
        limits: SessionLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Holds the clients of the thread that stores, which stay the caller's.

        Args:
            orchestrator: Saves.
            store: Takes the latents.
            namespace: Tenant or pool.
            limits: Times.
            clock: Seconds.
        """
        self._orchestrator = orchestrator
        self._store = store
        self._namespace = namespace
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._silent_until: float | None = None

    def look_up(self, prompt: str, run: EngineRun, cache: CacheOptions) -> Flow[LookupDecision]:
        """The orchestrator's decision; a miss that says so when there is none."""
        if self._is_silent():
            message = "the orchestrator did not answer a moment ago"
            return _failed(Unavailable.reason, message, 0.0)
        started = self._clock()
        try:
            decision: LookupDecision = yield lambda services: services.orchestrator.lookup(
                prompt,
                run.fingerprint,
                run.sigmas,
                run.seed,
                cache,
                namespace=self._namespace,
                timeout_s=self._limits.lookup_timeout_s,
            )
            return decision
        except SkipstoneError as error:
            if isinstance(error, Unavailable | DeadlineExceeded):
                self._be_silent()
            _log.warning("lookup failed, the run starts from noise: %s", error)
            return _failed(error.reason, error.message, self._clock() - started)
        except Exception as error:  # noqa: BLE001 - such as values that no message takes
            _log.exception("lookup failed, the run starts from noise")
            return _failed(INVALID_ARGUMENT, str(error), self._clock() - started)

    def full_run_entry_id(self, prompt: str, run: EngineRun, cache: CacheOptions) -> Flow[str]:
        """Entry id of a full run of a request whose lookup said to resume; empty when unknown.

        A lookup that may only write looks at nothing and decides for a full run.
        """
        write_only = dataclasses.replace(cache, mode=CacheMode.WRITE_ONLY)
        decision = yield from self.look_up(prompt, run, write_only)
        return decision.entry_id

    def read(self, ref: LatentRef) -> Flow[Snapshot]:
        """Reads a donor.

        Raises:
            DonorRefused: it cannot be read.
        """
        if ref.store not in ("", self._store.target):
            raise DonorRefused("STORE_UNAVAILABLE", f"the donor is in another store, {ref.store}")
        timeout_s = self._limits.read_timeout_s + ref.size_bytes / self._limits.read_bytes_per_s
        try:
            snapshot: Snapshot = yield lambda services: services.store.read_latent(
                self._namespace, ref, timeout_s=timeout_s
            )
            return snapshot
        except SkipstoneError as error:
            reason = READ_REASONS.get(type(error), error.reason)
            raise DonorRefused(reason, f"donor store: {error}") from error
        except Exception as error:
            _log.exception("donor read failed")
            raise DonorRefused("STORE_FAILED", f"donor store: {type(error).__name__}") from error

    def write(self, metadata: SnapshotMetadata, arrays: Mapping[str, Array]) -> None:
        """Stores one snapshot under a lease.

        Raises:
            SkipstoneError: it is not stored.
        """
        self._store.write_arrays(
            self._namespace,
            metadata,
            arrays,
            lease_s=self._limits.lease_s,
            timeout_s=self._limits.write_timeout_s,
        )

    def save(
        self,
        entry_id: str,
        prompt: str,
        run: EngineRun,
        depth: int,
        frames: Sequence[EncodedImage] = (),
    ) -> None:
        """Makes an entry findable.

        Raises:
            SkipstoneError: it is not.
        """
        self._orchestrator.save(
            entry_id,
            prompt,
            run.seed,
            run.fingerprint,
            depth,
            self._namespace,
            frames=frames,
            timeout_s=self._limits.save_timeout_s,
        )

    def _is_silent(self) -> bool:
        with self._lock:
            return self._silent_until is not None and self._clock() < self._silent_until

    def _be_silent(self) -> None:
        with self._lock:
            self._silent_until = self._clock() + self._limits.retry_pause_s


def _failed(reason: str, message: str, delay_s: float) -> LookupDecision:
    fallback = Fallback("lookup", "orchestrator", reason, message, delay_s)
    return LookupDecision(
        tier=HitTier.MISS,
        reason=INVALID_ARGUMENT if reason == INVALID_ARGUMENT else LOOKUP_FAILED,
        policy_version="",
        compatibility_key="",
        entry_id="",
        fallbacks=(fallback,),
    )
