"""Starts the embedding service: settings -> objects -> serve."""

from __future__ import annotations

import sys
from collections.abc import Callable

from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_encoder, load_reranker
from skipstone_embedding.metrics import EncoderMetrics
from skipstone_embedding.server import mount
from skipstone_shared.config import load_settings
from skipstone_shared.grpc_server import Mounted, serve


def build(settings: EmbeddingSettings) -> Mounted:
    """Loads the models of the settings, or connects to them.

    Raises:
        FailedPrecondition: A model, the device or a remote service cannot be used.
        Unavailable: A remote service cannot be reached.
    """
    connections: list[Callable[[], None]] = []
    reranker = load_reranker(settings, connections.append)
    metrics = EncoderMetrics()
    encoder = load_encoder(settings, metrics, connections.append)
    return mount(
        encoder,
        reranker,
        on_stop=[encoder.close, *connections],
        collectors=metrics.collectors(lambda: encoder.queue_size),
        max_workers=settings.max_workers,
    )


def main() -> int:
    """Runs the service until SIGTERM."""
    settings = load_settings(EmbeddingSettings)
    return serve(settings, lambda: build(settings))


if __name__ == "__main__":
    sys.exit(main())
