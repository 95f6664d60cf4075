"""Which encoder and reranker decide on donors now, as the embedding service tells it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from skipstone_shared.calibration import ServiceIds
from skipstone_shared.embeddings import EmbeddingCapabilities


class DecidingServices:
    """Knows who decides without a decision: an exact repeat asks neither of the two.

    What a resumed run gave answers repeats only as long as those decide who allowed it, and after a
    restart nobody has decided yet. For one event loop.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[EmbeddingCapabilities]],
        scorer_id: Callable[[EmbeddingCapabilities], str],
    ) -> None:
        """Starts without knowing.

        Args:
            ask: Asks the embedding service.
            scorer_id: Id of what scores candidates, empty where similarity decides.
        """
        self._ask = ask
        self._scorer_id = scorer_id
        self._told: EmbeddingCapabilities | None = None

    async def refresh(self) -> EmbeddingCapabilities:
        """Asks anew. This is the probe of the service: what is known is as old as the last one."""
        self._told = await self._ask()
        return self._told

    def ids(self, model_hash: str) -> ServiceIds | None:
        """Who decides for a model; None when the service was never reached."""
        if self._told is None:
            return None
        return ServiceIds(
            embedder_id=self._told.model_id,
            reranker_id=self._scorer_id(self._told),
            model_hash=model_hash,
        )
