"""The gate behind the search: whether a candidate means the same, not only sounds the same.

Cosine similarity only shortlists: swapped colours or places score 0.99. What scores candidates sits
behind this Protocol, so that a reranker takes its place without a change elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skipstone_shared.index_entries import SearchHit


class Gate(Protocol):
    """Scores how well candidates fit a prompt.

    `service` names what answers, for fallbacks. An error means that no candidate may be used: a
    gate that fails must never make the decision looser.
    """

    service: str

    async def score(
        self, namespace: str, prompt: str, hits: Sequence[SearchHit]
    ) -> Sequence[float] | None:
        """One score per hit, 0 (another meaning) to 1 (the same), in order.

        None: this gate leaves the decision to the similarity of the search.
        """
        ...


class SimilarityGate:
    """Leaves the decision to the similarity of the search, as the published table does."""

    service = "embedding"

    async def score(
        self, namespace: str, prompt: str, hits: Sequence[SearchHit]
    ) -> Sequence[float] | None:
        """None, always."""
        return None
