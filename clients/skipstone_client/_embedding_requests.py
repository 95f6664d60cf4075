"""What the synchronous and the asynchronous client of embedding share."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.embedding.v1 import embedding_pb2 as pb
from skipstone_shared.embedding_messages import input_to_message, result_from_message
from skipstone_shared.embeddings import Embedding, EmbeddingInput, RerankScores
from skipstone_shared.errors import Internal, SkipstoneError
from skipstone_shared.optional_fields import new_message


def embed_request(
    inputs: Sequence[EmbeddingInput], instruction: str, namespace: str
) -> pb.EmbedRequest:
    """The request that embeds."""
    return new_message(
        pb.EmbedRequest,
        namespace=namespace,
        inputs=[input_to_message(item) for item in inputs],
        instruction=instruction,
    )


def embed_results(response: pb.EmbedResponse, count: int) -> list[Embedding | SkipstoneError]:
    """One result per input.

    Raises:
        Internal: the service answered with another number of results.
    """
    if len(response.results) != count:
        raise Internal(f"embedding gave {len(response.results)} results for {count} inputs")
    return [result_from_message(result, response.model_id) for result in response.results]


def single_result(results: list[Embedding | SkipstoneError]) -> Embedding:
    """The vector of the only input.

    Raises:
        SkipstoneError: why it has none.
    """
    (result,) = results
    if isinstance(result, SkipstoneError):
        raise result
    return result


def rerank_request(
    query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str, namespace: str
) -> pb.RerankRequest:
    """The request that scores candidates."""
    return new_message(
        pb.RerankRequest,
        namespace=namespace,
        query=input_to_message(query),
        candidates=[input_to_message(candidate) for candidate in candidates],
        instruction=instruction,
    )


def rerank_scores(response: pb.RerankResponse, count: int) -> RerankScores:
    """One score per candidate, and whose they are.

    Raises:
        Internal: the service answered with another number of scores.
    """
    if len(response.scores) != count:
        raise Internal(f"embedding gave {len(response.scores)} scores for {count} candidates")
    return RerankScores(response.scores, response.reranker_id)
