"""The gRPC face of a denoise engine: validate, convert, call, convert."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import grpc
from prometheus_client.registry import Collector

from skipstone.denoise.v1 import denoise_pb2 as pb
from skipstone.denoise.v1 import denoise_pb2_grpc as pb_grpc
from skipstone_denoise.engine import DenoiseEngine
from skipstone_shared.denoise_run_messages import (
    denoise_capabilities_to_message,
    denoise_stats_to_message,
    event_to_messages,
    plan_to_message,
    request_from_message,
)
from skipstone_shared.errors import Cancelled
from skipstone_shared.generation_messages import params_from_message
from skipstone_shared.grpc_server import Mounted
from skipstone_shared.latent_messages import ref_from_message
from skipstone_shared.latents import checked_namespace

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Denoise"].full_name


def mount(
    engine: DenoiseEngine,
    on_stop: Sequence[Callable[[], None]] = (),
    collectors: Sequence[Collector] = (),
) -> Mounted:
    """What a server needs to serve an engine.

    Args:
        engine: What to serve; closing it is up to `on_stop`.
        on_stop: Called when no rpc runs any more.
        collectors: Prometheus metrics.
    """
    servicer = DenoiseServicer(engine)

    def register(server: grpc.Server) -> None:
        pb_grpc.add_DenoiseServicer_to_server(servicer, server)

    return Mounted(register, [SERVICE_NAME], on_stop, collectors)


class DenoiseServicer(pb_grpc.DenoiseServicer):
    """Serves an engine; see `denoise.proto` for what each rpc promises."""

    def __init__(self, engine: DenoiseEngine) -> None:
        """Serves `engine` without owning it."""
        self._engine = engine

    def GetCapabilities(  # noqa: N802 - the name of the rpc
        self, request: pb.GetCapabilitiesRequest, context: grpc.ServicerContext
    ) -> pb.GetCapabilitiesResponse:
        """Tells the model, its defaults and its limits."""
        return denoise_capabilities_to_message(self._engine.get_capabilities())

    def PlanGeneration(  # noqa: N802
        self, request: pb.PlanGenerationRequest, context: grpc.ServicerContext
    ) -> pb.PlanGenerationResponse:
        """Checks parameters and tells what a run with them would be."""
        checked_namespace(request.namespace)
        return plan_to_message(self._engine.plan(params_from_message(request.params)))

    def RunDenoise(  # noqa: N802
        self, request: pb.RunDenoiseRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.RunDenoiseResponse]:
        """Runs one generation and streams what happens."""
        gone = threading.Event()
        # Also called when the rpc's deadline passes.
        if not context.add_callback(gone.set):
            raise Cancelled("the caller went away")
        for event in self._engine.run(request_from_message(request), gone.is_set):
            yield from event_to_messages(event)

    def CompareLatents(  # noqa: N802
        self, request: pb.CompareLatentsRequest, context: grpc.ServicerContext
    ) -> pb.CompareLatentsResponse:
        """Tells how far apart two stored latents are."""
        first = ref_from_message(request.first)
        second = ref_from_message(request.second)
        distance = self._engine.compare_latents(first, second, request.namespace)
        return pb.CompareLatentsResponse(distance=distance)

    def GetStats(  # noqa: N802
        self, request: pb.GetStatsRequest, context: grpc.ServicerContext
    ) -> pb.GetStatsResponse:
        """Counts since the start."""
        checked_namespace(request.namespace)
        return denoise_stats_to_message(self._engine.get_stats())
