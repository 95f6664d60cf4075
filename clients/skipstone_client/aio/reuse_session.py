"""Latent reuse for an engine in an event loop; see ``ReuseSession``, whose promises it keeps.

async with AsyncReuseSession() as session:
    async with session.request(prompt, run) as r:
        latents, start = await r.resume(noise)
        for step in range(start, run.num_inference_steps):
            await r.snapshot(step, latents)
            latents = await denoise(latents, step)
        await r.finish(latents)
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from skipstone_client._background_writer import BackgroundWriter
from skipstone_client._reuse_flows import Services
from skipstone_client._session_core import SessionCore, end_writing
from skipstone_client.aio.latent_kv import AsyncLatentKVClient
from skipstone_client.aio.orchestrator import AsyncOrchestratorClient
from skipstone_client.aio.reuse_request import AsyncReuseRequest
from skipstone_client.engine_runs import EngineRun
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_shared.orchestration import CacheOptions


def _end_beside_a_loop(
    writer: BackgroundWriter,
    timeout_s: float,
    store: LatentKVClient,
    orchestrator: OrchestratorClient,
) -> None:
    """Ends a session that nobody closed without holding up the event loop that it is lost in."""
    wanted = (writer, timeout_s, store, orchestrator)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        end_writing(*wanted)
    else:
        threading.Thread(target=end_writing, args=wanted, name="skipstone-reuse-end").start()


class AsyncReuseSession(SessionCore):
    """Latent reuse for one engine. Tasks of one event loop may share it.

    No method raises because of the cache, and none holds up the event loop: lookups and reads are
    asynchronous, large latents are checked and copied in another thread, and a thread stores them.
    A task that is cancelled ends its lookup or read, and nothing of its run is saved.
    """

    _ended_by = staticmethod(_end_beside_a_loop)

    def _asked(self) -> Services:
        self._async_orchestrator = AsyncOrchestratorClient(
            self._orchestrator.target, credentials=self._credentials
        )
        self._async_store = AsyncLatentKVClient(
            self._store.target,
            first_byte_timeout_s=self._limits.read_timeout_s,
            credentials=self._credentials,
        )
        return Services(self._async_orchestrator, self._async_store)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def request(
        self, prompt: str, run: EngineRun, cache: CacheOptions | None = None
    ) -> AsyncReuseRequest:
        """One request; nobody is asked before its ``resume``. See ``ReuseSession.request``."""
        return self._request(AsyncReuseRequest, prompt, run, cache)

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until everything that is to be stored is stored, or not; whether it is done.

        Args:
            timeout_s: Longest wait, in seconds; None: ``close_timeout_s``.
        """
        loop = asyncio.get_running_loop()
        idle = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(idle.set)

        self._writer.call_when_idle(tell)
        try:
            async with asyncio.timeout(
                self._limits.close_timeout_s if timeout_s is None else timeout_s
            ):
                await idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Waits for what is to be stored, at most ``close_timeout_s``, and disconnects.

        What is not stored by then, or when the task is cancelled, is lost. Idempotent; requests of
        a closed session run from noise.
        """
        try:
            if self._end.alive:
                await self.flush()
        finally:
            if self._end.detach() is not None:
                end_writing(self._writer, 0.0, self._store, self._orchestrator)
            await self._async_store.close()
            await self._async_orchestrator.close()
