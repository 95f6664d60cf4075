"""The service that the host awaits. It belongs to no event loop and holds none up for long."""

from __future__ import annotations

import logging
from typing import Any

from skipstone_client.adapters.telefuser.queries import CacheQuery, LatentOutputs, LookupTicket
from skipstone_client.reuse_session import ReuseSession

_log = logging.getLogger(__name__)


class TeleFuserCacheService:
    """Looks up and saves. All requests of the host share it."""

    def __init__(self, session: ReuseSession | None) -> None:
        """Creates the service.

        Args:
            session: Where latents are; None without a cache.
        """
        self._session = session

    async def lookup(self, query: Any) -> LookupTicket:
        """Keeps the query for ``apply_resume``, the first place that knows the request's size.

        Nothing is asked here: without the size there is no key, and what waits cannot be late.
        """
        return LookupTicket(query if isinstance(query, CacheQuery) else None)

    async def save(self, query: Any, outputs: Any) -> None:
        """Copies the latents of a finished request and has them stored; returns at once."""
        if not isinstance(query, CacheQuery) or not isinstance(outputs, LatentOutputs):
            return
        request, query.reuse = query.reuse, None
        if request is None:
            return
        try:
            last = outputs.final_step
            # Some pipelines count the last step, others the steps. Anything else ran another
            # schedule than the key says.
            steps = request.num_inference_steps
            if last is not None and last not in (steps - 1, steps):
                _log.warning("task %s ran %d steps, not %d: not saved", query.task_id, last, steps)
                request.abandon()
                return
            for step, latents in sorted(outputs.latents.items()):
                if step < steps:
                    request.snapshot(step, latents)
            request.finish(outputs.latents.get(steps), outputs.frames)
        except Exception:  # noqa: BLE001 - the request is done; it must not fail of its save
            _log.exception("task %s is not saved", query.task_id)

    def shutdown(self) -> None:
        """Waits a bounded time for what is to be stored, and disconnects. Idempotent."""
        if self._session is not None:
            self._session.close()
