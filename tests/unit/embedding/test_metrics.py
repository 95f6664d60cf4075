"""Batches as Prometheus sees them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from skipstone_embedding.metrics import EncoderMetrics
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import SkipstoneError


class OneEncoder:
    """Every vector is 1; an input "poison" breaks it."""

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        if any(item.text == "poison" for item in inputs):
            raise RuntimeError("the model broke")
        return [Embedding(np.ones(1, np.float32)) for _ in inputs]

    def get_capabilities(self) -> EmbeddingCapabilities:
        return EmbeddingCapabilities("one", 1)


def test_batches_and_their_inputs_are_counted_also_those_that_fail() -> None:
    metrics = EncoderMetrics()
    encoder = metrics.measured(OneEncoder())
    registry = CollectorRegistry()
    for collector in metrics.collectors(lambda: 7):
        registry.register(collector)

    assert len(encoder.encode([EmbeddingInput(text="a"), EmbeddingInput(text="b")])) == 2
    with pytest.raises(RuntimeError):
        encoder.encode([EmbeddingInput(text="poison")])

    assert registry.get_sample_value("skipstone_embedding_batch_inputs_count") == 2
    assert registry.get_sample_value("skipstone_embedding_batch_inputs_sum") == 3
    assert registry.get_sample_value("skipstone_embedding_batch_seconds_count") == 2
    assert registry.get_sample_value("skipstone_embedding_queued_inputs") == 7
    assert encoder.get_capabilities().model_id == "one"
