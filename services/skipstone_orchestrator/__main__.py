"""Starts the orchestrator: `python -m skipstone_orchestrator`."""

from __future__ import annotations

import secrets
import sys
import time
from importlib.metadata import version

from skipstone_client.aio import (
    AsyncDenoiseClient,
    AsyncEmbeddingClient,
    AsyncLatentKVClient,
    AsyncVectorIndexClient,
)
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.gate import RerankGate, SimilarityGate
from skipstone_orchestrator.prompt_keys import read_prompt_keys
from skipstone_orchestrator.server import mounted
from skipstone_orchestrator.tcp_knock import TcpKnock
from skipstone_orchestrator.wiring import Backends, Orchestrator
from skipstone_shared.config import load_settings
from skipstone_shared.grpc_aio_server import AsyncMounted, serve_async

# Seeds that every language and JSON reader keeps exactly.
_SEED_BITS = 53


def main() -> int:
    """Reads the settings and serves until SIGTERM; returns the exit code."""
    settings = load_settings(OrchestratorSettings)
    return serve_async(settings, lambda: _build(settings))


async def _build(settings: OrchestratorSettings) -> AsyncMounted:
    credentials = settings.credentials()
    prompts = read_prompt_keys(settings.prompt_key_file)
    embedder = AsyncEmbeddingClient(settings.embedding_target, credentials=credentials)
    index = AsyncVectorIndexClient(settings.vector_index_target, credentials=credentials)
    store = AsyncLatentKVClient(settings.latent_kv_target, credentials=credentials)
    denoiser = AsyncDenoiseClient(
        settings.denoise_target, run_timeout_s=settings.run_timeout_s, credentials=credentials
    )
    orchestrator = Orchestrator(
        settings,
        Backends(embedder, index, store, denoiser),
        RerankGate(embedder, prompts) if settings.gate == "rerank" else SimilarityGate(),
        version=version("skipstone"),
        clock=time.monotonic,
        draw_seed=lambda: secrets.randbits(_SEED_BITS),
        draw_index=secrets.randbelow,
        knock=TcpKnock,
    )
    closers = [embedder.close, index.close, store.close, denoiser.close]
    return mounted(orchestrator, closers)


if __name__ == "__main__":
    sys.exit(main())
