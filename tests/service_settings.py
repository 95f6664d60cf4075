"""The settings of all services."""

from __future__ import annotations

from skipstone_denoise.config import DenoiseSettings
from skipstone_embedding.config import EmbeddingSettings
from skipstone_gateway.config import GatewaySettings
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_shared.config import ServiceSettings
from skipstone_vector_index.config import VectorIndexSettings

SETTINGS: list[type[ServiceSettings]] = [
    OrchestratorSettings,
    EmbeddingSettings,
    VectorIndexSettings,
    LatentKVSettings,
    DenoiseSettings,
    GatewaySettings,
]
