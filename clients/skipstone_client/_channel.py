"""How every client reaches its service: channel options, retries, which calls may be retried."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

KEEPALIVE_S = 20.0
"""Pause between pings; a peer that is silent for KEEPALIVE_TIMEOUT_S after one is taken for dead.
Servers of Skipstone allow a ping every 5 s."""

KEEPALIVE_TIMEOUT_S = 5.0

RECONNECT_BACKOFF_S = (0.05, 0.1)
"""First and longest pause between attempts to connect. gRPC's own 1 to 120 s would keep calls
failing long after a killed service is back."""

MAX_ATTEMPTS = 3
RETRY_BACKOFF_S = (0.02, 0.1)
"""First and longest pause before a retry. Short: a dead cache service may cost a generation little,
and a retry is for another replica or a dropped connection, not for a service that restarts."""

DNS_MIN_INTERVAL_S = 2.0
"""Shortest pause between two look-ups of a name; gRPC's own 30 s hides new replicas."""

_LOOPBACK = ("127.", "localhost:", "[::1]:")


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """What a client knows about the service behind it.

    Attributes:
        name: Short name for errors: ``latent_kv``.
        full_name: Full name of the proto service.
        retried: Rpcs that are tried again when the service is unavailable. All are idempotent, and
            none sends a stream: its data may come from an iterator that can be read only once.
    """

    name: str
    full_name: str
    retried: tuple[str, ...]


EMBEDDING = Service(
    "embedding", "skipstone.embedding.v1.Embedding", ("GetCapabilities", "Embed", "Rerank")
)
VECTOR_INDEX = Service(
    "vector_index",
    "skipstone.vector_index.v1.VectorIndex",
    (
        "GetCapabilities",
        "UpsertEntries",
        "SearchEntries",
        "GetEntry",
        "ListEntries",
        "ListNamespaces",
        "DeleteEntries",
        "DeletePartition",
        "GetStats",
    ),
)
LATENT_KV = Service(
    "latent_kv",
    "skipstone.latent_kv.v1.LatentKV",
    (
        "GetCapabilities",
        "ReadLatent",
        "CommitEntry",
        "RenewLease",
        "GetEntry",
        "ListEntries",
        "PinEntries",
        "DeleteEntries",
        "DeleteNamespace",
        "GetStats",
    ),
)
MIGRATION = Service(
    "migration", "skipstone.migration.v1.Migration", ("GetMissedWrites", "MigrateEntries")
)
DENOISE = Service(
    "denoise", "skipstone.denoise.v1.Denoise", ("GetCapabilities", "PlanGeneration", "GetStats")
)
ORCHESTRATOR = Service(
    "orchestrator",
    "skipstone.orchestrator.v1.Orchestrator",
    (
        "Lookup",
        "Save",
        "ListEntries",
        "GetEntry",
        "DeleteEntries",
        "DeletePrompt",
        "DeleteNamespace",
        "VerifyDeleted",
        "GetStats",
        "GetCapabilities",
    ),
)


def channel_options(target: str, service: Service) -> list[tuple[str, Any]]:
    """The options of a channel, the same for sync and async. Message limits stay at gRPC's 4 MiB.

    Args:
        target: gRPC target. ``dns:///name:port`` spreads calls over all addresses of the name,
            ``ipv4:a:1,b:1`` over those that it lists.
        service: The service behind it.
    """
    return [
        *proxy_options(target),
        ("grpc.service_config", json.dumps(_service_config(target, service))),
        ("grpc.keepalive_time_ms", _ms(KEEPALIVE_S)),
        ("grpc.keepalive_timeout_ms", _ms(KEEPALIVE_TIMEOUT_S)),
        # Without it a ping of keepalive waits for gRPC's own 60 s, whatever the option above says.
        ("grpc.http2.ping_timeout_ms", _ms(KEEPALIVE_TIMEOUT_S)),
        # Long runs send nothing for seconds, and a watch for hours: ping all the same.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", _ms(RECONNECT_BACKOFF_S[0])),
        ("grpc.max_reconnect_backoff_ms", _ms(RECONNECT_BACKOFF_S[1])),
        ("grpc.dns_min_time_between_resolutions_ms", _ms(DNS_MIN_INTERVAL_S)),
    ]


def proxy_options(target: str) -> list[tuple[str, Any]]:
    """Keeps calls to this machine away from an ``http_proxy``; gRPC asks it even for those."""
    return [("grpc.enable_http_proxy", 0)] if is_local(target) else []


def is_local(target: str) -> bool:
    """Whether a target is on this machine."""
    return target.removeprefix("dns:///").startswith(_LOOPBACK)


def _service_config(target: str, service: Service) -> dict[str, Any]:
    config: dict[str, Any] = {
        "methodConfig": [
            {
                "name": [{"service": service.full_name, "method": m} for m in service.retried],
                "retryPolicy": {
                    "maxAttempts": MAX_ATTEMPTS,
                    "initialBackoff": f"{RETRY_BACKOFF_S[0]}s",
                    "maxBackoff": f"{RETRY_BACKOFF_S[1]}s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
    if target.startswith(("dns:", "ipv4:", "ipv6:")):
        config["loadBalancingConfig"] = [{"round_robin": {}}]
    return config


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
