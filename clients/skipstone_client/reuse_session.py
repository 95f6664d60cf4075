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

from types import TracebackType
from typing import Self

from skipstone_client._reuse_flows import Services
from skipstone_client._session_core import SessionCore
from skipstone_client.engine_runs import EngineRun
from skipstone_client.reuse_request import ReuseRequest
from skipstone_shared.orchestration import CacheOptions


class ReuseSession(SessionCore):
    """Latent reuse for one engine. Threads may share it, each request belongs to one.

    No method raises because of the cache: a service that is down, slow or wrong makes a miss with
    a reason, and every call has its time (``SessionLimits``).
    """

    def _asked(self) -> Services:
        return Services(self._orchestrator, self._store)

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
        return self._request(ReuseRequest, prompt, run, cache)

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
