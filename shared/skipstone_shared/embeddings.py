"""What an encoder or reranker takes and gives, as plain dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from skipstone_shared.index_entries import Vector


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedImage:
    """One picture, encoded as ``media_type`` (image/png or image/jpeg)."""

    media_type: str
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class EmbeddingInput:
    """One text, or one picture (one frame), or the frames of a clip (2 to 16). Exactly one kind."""

    text: str = ""
    frames: tuple[EncodedImage, ...] = ()

    @property
    def kind(self) -> str:
        """``text``, ``image`` or ``frames``."""
        if not self.frames:
            return "text"
        return "image" if len(self.frames) == 1 else "frames"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """One search vector.

    Attributes:
        vector: float32 ``(dimension,)``, L2 norm 1, all finite.
        num_tokens: Tokens of the input that the model saw; 0 when it does not count.
        truncated: Whether the end of the input was ignored.
        model_id: Model it comes from; vectors of different models are never compared. Empty inside
            an encoder, which is the model.
    """

    vector: Vector
    num_tokens: int = 0
    truncated: bool = False
    model_id: str = ""


class RerankScores(list[float]):
    """Scores of candidates in their order, with the id of the reranker that gave them.

    A score means something only together with its reranker: what is a safe one with one of them is
    chance with another.
    """

    def __init__(self, scores: Iterable[float], reranker_id: str) -> None:
        """Keeps scores and the id, as `EmbeddingCapabilities` has it."""
        super().__init__(scores)
        self.reranker_id = reranker_id


@dataclasses.dataclass(frozen=True, slots=True)
class EmbeddingCapabilities:
    """Models and limits of an embedding service."""

    model_id: str
    dimension: int
    input_kinds: tuple[str, ...] = ("text",)
    max_batch_size: int = 64
    max_tokens: int = 0
    reranker_id: str = ""
    max_candidates: int = 0
