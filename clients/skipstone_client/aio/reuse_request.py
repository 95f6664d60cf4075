"""One request of an engine in an event loop; see its synchronous twin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from skipstone_client._request_core import RequestCore
from skipstone_client._reuse_flows import Flow, run_flow_in_loop
from skipstone_client.engine_latents import LatentsT
from skipstone_client.engine_runs import Donor, SolverState
from skipstone_shared.frame_samples import Picture
from skipstone_shared.request_context import request_scope

T = TypeVar("T")


class AsyncReuseRequest(RequestCore):
    """One request. Its methods are awaited one after the other, in one event loop.

    In order: ``resume`` (or ``donor``) once, ``snapshot`` for the latents that enter later steps,
    ``finish``. Leaving the block without ``finish``, or by an exception, saves nothing; so does a
    task that is cancelled while it waits for one of them.
    """

    async def __aenter__(self) -> Self:
        self._in_block = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(by_exception=kind is not None)

    async def resume(self, noise: LatentsT) -> tuple[LatentsT, int]:
        """The latents to start with and the step they enter."""
        return await self._done(self._resuming(noise))

    async def donor(self) -> Donor | None:
        """The donor as it is stored, for engines that mix or restore by means of their own."""
        return await self._done(self._finding_donor())

    async def refuse(self, reason: str, message: str) -> None:
        """Says that the donor cannot be used after all: the run starts from noise."""
        await self._done(self._refusing(reason, message))

    async def snapshot(
        self, step_index: int, latents: object, solver: SolverState | None = None
    ) -> None:
        """Copies the latents that enter a step and has them stored; waits for the copy alone."""
        await self._done(self._taking(step_index, latents, solver))

    async def finish(self, latents: object | None = None, frames: Sequence[Picture] = ()) -> None:
        """Has the clean latents stored, and the entry saved when the block ends; likewise."""
        await self._done(self._finishing(latents, frames))

    async def _done(self, flow: Flow[T]) -> T:
        with request_scope(self._request_id):
            try:
                return await run_flow_in_loop(flow, self._services)
            except asyncio.CancelledError:
                # Cancelled in the middle: what is stored of the run must not be found.
                self.abandon()
                raise
