"""Asynchronous twins of the clients, on ``grpc.aio``: the same methods as coroutines.

from skipstone_client.aio import AsyncOrchestratorClient

async with AsyncOrchestratorClient("127.0.0.1:50050") as client:
result = await client.generate("a red circle on a blue background")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipstone_client.aio.denoise import AsyncDenoiseClient
    from skipstone_client.aio.embedding import AsyncEmbeddingClient
    from skipstone_client.aio.latent_kv import AsyncLatentKVClient
    from skipstone_client.aio.orchestrator import AsyncOrchestratorClient
    from skipstone_client.aio.reuse_session import AsyncReuseSession
    from skipstone_client.aio.vector_index import AsyncVectorIndexClient

__all__ = [
    "AsyncDenoiseClient",
    "AsyncEmbeddingClient",
    "AsyncLatentKVClient",
    "AsyncOrchestratorClient",
    "AsyncReuseSession",
    "AsyncVectorIndexClient",
]

_MODULES = {
    "AsyncDenoiseClient": "denoise",
    "AsyncEmbeddingClient": "embedding",
    "AsyncLatentKVClient": "latent_kv",
    "AsyncOrchestratorClient": "orchestrator",
    "AsyncReuseSession": "reuse_session",
    "AsyncVectorIndexClient": "vector_index",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
