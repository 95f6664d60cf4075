"""The default port of every service, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEFAULT_PORTS: Mapping[str, int] = MappingProxyType(
    {
        "orchestrator": 50050,
        "embedding": 50051,
        "vector_index": 50052,
        "latent_kv": 50053,
        "denoise": 50054,
        "gateway": 8080,
    }
)
"""Service name (also the table in a configuration file) to TCP port."""


def default_target(service: str) -> str:
    """Returns where `service` listens when nothing is configured, as `host:port`."""
    return f"127.0.0.1:{DEFAULT_PORTS[service]}"
