"""The contract of a reranker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skipstone_shared.embeddings import EmbeddingInput


class Reranker(Protocol):
    """Scores how well the meaning of candidates fits a query, looking at both together.

    Methods may be called from any thread.
    """

    @property
    def reranker_id(self) -> str:
        """Id, revision or path of the model; scores of different ids are not comparable."""
        ...

    @property
    def max_candidates(self) -> int:
        """Largest number of candidates in one call, at least 1."""
        ...

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        """Scores candidates.

        Args:
            query: What is looked for.
            candidates: What was found, 1 to ``max_candidates``.
            instruction: For models that take one. Empty: the model's default.

        Returns:
            One per candidate, in order: 0 (another meaning) to 1 (the same meaning), finite.

        Raises:
            InvalidArgument: The query or a candidate is empty or of a kind the model does not know.
            QueueFull: Too much is waiting.
            DeadlineExceeded: Not computed before the current request's deadline.
        """
        ...
