"""Dataclasses of ``embeddings`` <-> messages of ``skipstone/embedding/v1``."""

from __future__ import annotations

from skipstone.embedding.v1 import embedding_pb2
from skipstone_shared.embeddings import (
    Embedding,
    EmbeddingCapabilities,
    EmbeddingInput,
    EncodedImage,
)
from skipstone_shared.errors import DataCorrupt, InvalidArgument, SkipstoneError
from skipstone_shared.frame_samples import MAX_FRAMES
from skipstone_shared.grpc_errors import from_status, to_status
from skipstone_shared.optional_fields import new_message
from skipstone_shared.tensor_messages import vector_bytes, vector_from_bytes


def input_to_message(item: EmbeddingInput) -> embedding_pb2.EmbeddingInput:
    """The message of one text, picture or clip."""
    if item.kind == "text":
        return new_message(embedding_pb2.EmbeddingInput, text=item.text)
    images = [
        new_message(embedding_pb2.ImageInput, media_type=frame.media_type, data=frame.data)
        for frame in item.frames
    ]
    if item.kind == "image":
        return embedding_pb2.EmbeddingInput(image=images[0])
    return embedding_pb2.EmbeddingInput(frames=embedding_pb2.FramesInput(frames=images))


def input_from_message(message: embedding_pb2.EmbeddingInput) -> EmbeddingInput:
    """The text, picture or clip of a message.

    Raises:
        InvalidArgument: nothing is set, or the number of frames is out of range.
    """
    kind = message.WhichOneof("content")
    if kind == "text":
        return EmbeddingInput(text=message.text)
    if kind == "image":
        return EmbeddingInput(frames=(_image_from_message(message.image),))
    if kind is None:
        raise InvalidArgument(
            "an input has no content", field="content", allowed="one of text, image, frames"
        )
    frames = message.frames.frames
    if not 1 <= len(frames) <= MAX_FRAMES:
        raise InvalidArgument(
            f"a clip of {len(frames)} frames", field="frames", allowed=f"1 to {MAX_FRAMES}"
        )
    return EmbeddingInput(frames=tuple(_image_from_message(frame) for frame in frames))


def _image_from_message(message: embedding_pb2.ImageInput) -> EncodedImage:
    return EncodedImage(message.media_type, message.data)


def result_to_message(result: Embedding | SkipstoneError) -> embedding_pb2.EmbedResult:
    """The message of one input's vector, or of the reason why it has none."""
    if isinstance(result, SkipstoneError):
        return embedding_pb2.EmbedResult(status=to_status(result))
    return embedding_pb2.EmbedResult(
        vector=embedding_pb2.EmbeddingVector(
            values=vector_bytes(result.vector),
            dimension=len(result.vector),
            num_tokens=result.num_tokens,
            truncated=result.truncated,
        )
    )


def result_from_message(
    message: embedding_pb2.EmbedResult, model_id: str = ""
) -> Embedding | SkipstoneError:
    """One input's vector (read-only) of a model, or the reason why it has none.

    Raises:
        DataCorrupt: the vector has another length than the message says.
    """
    if message.status.code:
        return from_status(message.status)
    vector = vector_from_bytes(message.vector.values)
    if len(vector) != message.vector.dimension:
        raise DataCorrupt(
            f"vector of {len(vector)} elements where the message says {message.vector.dimension}"
        )
    return Embedding(vector, message.vector.num_tokens, message.vector.truncated, model_id)


def embedding_capabilities_to_message(
    capabilities: EmbeddingCapabilities,
) -> embedding_pb2.GetCapabilitiesResponse:
    """The message of the models and limits."""
    return embedding_pb2.GetCapabilitiesResponse(
        model_id=capabilities.model_id,
        dimension=capabilities.dimension,
        input_kinds=capabilities.input_kinds,
        max_batch_size=capabilities.max_batch_size,
        max_tokens=capabilities.max_tokens,
        reranker_id=capabilities.reranker_id,
        max_candidates=capabilities.max_candidates,
    )


def embedding_capabilities_from_message(
    message: embedding_pb2.GetCapabilitiesResponse,
) -> EmbeddingCapabilities:
    """The models and limits of a message."""
    return EmbeddingCapabilities(
        model_id=message.model_id,
        dimension=message.dimension,
        input_kinds=tuple(message.input_kinds),
        max_batch_size=message.max_batch_size,
        max_tokens=message.max_tokens,
        reranker_id=message.reranker_id,
        max_candidates=message.max_candidates,
    )
