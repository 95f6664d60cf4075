"""The contract of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import SkipstoneError


class Encoder(Protocol):
    """Turns texts, pictures or clips into search vectors.

    The vector of an input does not depend on what else is in the call by more than float rounding.
    Methods may be called from any thread.
    """

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        """Embeds inputs.

        Args:
            inputs: Any number up to ``max_batch_size``; of none the result is empty.
            instruction: Put before each input by models that take one, passed over by others.
                Empty: the model's default.

        Returns:
            One per input, in order: float32 of norm 1 and all finite, or the error that says why
            this input has none: InvalidArgument for an input that is empty, too long, undecodable
            or of a kind that the model does not know; Internal when the model's answer is not
            finite. A bad input does not fail its neighbours.

        Raises:
            QueueFull: Too much is waiting.
            DeadlineExceeded: Not computed before the current request's deadline.
            Unavailable: The encoder is closed.
        """
        ...

    def get_capabilities(self) -> EmbeddingCapabilities:
        """Tells the model and the limits; the reranker's fields are unset."""
        ...
