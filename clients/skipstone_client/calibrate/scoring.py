"""Scores of measured pairs from the connected reranker, and the fit of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import numpy as np

from skipstone_client.calibrate.fit import Bars, Scored, calibration_of
from skipstone_client.calibrate.pairs import Pair, Vectors, random_pairs
from skipstone_client.calibrate.pictures import DESCRIPTION
from skipstone_client.calibrate.records import Records, Setup
from skipstone_client.embedding import EmbeddingClient
from skipstone_shared.calibration import Calibration, Measurement, ServiceIds
from skipstone_shared.embeddings import EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import SkipstoneError

_RANDOM_PAIRS: Final = 1000
_TOLD: Final = 5
_PATIENCE_S: Final = 60.0


class Scorer:
    """Scores pairs of prompts as the orchestrator's gate would."""

    def __init__(self, embedder: EmbeddingClient) -> None:
        """Asks the service what it has."""
        self._embedder = embedder
        self.capabilities: EmbeddingCapabilities = embedder.get_capabilities()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of texts, in as many calls as the service wants.

        Raises:
            SkipstoneError: A text has no vector.
        """
        size = self.capabilities.max_batch_size
        vectors = []
        for start in range(0, len(texts), size):
            inputs = [EmbeddingInput(text=text) for text in texts[start : start + size]]
            for result in self._embedder.embed(inputs, timeout_s=_PATIENCE_S):
                if isinstance(result, SkipstoneError):
                    raise result
                vectors.append(result.vector)
        return np.stack(vectors)

    def scores(self, pairs: Sequence[Pair]) -> list[float]:
        """A score for each pair; the similarity where there is no reranker."""
        if not pairs:
            return []
        if not self.capabilities.reranker_id:
            donors = self.embed([pair.donor for pair in pairs])
            asked = self.embed([pair.prompt for pair in pairs])
            # Rounding may carry equal prompts past 1.
            return [min(1.0, max(0.0, float(a @ b))) for a, b in zip(donors, asked, strict=True)]
        return [self._rerank(pair) for pair in pairs]

    def above(self, pairs: Sequence[Pair], score: float) -> list[Pair]:
        """The pairs that score at least so much, in order."""
        return [
            pair for pair, found in zip(pairs, self.scores(pairs), strict=True) if found >= score
        ]

    def _rerank(self, pair: Pair) -> float:
        query, candidate = EmbeddingInput(text=pair.prompt), EmbeddingInput(text=pair.donor)
        return self._embedder.rerank(query, [candidate], timeout_s=_PATIENCE_S)[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Fitted:
    """A calibration, and what it was made of.

    Attributes:
        calibration: For the orchestrator.
        scored: The records with their scores.
        unrelated: The pairs put together by chance that score highest, above 0. Where they ask for
            the same, chance was taken for higher than it is.
    """

    calibration: Calibration
    scored: list[Scored]
    unrelated: list[tuple[float, Pair]]


def fitted(
    scorer: Scorer,
    sample: Sequence[Pair],
    records: Records,
    setup: Setup,
    bars: Bars,
    measured: Measurement,
) -> Fitted:
    """Scores the records and fits a calibration.

    Args:
        scorer: Scores.
        sample: All pairs that are known, run or not: what must not be reused is among them.
        records: What was run.
        setup: What is common to it.
        bars: What a tier must keep.
        measured: How it came about.

    Raises:
        InvalidArgument: Too little was measured.
    """
    pairs = [Pair(r.donor, r.prompt, r.relation) for r in records.pairs.values()]
    scored = [
        Scored(record, score)
        for record, score in zip(records.pairs.values(), scorer.scores(pairs), strict=True)
    ]
    known = dict.fromkeys([*sample, *pairs])
    unrelated = random_pairs(list(known), _RANDOM_PAIRS, setup.seed)
    chance = scorer.scores(unrelated)
    found = calibration_of(
        records,
        scored,
        chance,
        scorer.scores([pair for pair in known if pair.is_edit]),
        ServiceIds(
            embedder_id=scorer.capabilities.model_id,
            reranker_id=scorer.capabilities.reranker_id,
            model_hash=setup.model_hash,
        ),
        measured,
        bars,
    )
    highest = sorted(zip(chance, unrelated, strict=True), key=lambda told: -told[0])[:_TOLD]
    return Fitted(found, scored, [told for told in highest if told[0] > 0.0])


def measurement(records: Records, setup: Setup, by: str, command: str, checker: str) -> Measurement:
    """How records came about, for the file."""
    return Measurement(
        by=by,
        at=datetime.now(UTC).date().isoformat(),
        command=command,
        skipstone=version("skipstone"),
        model_name=setup.model_name,
        source=setup.source,
        pairs=len(records.pairs),
        num_inference_steps=setup.num_inference_steps,
        guidance_scale=setup.guidance_scale,
        drift=f"{DESCRIPTION}; full runs have {setup.full_steps} steps",
        wrong=f"where the full run is right, by {checker}" if checker else "",
    )
