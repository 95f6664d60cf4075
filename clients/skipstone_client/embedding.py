"""Client of the embedding service: search vectors and rerank scores."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.embedding.v1 import embedding_pb2 as pb
from skipstone.embedding.v1.embedding_pb2_grpc import EmbeddingStub
from skipstone_client._channel import EMBEDDING
from skipstone_client._embedding_requests import (
    embed_request,
    embed_results,
    rerank_request,
    rerank_scores,
    single_result,
)
from skipstone_client._sync_client import SyncClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.embedding_messages import embedding_capabilities_from_message
from skipstone_shared.embeddings import (
    Embedding,
    EmbeddingCapabilities,
    EmbeddingInput,
    RerankScores,
)
from skipstone_shared.errors import SkipstoneError


class EmbeddingClient(SyncClient[EmbeddingStub]):
    """Encoder and reranker behind gRPC."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 10.0,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target of the service.
            timeout_s: Deadline of a call that gives none of its own, in seconds.
            credentials: Certificates and token; None: none, in plain text.
        """
        super().__init__(target, EMBEDDING, EmbeddingStub, timeout_s, credentials)

    def embed(
        self,
        inputs: Sequence[EmbeddingInput],
        instruction: str = "",
        namespace: str = "",
        *,
        timeout_s: float | None = None,
    ) -> list[Embedding | SkipstoneError]:
        """Embeds inputs.

        Args:
            inputs: 1 to ``max_batch_size`` texts, pictures or clips.
            instruction: Put before the input, for models that take one; empty: the model's own.
            namespace: Tenant or pool, for limits and metrics.
            timeout_s: Deadline of this call, in seconds.

        Returns:
            One per input, in order: its vector, or the error that says why it has none.

        Raises:
            InvalidArgument: no input, or more than the service takes.
            QueueFull: too much waiting work.
        """
        request = embed_request(inputs, instruction, namespace)
        return embed_results(self._call(self._stub.Embed, request, timeout_s), len(inputs))

    def embed_text(
        self,
        text: str,
        instruction: str = "",
        namespace: str = "",
        *,
        timeout_s: float | None = None,
    ) -> Embedding:
        """Embeds one text.

        Raises:
            InvalidArgument: the text is empty or too long.
        """
        inputs = [EmbeddingInput(text=text)]
        return single_result(self.embed(inputs, instruction, namespace, timeout_s=timeout_s))

    def rerank(
        self,
        query: EmbeddingInput,
        candidates: Sequence[EmbeddingInput],
        instruction: str = "",
        namespace: str = "",
        *,
        timeout_s: float | None = None,
    ) -> RerankScores:
        """Scores how well each candidate's meaning fits the query, 0 to 1, in the order given.

        Raises:
            FailedPrecondition: the service has no reranker.
            InvalidArgument: an empty query, no candidate, or more than the service takes.
        """
        request = rerank_request(query, candidates, instruction, namespace)
        response = self._call(self._stub.Rerank, request, timeout_s)
        return rerank_scores(response, len(candidates))

    def get_capabilities(self, *, timeout_s: float | None = None) -> EmbeddingCapabilities:
        """Models and limits."""
        response = self._call(self._stub.GetCapabilities, pb.GetCapabilitiesRequest(), timeout_s)
        return embedding_capabilities_from_message(response)
