"""Asynchronous client of the denoise executor; see its synchronous twin."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from skipstone.denoise.v1 import denoise_pb2 as pb
from skipstone.denoise.v1.denoise_pb2_grpc import DenoiseStub
from skipstone_client._async_client import AsyncClient, AsyncMessageStream
from skipstone_client._channel import DENOISE
from skipstone_shared.credentials import Credentials
from skipstone_shared.denoise_run_messages import (
    DenoiseEventReader,
    denoise_capabilities_from_message,
    denoise_stats_from_message,
    plan_from_message,
    request_to_message,
)
from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseRequest,
    DenoiseStats,
    GenerationPlan,
)
from skipstone_shared.generation import GenerationParams
from skipstone_shared.generation_messages import params_to_message
from skipstone_shared.latent_messages import ref_to_message
from skipstone_shared.latents import LatentRef
from skipstone_shared.optional_fields import new_message

if TYPE_CHECKING:
    # Exists for type checkers only; named in a string below, which ruff does not see.
    from skipstone.denoise.v1.denoise_pb2_grpc import DenoiseAsyncStub  # noqa: F401


class AsyncDenoiseClient(AsyncClient["DenoiseAsyncStub"]):
    """A denoise executor behind gRPC."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 10.0,
        run_timeout_s: float = 600.0,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target of the service.
            timeout_s: Deadline of a call that runs no model and gives none of its own, in seconds.
            run_timeout_s: Deadline of a run that gives none of its own, in seconds.
            credentials: Certificates and token; None: none, in plain text.
        """
        super().__init__(target, DENOISE, DenoiseStub, timeout_s, credentials)
        self._run_timeout_s = run_timeout_s

    async def get_capabilities(self, *, timeout_s: float | None = None) -> DenoiseCapabilities:
        """The model, its defaults and its limits."""
        response = await self._call(
            self._stub.GetCapabilities, pb.GetCapabilitiesRequest(), timeout_s
        )
        return denoise_capabilities_from_message(response)

    async def plan(
        self, params: GenerationParams, namespace: str = "", *, timeout_s: float | None = None
    ) -> GenerationPlan:
        """What a run with these parameters would be. Runs no model.

        Raises:
            InvalidArgument: a parameter is out of range.
        """
        request = new_message(
            pb.PlanGenerationRequest, namespace=namespace, params=params_to_message(params)
        )
        return plan_from_message(await self._call(self._stub.PlanGeneration, request, timeout_s))

    def run(
        self, request: DenoiseRequest, *, timeout_s: float | None = None
    ) -> AsyncGenerator[DenoiseEvent]:
        """Runs one generation and gives its events; ``DenoiseFinished`` is the last.

        The run starts at once. Closing the iterator, or losing it, stops it within one step.

        Args:
            request: The run.
            timeout_s: Deadline of the run, in seconds.

        Raises:
            SkipstoneError: while iterating; see the proto for each. A broken artifact is
                DataCorrupt.
        """
        limit = self._run_timeout_s if timeout_s is None else timeout_s
        stream = self._stream(self._stub.RunDenoise, request_to_message(request), limit)
        return _events(stream)

    async def compare_latents(
        self,
        first: LatentRef,
        second: LatentRef,
        namespace: str = "",
        *,
        timeout_s: float | None = None,
    ) -> float:
        """How far apart two stored latents are: 0 for equal ones, about 1 for unrelated ones.

        Raises:
            LatentNotFound: a store does not have one of them.
            FingerprintMismatch: a store holds another one than named, or their shapes differ.
            DataCorrupt: the bytes of one are damaged.
            Unavailable: a store cannot be reached.
        """
        request = new_message(
            pb.CompareLatentsRequest,
            namespace=namespace,
            first=ref_to_message(first),
            second=ref_to_message(second),
        )
        return (await self._call(self._stub.CompareLatents, request, timeout_s)).distance

    async def get_stats(self, *, timeout_s: float | None = None) -> DenoiseStats:
        """Counts since the start of the executor."""
        response = await self._call(self._stub.GetStats, pb.GetStatsRequest(), timeout_s)
        return denoise_stats_from_message(response)


async def _events(
    stream: AsyncMessageStream[pb.RunDenoiseResponse],
) -> AsyncGenerator[DenoiseEvent]:
    reader = DenoiseEventReader()
    try:
        async for message in stream:
            event = reader.read(message)
            if event is not None:
                yield event
        reader.finish()
    finally:
        stream.close()
