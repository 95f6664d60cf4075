"""Scores of measured pairs from the connected reranker, and the fit of both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

from skipstone_client.calibrate.fit import Bars, Scored, calibration_of
from skipstone_client.calibrate.pairs import Pair, random_pairs
from skipstone_client.calibrate.pictures import DESCRIPTION
from skipstone_client.calibrate.records import Records, Setup
from skipstone_client.calibrate.session import embed_all
from skipstone_client.embedding import EmbeddingClient
from skipstone_shared.calibration import Calibration, Measurement, ServiceIds
from skipstone_shared.embeddings import EmbeddingCapabilities, EmbeddingInput

_RANDOM_PAIRS: Final = 1000


class Scorer:
    """Scores pairs of prompts as the orchestrator's gate would."""

    def __init__(self, embedder: EmbeddingClient) -> None:
        """Asks the service what it has."""
        self._embedder = embedder
        self.capabilities: EmbeddingCapabilities = embedder.get_capabilities()

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """A score for each donor and prompt; the similarity where there is no reranker."""
        if not self.capabilities.reranker_id:
            donors = embed_all(self._embedder, [donor for donor, _ in pairs])
            asked = embed_all(self._embedder, [prompt for _, prompt in pairs])
            return [float(a @ b) for a, b in zip(donors, asked, strict=True)]
        return [self._rerank(donor, prompt) for donor, prompt in pairs]

    def _rerank(self, donor: str, prompt: str) -> float:
        query, candidate = EmbeddingInput(text=prompt), EmbeddingInput(text=donor)
        return self._embedder.rerank(query, [candidate], timeout_s=60.0)[0]


def fitted(
    embedder: EmbeddingClient,
    records: Records,
    setup: Setup,
    bars: Bars,
    by: str,
    checker: str,
    command: str,
) -> tuple[Calibration, list[Scored]]:
    """Scores the records and fits a calibration.

    Raises:
        InvalidArgument: Too little was measured.
    """
    scorer = Scorer(embedder)
    measured = list(records.pairs.values())
    scores = scorer.scores([(record.donor, record.prompt) for record in measured])
    pairs = [Pair(r.donor, r.prompt, r.relation) for r in measured]
    scored = [
        Scored(record, score, pair.is_edit)
        for record, score, pair in zip(measured, scores, pairs, strict=True)
    ]
    chance = scorer.scores(random_pairs(pairs, _RANDOM_PAIRS, setup.seed))
    found = calibration_of(
        records,
        scored,
        chance,
        ServiceIds(
            embedder_id=scorer.capabilities.model_id,
            reranker_id=scorer.capabilities.reranker_id,
            model_hash=setup.model_hash,
        ),
        Measurement(
            by=by,
            at=datetime.now(UTC).date().isoformat(),
            command=command,
            skipstone=version("skipstone"),
            model_name=setup.model_name,
            source=setup.source,
            pairs=len(measured),
            num_inference_steps=setup.num_inference_steps,
            guidance_scale=setup.guidance_scale,
            drift=f"{DESCRIPTION}; full runs have {setup.full_steps} steps",
            wrong=f"where the full run is right, by {checker}" if checker else "",
        ),
        bars,
    )
    return found, scored
