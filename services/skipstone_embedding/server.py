"""The gRPC face of an encoder and a reranker. Validate, convert, call, convert."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from prometheus_client.registry import Collector

from skipstone.embedding.v1 import embedding_pb2 as pb
from skipstone.embedding.v1 import embedding_pb2_grpc
from skipstone_embedding.encoder import Encoder
from skipstone_embedding.reranker import Reranker
from skipstone_shared.embedding_messages import (
    embedding_capabilities_to_message,
    input_from_message,
    result_to_message,
)
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import FailedPrecondition, InvalidArgument, SkipstoneError, Unavailable
from skipstone_shared.grpc_server import Mounted
from skipstone_shared.latents import checked_namespace

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Embedding"].full_name

_APART = ("Embed", "Rerank")
"""Rpcs with threads of their own: calls that wait for a model which hangs, here or elsewhere, must
not take those of the other model, nor those that answer for both."""


def mount(
    encoder: Encoder,
    reranker: Reranker | None = None,
    on_stop: Sequence[Callable[[], None]] = (),
    collectors: Sequence[Collector] = (),
    max_workers: int = 16,
) -> Mounted:
    """Returns what the server needs to serve an encoder and, if there is one, a reranker.

    Args:
        encoder: Answers Embed.
        reranker: Answers Rerank; None when there is none.
        on_stop: Called in order when no rpc runs any more.
        collectors: Metrics.
        max_workers: Threads of Embed, and as many of Rerank.
    """
    servicer = EmbeddingServicer(encoder, reranker)
    return Mounted(
        register=lambda server: embedding_pb2_grpc.add_EmbeddingServicer_to_server(
            servicer, server
        ),
        service_names=[SERVICE_NAME],
        on_stop=on_stop,
        collectors=collectors,
        pools={
            f"/{SERVICE_NAME}/{rpc}": ThreadPoolExecutor(max_workers, thread_name_prefix=rpc)
            for rpc in _APART
        },
    )


class EmbeddingServicer(embedding_pb2_grpc.EmbeddingServicer):
    """Answers rpcs. Errors leave as exceptions; the interceptor encodes them."""

    def __init__(self, encoder: Encoder, reranker: Reranker | None) -> None:
        """Creates the servicer.

        Args:
            encoder: Answers Embed; not owned.
            reranker: Answers Rerank; None when none is configured.
        """
        self._encoder = encoder
        self._reranker = reranker

    def GetCapabilities(  # noqa: D102, N802 - the proto is the manual
        self, request: pb.GetCapabilitiesRequest, context: grpc.ServicerContext
    ) -> pb.GetCapabilitiesResponse:
        return embedding_capabilities_to_message(self._capabilities())

    def Embed(  # noqa: D102, N802
        self, request: pb.EmbedRequest, context: grpc.ServicerContext
    ) -> pb.EmbedResponse:
        checked_namespace(request.namespace)
        capabilities = self._capabilities()
        _check_count("inputs", len(request.inputs), capabilities.max_batch_size)
        items = [_attempt(message) for message in request.inputs]
        inputs = [item for item in items if isinstance(item, EmbeddingInput)]
        embedded = iter(self._encoder.encode(inputs, request.instruction))
        if self._capabilities().model_id != capabilities.model_id:
            raise Unavailable("the encoder's model has changed meanwhile; ask again")
        results: list[Embedding | SkipstoneError] = [
            item if isinstance(item, SkipstoneError) else next(embedded) for item in items
        ]
        return pb.EmbedResponse(
            results=map(result_to_message, results), model_id=capabilities.model_id
        )

    def Rerank(  # noqa: D102, N802
        self, request: pb.RerankRequest, context: grpc.ServicerContext
    ) -> pb.RerankResponse:
        checked_namespace(request.namespace)
        if self._reranker is None:
            raise FailedPrecondition(
                "no reranker is configured; treat it as no approximate hit, or ask a service that "
                "names one in its capabilities"
            )
        reranker_id = self._reranker.reranker_id
        _check_count("candidates", len(request.candidates), self._reranker.max_candidates)
        scores = self._reranker.rerank(
            input_from_message(request.query),
            [input_from_message(message) for message in request.candidates],
            request.instruction,
        )
        if self._reranker.reranker_id != reranker_id:
            raise Unavailable("the reranker's model has changed meanwhile; ask again")
        return pb.RerankResponse(scores=scores, reranker_id=reranker_id)

    def _capabilities(self) -> EmbeddingCapabilities:
        capabilities = self._encoder.get_capabilities()
        if self._reranker is None:
            return capabilities
        return dataclasses.replace(
            capabilities,
            reranker_id=self._reranker.reranker_id,
            max_candidates=self._reranker.max_candidates,
        )


def _attempt(message: pb.EmbeddingInput) -> EmbeddingInput | SkipstoneError:
    """Returns the input of a message, or why it is none."""
    try:
        return input_from_message(message)
    except InvalidArgument as error:
        return error


def _check_count(field: str, count: int, limit: int) -> None:
    if not 1 <= count <= limit:
        raise InvalidArgument(f"{field} has {count} items", field=field, allowed=f"1 to {limit}")
