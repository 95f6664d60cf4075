"""What the synchronous and the asynchronous form of a reuse session share."""

from __future__ import annotations

import dataclasses
import logging
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from skipstone_client._background_writer import BackgroundWriter
from skipstone_client._request_core import RequestCore
from skipstone_client._reuse_calls import ReuseCalls
from skipstone_client._reuse_flows import Services
from skipstone_client._reuse_outcome import ReuseCounts, ReuseOutcome, SessionStats
from skipstone_client.engine_runs import EngineRun
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_client.session_limits import SessionLimits
from skipstone_shared.credentials import Credentials
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import CacheMode, CacheOptions
from skipstone_shared.ports import default_target

RequestT = TypeVar("RequestT", bound=RequestCore)

_log = logging.getLogger(__name__)


def end_writing(
    writer: BackgroundWriter,
    timeout_s: float,
    store: LatentKVClient,
    orchestrator: OrchestratorClient,
) -> None:
    """Waits for what is to be stored, says what is lost, and disconnects."""
    lost = writer.close(timeout_s)
    if lost:
        _log.warning("%d snapshots and saves were not stored before the end", lost)
    store.close()
    orchestrator.close()


class SessionCore:
    """The clients of the thread that stores beside the loop, and what all requests share."""

    _ended_by = staticmethod(end_writing)
    """Ends a session that nobody closed."""

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
        self._credentials = credentials
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
        self._services = self._asked()
        # Also at the end of a program that forgets to close: its last run would be lost.
        self._end = weakref.finalize(
            self,
            self._ended_by,
            self._writer,
            limits.close_timeout_s,
            self._store,
            self._orchestrator,
        )

    def _asked(self) -> Services:
        """Whom requests ask while their engine waits."""
        raise NotImplementedError

    @property
    def cache(self) -> CacheOptions:
        """How requests use the cache when they do not say."""
        return self._cache

    @property
    def stats(self) -> SessionStats:
        """What the session did so far."""
        return self._counts.stats

    def _request(
        self, kind: type[RequestT], prompt: str, run: EngineRun, cache: CacheOptions | None
    ) -> RequestT:
        options = cache or self._cache
        if options.mode is None:
            options = dataclasses.replace(options, mode=CacheMode.READ_WRITE)
        outcome = ReuseOutcome(self._counts)
        return kind(self._services, self._calls, self._writer, prompt, run, options, outcome)
