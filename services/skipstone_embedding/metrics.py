"""Prometheus metrics of the encoder: batches, and the queue before them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from prometheus_client import Gauge, Histogram
from prometheus_client.registry import Collector

from skipstone_embedding.encoder import Encoder
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import SkipstoneError

_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class EncoderMetrics:
    """Counts of one encoder."""

    def __init__(self) -> None:
        """Starts at nought."""
        self._inputs = Histogram(
            "skipstone_embedding_batch_inputs",
            "Inputs in a batch.",
            buckets=_BATCH_SIZES,
            registry=None,
        )
        self._seconds = Histogram(
            "skipstone_embedding_batch_seconds",
            "Time the model takes for a batch, in seconds.",
            buckets=_BUCKETS_S,
            registry=None,
        )

    def measured(self, encoder: Encoder) -> Encoder:
        """The encoder, counted; every call of it is one batch."""
        return _MeasuredEncoder(encoder, self._count)

    def collectors(self, queue_size: Callable[[], int]) -> list[Collector]:
        """The metrics, to be registered by the server; `queue_size` is asked at every scrape."""
        queued = Gauge(
            "skipstone_embedding_queued_inputs", "Inputs that wait for a batch.", registry=None
        )
        queued.set_function(queue_size)
        return [self._inputs, self._seconds, queued]

    def _count(self, inputs: int, seconds: float) -> None:
        self._inputs.observe(inputs)
        self._seconds.observe(seconds)


class _MeasuredEncoder:
    """An `Encoder` that tells what another one computes."""

    def __init__(self, encoder: Encoder, count: Callable[[int, float], None]) -> None:
        self._encoder = encoder
        self._count = count

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        started = time.perf_counter()
        try:
            return self._encoder.encode(inputs, instruction)
        finally:
            self._count(len(inputs), time.perf_counter() - started)

    def get_capabilities(self) -> EmbeddingCapabilities:
        return self._encoder.get_capabilities()
