"""What rerankers take and give, whatever the model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from skipstone_embedding.input_rules import checked_text
from skipstone_embedding.model_files import ModelFiles
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import FailedPrecondition, Internal


@dataclasses.dataclass(frozen=True, slots=True)
class RerankerOptions:
    """How a reranker is loaded and used.

    Attributes:
        device: Torch device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        dtype: Element type of the weights.
        instruction: Instruction of calls that give none, for models that take one; empty: its own.
        attention: Attention implementation of transformers; ``auto`` leaves it to the model.
        max_frames: Frames of a clip that a model which sees looks at.
        max_image_pixels: Pixels of a picture for it at most, after scaling; 0: its own.
    """

    device: str = "cpu"
    dtype: str = "float32"
    instruction: str = ""
    attention: str = "auto"
    max_frames: int = 16
    max_image_pixels: int = 0


@contextmanager
def usable(files: ModelFiles, what: str = "reranker") -> Iterator[None]:
    """A block that loads and tries a model; whatever goes wrong in it, the model cannot be used.

    Args:
        files: The model.
        what: What it is, for errors.

    Raises:
        FailedPrecondition: Something did.
    """
    try:
        yield
    except FailedPrecondition:
        raise
    except Exception as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FailedPrecondition(
            f"{what} {files.name} in {files.directory} cannot be loaded: {first_line}"
        ) from error


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
