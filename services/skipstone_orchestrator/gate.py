"""The gate behind the search: whether a candidate means the same, not only sounds the same.

Cosine similarity only shortlists: swapped colours or places score 0.99. What scores candidates sits
behind this Protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skipstone_orchestrator.prompt_keys import PromptKeys
from skipstone_shared.embeddings import EmbeddingCapabilities, EmbeddingInput, RerankScores
from skipstone_shared.index_entries import SearchHit


class Gate(Protocol):
    """Scores how well candidates fit a prompt.

    `service` names what answers, for fallbacks. An error means that no candidate may be used: a
    gate that fails must never make the decision looser.
    """

    service: str

    def scorer_id(self, told: EmbeddingCapabilities) -> str:
        """Id of whose scores it gives, with the embedding service as it is told; empty: of none."""
        ...

    async def score(
        self, namespace: str, prompt: str, hits: Sequence[SearchHit]
    ) -> Sequence[float] | None:
        """One score per hit, 0 (another meaning) to 1 (the same), in order.

        `RerankScores` say whose they are; others fit no calibration. None: this gate leaves the
        decision to the similarity of the search.
        """
        ...


class SimilarityGate:
    """Leaves the decision to the similarity of the search, as the published table does."""

    service = "embedding"

    def scorer_id(self, told: EmbeddingCapabilities) -> str:
        """Empty, always."""
        return ""

    async def score(
        self, namespace: str, prompt: str, hits: Sequence[SearchHit]
    ) -> Sequence[float] | None:
        """None, always."""
        return None


class Reranker(Protocol):
    """The part of the embedding service that compares texts."""

    async def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], *, namespace: str = ""
    ) -> list[float]:
        """How well each candidate's meaning fits the query, 0 to 1, in order.

        Raises `FailedPrecondition` where no reranker is configured.
        """
        ...


class RerankGate:
    """Asks the reranker of the embedding service.

    A candidate whose prompt is not kept cannot be compared: it fits only the same prompt, which a
    hash of its words tells.
    """

    service = "embedding"

    def __init__(self, reranker: Reranker, prompts: PromptKeys | None = None) -> None:
        """Creates the gate.

        Args:
            reranker: Client of the service; not owned.
            prompts: Tells which entries are of a prompt; None: by hashes without a key.
        """
        self._reranker = reranker
        self._prompts = prompts or PromptKeys()
        self._reranker_id = ""

    def scorer_id(self, told: EmbeddingCapabilities) -> str:
        """The reranker's."""
        return told.reranker_id

    async def score(self, namespace: str, prompt: str, hits: Sequence[SearchHit]) -> RerankScores:
        """The reranker's scores; see `Gate`."""
        same = {i for i, hit in enumerate(hits) if self._is_same(hit, prompt)}
        asked = [i for i, hit in enumerate(hits) if hit.entry.prompt and i not in same]
        scores = [1.0 if i in same else 0.0 for i in range(len(hits))]
        if asked or not self._reranker_id:
            # Who has not told its id is asked even where the hash has told all scores.
            texts = [EmbeddingInput(text=hits[i].entry.prompt) for i in asked]
            query = EmbeddingInput(text=prompt)
            found = await self._reranker.rerank(query, texts or [query], namespace=namespace)
            for i, score in zip(asked, found if asked else (), strict=True):
                scores[i] = score
            if isinstance(found, RerankScores):
                self._reranker_id = found.reranker_id
        return RerankScores(scores, self._reranker_id)

    def _is_same(self, hit: SearchHit, prompt: str) -> bool:
        """Whether a candidate's prompt is the same word by word, which needs no question.

        A sign that says STOP is not one that says stop, so case is the reranker's business.
        """
        kept = hit.entry.prompt
        return kept.split() == prompt.split() if kept else self._prompts.says(hit.entry, prompt)
