"""Latent reuse for any engine that denoises itself.

The engine keeps its loop; a session tells it where to start, takes copies of its latents on the
way, and stores them beside the loop:

    with ReuseSession(cache=CacheOptions(reuse_kind=ReuseKind.RENOISE)) as session:
        with session.request(prompt, run) as r:
            latents, start = r.resume(noise)
            for step in range(start, run.num_inference_steps):
                r.snapshot(step, latents)
                latents = denoise(latents, step)
            r.finish(latents)
"""

from __future__ import annotations

import dataclasses
import logging
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Self

from skipstone_client._background_writer import BackgroundWriter
from skipstone_client._reuse_calls import ReuseCalls
from skipstone_client._reuse_outcome import ReuseCounts, ReuseOutcome, SessionStats
from skipstone_client.engine_runs import EngineRun
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_client.reuse_request import ReuseRequest
from skipstone_client.session_limits import SessionLimits
from skipstone_shared.credentials import Credentials
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import CacheMode, CacheOptions
from skipstone_shared.ports import default_target

_log = logging.getLogger(__name__)


class ReuseSession:
    """Latent reuse for one engine. Threads may share it, each request belongs to one.

    No method raises because of the cache: a service that is down, slow or wrong makes a miss with
    a reason, and every call has its time (``SessionLimits``).
    """

    def __init__(
        self,
        orchestrator_target: str = "",
        latent_kv_target: str = "",
        *,
        namespace: str = "",
        cache: CacheOptions | None = None,
        limits: SessionLimits | None = None,
        credentials: Credentials | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the session without connecting.

        Args:
            orchestrator_target: gRPC target of the orchestrator; empty: the default port here.
            latent_kv_target: gRPC target of the latent_kv service that the orchestrator uses;
                empty: the default port here.
            namespace: Tenant or pool; empty means ``default``.
            cache: How requests use the cache when they do not say. A mode that is not set is
                ``read_write``, whatever the orchestrator is configured with.
            limits: What the session may cost.
            credentials: Certificates and token for both services; None: none, in plain text.
            clock: Seconds.

        Raises:
            InvalidArgument: the namespace is not one, or a file of the credentials cannot be used.
        """
        limits = limits or SessionLimits()
        self._cache = cache or CacheOptions()
        self._limits = limits
        self._orchestrator = OrchestratorClient(
            orchestrator_target or default_target("orchestrator"), credentials=credentials
        )
        self._store = LatentKVClient(
            latent_kv_target or default_target("latent_kv"),
            first_byte_timeout_s=limits.read_timeout_s,
            credentials=credentials,
        )
        self._calls = ReuseCalls(
            self._orchestrator, self._store, checked_namespace(namespace), limits, clock
        )
        self._writer = BackgroundWriter(limits.queue_size, "skipstone-reuse")
        self._counts = ReuseCounts()
        # Also at the end of a program that forgets to close: its last run would be lost.
        self._end = weakref.finalize(
            self, _end, self._writer, limits.close_timeout_s, self._store, self._orchestrator
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def request(
        self, prompt: str, run: EngineRun, cache: CacheOptions | None = None
    ) -> ReuseRequest:
        """One request; nobody is asked before its ``resume``.

        Args:
            prompt: Its prompt: the only part of it that is compared by similarity.
            run: Everything else its latents depend on, and its seed.
            cache: How it uses the cache; None: as the session says.
        """
        options = cache or self._cache
        if options.mode is None:
            options = dataclasses.replace(options, mode=CacheMode.READ_WRITE)
        outcome = ReuseOutcome(self._counts)
        return ReuseRequest(self._calls, self._writer, prompt, run, options, outcome)

    @property
    def cache(self) -> CacheOptions:
        """How requests use the cache when they do not say."""
        return self._cache

    @property
    def stats(self) -> SessionStats:
        """What the session did so far."""
        return self._counts.stats

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until everything that is to be stored is stored, or not; whether it is done.

        Args:
            timeout_s: Longest wait, in seconds; None: ``close_timeout_s``.
        """
        return self._writer.flush(self._limits.close_timeout_s if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Waits for what is to be stored, at most ``close_timeout_s``, and disconnects.

        What is not stored by then is lost. Idempotent; requests of a closed session run from noise.
        """
        self._end()


def _end(
    writer: BackgroundWriter,
    timeout_s: float,
    store: LatentKVClient,
    orchestrator: OrchestratorClient,
) -> None:
    lost = writer.close(timeout_s)
    if lost:
        _log.warning("%d snapshots and saves were not stored before the end", lost)
    store.close()
    orchestrator.close()
