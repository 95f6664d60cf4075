"""Starts the ``latent_kv`` service: settings -> store -> server."""

from __future__ import annotations

import sys
from typing import Protocol, TypedDict

from prometheus_client.registry import Collector

from skipstone_latent_kv.config import LatentKVSettings
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import EvictionPolicy, policy_named
from skipstone_latent_kv.heap import use_few_heaps
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.memory_tier import MemoryTier
from skipstone_latent_kv.metrics_store import MetricsStore
from skipstone_latent_kv.server import mount
from skipstone_latent_kv.store import LatentStore
from skipstone_latent_kv.store_metrics import StoreMetrics, TotalledStore
from skipstone_latent_kv.stream_budget import StreamBudget, StreamLimits
from skipstone_latent_kv.sweeper import Sweepable, Sweeper
from skipstone_shared.config import load_settings
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.grpc_server import Mounted, serve


class ServedStore(LatentStore, Sweepable, TotalledStore, Protocol):
    """A store as this service needs it."""


class CommonOptions(TypedDict):
    """What every store is opened with."""

    quotas: Quotas
    policy: EvictionPolicy
    ttl_s: float
    max_snapshot_bytes: int
    event_history: int


def main() -> int:
    """Runs the service until it is told to stop; returns the exit code."""
    settings = load_settings(LatentKVSettings)
    use_few_heaps()
    return serve(settings, lambda: build(settings))


def build(settings: LatentKVSettings) -> Mounted:
    """Opens the configured store and puts a server's parts around it."""
    store = open_store(settings)
    sweeper = Sweeper(store, settings.sweep_interval_s)
    collectors: list[Collector] = [StoreMetrics(store, settings.quota_bytes)]
    served: LatentStore = store
    if settings.memory_tier_bytes:
        tier = MemoryTier(store, settings.memory_tier_bytes)
        collectors += tier.collectors
        served = tier
    measured = MetricsStore(served)
    collectors += measured.collectors
    budget = StreamBudget(
        StreamLimits(
            settings.max_streams,
            settings.stream_bytes,
            settings.stall_timeout_s,
            settings.stream_wait_s,
        )
    )
    collectors += budget.collectors
    watchdog = Sweeper(budget, min(1.0, settings.stall_timeout_s))
    on_stop = [watchdog.stop, sweeper.stop, measured.close]
    return mount(measured, settings.max_watchers, on_stop, collectors, budget)


def open_store(settings: LatentKVSettings) -> ServedStore:
    """Opens the configured store.

    Raises:
        FailedPrecondition: the data directory or Redis cannot be used; the message says why.
        Unavailable: Redis does not answer.
    """
    common = CommonOptions(
        quotas=Quotas(
            settings.quota_bytes,
            settings.namespace_quota_bytes,
            settings.high_water,
            settings.low_water,
        ),
        policy=policy_named(settings.eviction_policy, settings.aging_half_life),
        ttl_s=settings.ttl_s,
        max_snapshot_bytes=settings.max_snapshot_bytes,
        event_history=settings.event_history,
    )
    match settings.store:
        case "memory":
            return MemoryStore(**common)
        case "redis":
            return open_redis_store(settings, common)
        case "lmdb":
            return LmdbStore(
                settings.data_dir,
                durability=settings.durability,
                codec=settings.codec,
                initial_map_bytes=settings.initial_map_bytes,
                page_check=settings.page_check,
                **common,
            )


def open_redis_store(settings: LatentKVSettings, common: CommonOptions) -> ServedStore:
    """Connects to the configured Redis.

    Raises:
        FailedPrecondition: it cannot be used; the message says why.
        Unavailable: it does not answer.
    """
    try:
        # Not with the imports above: who has another store need not have the library.
        from skipstone_latent_kv.redis_connection import RedisAddress
        from skipstone_latent_kv.redis_store import RedisStore
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            f"store redis needs {error.name}: pip install 'skipstone[latent-kv-redis]'"
        ) from error
    address = RedisAddress(
        settings.redis_urls,
        settings.redis_password.get_secret_value(),
        settings.redis_cluster,
        settings.redis_timeout_s,
    )
    return RedisStore(address, settings.redis_prefix, codec=settings.codec, **common)


if __name__ == "__main__":
    sys.exit(main())
