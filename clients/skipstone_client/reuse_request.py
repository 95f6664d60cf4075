"""One request of an engine: where it starts, what of it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from skipstone_client._request_core import RequestCore
from skipstone_client._reuse_flows import Flow, run_flow
from skipstone_client.engine_latents import LatentsT
from skipstone_client.engine_runs import Donor, SolverState
from skipstone_shared.frame_samples import Picture
from skipstone_shared.request_context import request_scope

T = TypeVar("T")


class ReuseRequest(RequestCore):
    """One request. Its methods are called from one thread; ``provenance`` from any.

    In order: ``resume`` (or ``donor``) once, ``snapshot`` for the latents that enter later steps,
    ``finish``. Leaving the block without ``finish``, or by an exception, saves nothing.
    """

    def __enter__(self) -> Self:
        self._in_block = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(by_exception=kind is not None)

    def resume(self, noise: LatentsT) -> tuple[LatentsT, int]:
        """The latents to start with and the step they enter.

        Args:
            noise: Standard normal noise of the request in the layout of the loop.

        Returns:
            ``noise`` and 0 on a miss; else latents of the same kind, shape and device, and the
            first step to run. ``num_inference_steps`` means that they are the result.

        Raises:
            FailedPrecondition: called twice.
        """
        return self._done(self._resuming(noise))

    def donor(self) -> Donor | None:
        """The donor as it is stored, for engines that mix or restore by means of their own.

        Raises:
            FailedPrecondition: called twice.
        """
        return self._done(self._finding_donor())

    def refuse(self, reason: str, message: str) -> None:
        """Says that the donor cannot be used after all: the run starts from noise.

        Args:
            reason: One word, ``SCREAMING_SNAKE``; becomes the reason of the provenance.
            message: The same as a sentence.
        """
        self._done(self._refusing(reason, message))

    def snapshot(self, step_index: int, latents: object, solver: SolverState | None = None) -> None:
        """Copies the latents that enter a step and has them stored; returns at once.

        Steps that are not wanted are passed over.

        Args:
            step_index: The step, 1 to ``num_inference_steps`` (the clean latent).
            latents: Array or tensor in the layout of the loop.
            solver: What the solver remembers, if it has a memory.

        Raises:
            FailedPrecondition: ``resume`` or ``donor`` was not called, or ``finish`` was.
        """
        self._done(self._taking(step_index, latents, solver))

    def finish(self, latents: object | None = None, frames: Sequence[Picture] = ()) -> None:
        """Has the clean latents stored, and the entry saved when the block ends; returns at once.

        Args:
            latents: What left the last step; None when the engine does not have it. Then only later
                snapshots are kept, and neither the exact tier nor renoising can use them.
            frames: What the run made, as Pillow has it: all frames of a clip in order, or one
                picture; must stay as it is. ``donor_frames`` of them are looked at, where that is
                above 0.

        Raises:
            FailedPrecondition: ``resume`` or ``donor`` was not called, or called twice.
        """
        self._done(self._finishing(latents, frames))

    def _done(self, flow: Flow[T]) -> T:
        with request_scope(self._request_id):
            return run_flow(flow, self._services)
