"""The orchestrator's gRPC surface: convert, call, convert."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import grpc

from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone.orchestrator.v1 import orchestrator_pb2_grpc
from skipstone_orchestrator.deletions import Deletions
from skipstone_orchestrator.entries import Entries
from skipstone_orchestrator.explainer import Explainer
from skipstone_orchestrator.generation_calls import GenerationCall
from skipstone_orchestrator.outside_engines import LookupCall, OutsideEngines, SaveCall
from skipstone_orchestrator.pipeline import GenerationPipeline
from skipstone_orchestrator.pools import Pools
from skipstone_orchestrator.rate_limits import RateLimits
from skipstone_orchestrator.replica import Replica
from skipstone_orchestrator.wiring import Orchestrator
from skipstone_shared.access import sees_all_namespaces
from skipstone_shared.deletion_messages import (
    deleted_namespace_to_message,
    deleted_prompt_to_message,
    leftovers_to_message,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.explanation_messages import explanation_to_message
from skipstone_shared.generation_messages import frames_from_messages, params_from_message
from skipstone_shared.grpc_aio_server import AsyncMounted
from skipstone_shared.latent_messages import fingerprint_from_message
from skipstone_shared.orchestration_answer_messages import (
    decision_to_message,
    entry_page_to_message,
    entry_to_message,
    orchestrator_capabilities_to_message,
    orchestrator_stats_to_message,
)
from skipstone_shared.orchestration_messages import (
    cache_options_from_message,
    event_to_messages,
)

SERVICE_NAME = "skipstone.orchestrator.v1.Orchestrator"

Context = Any  # grpc.aio.ServicerContext; its type parameters differ per rpc


class OrchestratorServicer(orchestrator_pb2_grpc.OrchestratorServicer):
    """Serves the orchestrator."""

    def __init__(
        self,
        pipeline: GenerationPipeline,
        explainer: Explainer,
        engines: OutsideEngines,
        entries: Entries,
        deletions: Deletions,
        replica: Replica,
        pools: Pools,
        rates: RateLimits,
    ) -> None:
        """Creates the servicer over the domain objects."""
        self._pipeline = pipeline
        self._explainer = explainer
        self._engines = engines
        self._entries = entries
        self._deletions = deletions
        self._replica = replica
        self._pools = pools
        self._rates = rates

    async def Generate(  # noqa: N802 - the rpc's name
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Generates one picture or clip."""
        async with aclosing(self._pipeline.generate(self._call(request))) as events:
            async for event in events:
                for message in event_to_messages(event):
                    yield message

    async def Lookup(  # noqa: N802
        self, request: pb.LookupRequest, context: Context
    ) -> pb.LookupResponse:
        """Decides for an outside engine."""
        self._rates.take(request.namespace)
        decision = await self._engines.look_up(
            LookupCall(
                namespace=self._pools.of(request.namespace),
                prompt=request.prompt,
                fingerprint=fingerprint_from_message(request.fingerprint),
                sigmas=tuple(request.sigmas),
                seed=request.seed if request.HasField("seed") else None,
                options=cache_options_from_message(request.cache),
                explain=request.explain,
            )
        )
        return decision_to_message(decision)

    async def Explain(  # noqa: N802
        self, request: pb.ExplainRequest, context: Context
    ) -> pb.ExplainResponse:
        """Tells what a generation would get, and why."""
        return explanation_to_message(await self._explainer.explain(self._call(request)))

    async def Save(  # noqa: N802
        self, request: pb.SaveRequest, context: Context
    ) -> pb.SaveResponse:
        """Makes an outside engine's entry findable."""
        self._rates.take(request.namespace)
        entry = await self._engines.save(
            SaveCall(
                namespace=self._pools.of(request.namespace),
                entry_id=request.entry_id,
                prompt=request.prompt,
                seed=request.seed,
                fingerprint=fingerprint_from_message(request.fingerprint),
                depth=request.depth,
                frames=frames_from_messages(request.frames),
            )
        )
        return pb.SaveResponse(entry=entry_to_message(entry))

    async def ListEntries(  # noqa: N802
        self, request: pb.ListEntriesRequest, context: Context
    ) -> pb.ListEntriesResponse:
        """One page of entries."""
        page = await self._entries.list_page(
            self._pools.of(request.namespace), request.page_size, request.page_token
        )
        return entry_page_to_message(page)

    async def GetEntry(  # noqa: N802
        self, request: pb.GetEntryRequest, context: Context
    ) -> pb.GetEntryResponse:
        """One entry."""
        entry = await self._entries.get(self._pools.of(request.namespace), request.entry_id)
        return pb.GetEntryResponse(entry=entry_to_message(entry))

    async def DeleteEntries(  # noqa: N802
        self, request: pb.DeleteEntriesRequest, context: Context
    ) -> pb.DeleteEntriesResponse:
        """Removes entries from both stores."""
        existed = await self._entries.delete(self._pools.of(request.namespace), request.entry_ids)
        return _deleted(existed)

    async def DeletePrompt(  # noqa: N802
        self, request: pb.DeletePromptRequest, context: Context
    ) -> pb.DeletePromptResponse:
        """Removes every entry of a prompt."""
        deleted = await self._deletions.delete_prompt(
            self._pools.of(request.namespace), request.prompt, request.prompt_hash
        )
        return deleted_prompt_to_message(deleted)

    async def DeleteNamespace(  # noqa: N802
        self, request: pb.DeleteNamespaceRequest, context: Context
    ) -> pb.DeleteNamespaceResponse:
        """Removes everything of a namespace."""
        return deleted_namespace_to_message(
            await self._deletions.delete_namespace(self._pools.of(request.namespace))
        )

    async def VerifyDeleted(  # noqa: N802
        self, request: pb.VerifyDeletedRequest, context: Context
    ) -> pb.VerifyDeletedResponse:
        """Asks both stores what is left."""
        left = await self._deletions.verify(
            self._pools.of(request.namespace),
            request.entry_ids,
            request.prompt,
            request.prompt_hash,
        )
        return leftovers_to_message(left)

    async def GetStats(  # noqa: N802
        self, request: pb.GetStatsRequest, context: Context
    ) -> pb.GetStatsResponse:
        """Counts of this replica."""
        stats = await self._replica.stats(
            self._pools.of(request.namespace), of_all=sees_all_namespaces()
        )
        return orchestrator_stats_to_message(stats)

    async def GetCapabilities(  # noqa: N802
        self, request: pb.GetCapabilitiesRequest, context: Context
    ) -> pb.GetCapabilitiesResponse:
        """Policy and limits."""
        return orchestrator_capabilities_to_message(await self._replica.capabilities())

    def _call(self, request: pb.GenerateRequest | pb.ExplainRequest) -> GenerationCall:
        self._rates.take(request.namespace)
        if not request.HasField("params"):
            raise InvalidArgument("params is not set", field="params", allowed="set, with a prompt")
        return GenerationCall(
            self._pools.of(request.namespace),
            params_from_message(request.params),
            cache_options_from_message(request.cache),
        )


def _deleted(existed: Sequence[bool]) -> pb.DeleteEntriesResponse:
    response = pb.DeleteEntriesResponse(deleted_count=sum(existed), existed=existed)
    for _ in existed:
        response.statuses.add()  # OK: also what was not there is gone
    return response


def mounted(
    orchestrator: Orchestrator, closers: Sequence[Callable[[], Awaitable[None]]] = ()
) -> AsyncMounted:
    """Starts an orchestrator's background work and returns what a server mounts.

    Args:
        orchestrator: The objects of the replica.
        closers: Awaited after the orchestrator has stopped: the clients it works with.
    """
    servicer = OrchestratorServicer(
        orchestrator.pipeline,
        orchestrator.explainer,
        orchestrator.engines,
        orchestrator.entries,
        orchestrator.deletions,
        orchestrator.replica,
        orchestrator.pools,
        orchestrator.rates,
    )

    def register(server: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(servicer, server)

    orchestrator.start()
    return AsyncMounted(
        register,
        [SERVICE_NAME],
        on_stop=[orchestrator.stop, *closers],
        collectors=orchestrator.collectors(),
    )
