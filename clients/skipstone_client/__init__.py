"""Typed clients of Skipstone's services.

Importing the package is cheap: a client is loaded when its name is first used.

    from skipstone_client import OrchestratorClient

    with OrchestratorClient("127.0.0.1:50050") as client:
        result = client.generate("a red circle on a blue background")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipstone_client.denoise import DenoiseClient
    from skipstone_client.embedding import EmbeddingClient
    from skipstone_client.engine_runs import EngineRun
    from skipstone_client.latent_kv import LatentKVClient
    from skipstone_client.orchestrator import OrchestratorClient
    from skipstone_client.reuse_session import ReuseSession
    from skipstone_client.vector_index import VectorIndexClient

__all__ = [
    "DenoiseClient",
    "EmbeddingClient",
    "EngineRun",
    "LatentKVClient",
    "OrchestratorClient",
    "ReuseSession",
    "VectorIndexClient",
]

_MODULES = {
    "DenoiseClient": "denoise",
    "EmbeddingClient": "embedding",
    "EngineRun": "engine_runs",
    "LatentKVClient": "latent_kv",
    "OrchestratorClient": "orchestrator",
    "ReuseSession": "reuse_session",
    "VectorIndexClient": "vector_index",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
