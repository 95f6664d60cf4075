"""What rerankers of texts take and give, whatever the model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from skipstone_embedding.input_rules import checked_text
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import Internal


@dataclasses.dataclass(frozen=True, slots=True)
class RerankerOptions:
    """How a reranker is loaded and used.

    Attributes:
        device: Torch device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        dtype: Element type of the weights.
        instruction: Instruction of calls that give none, for models that take one; empty: its own.
    """

    device: str = "cpu"
    dtype: str = "float32"
    instruction: str = ""


def checked_pair(
    query: EmbeddingInput, candidates: Sequence[EmbeddingInput]
) -> tuple[str, list[str]]:
    """Returns the texts of a query and its candidates.

    Raises:
        InvalidArgument: One of them is no text, empty or too long.
    """
    return checked_text(query), [checked_text(candidate) for candidate in candidates]


def checked_scores(scores: list[float]) -> list[float]:
    """Returns the scores when all are numbers.

    Raises:
        Internal: One is not; a score that is none must never pass for one.
    """
    if not all(map(math.isfinite, scores)):
        raise Internal("the reranker gave a score that is not finite")
    return scores
