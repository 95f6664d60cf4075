"""Starts the ``latent_kv`` service: settings -> store -> server."""

from __future__ import annotations

import sys

from prometheus_client.registry import Collector

from skipstone_latent_kv.config import LatentKVSettings
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import policy_named
from skipstone_latent_kv.heap import use_few_heaps
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.memory_tier import MemoryTier
from skipstone_latent_kv.metrics_store import MetricsStore
from skipstone_latent_kv.server import mount
from skipstone_latent_kv.store import LatentStore
from skipstone_latent_kv.store_metrics import StoreMetrics
from skipstone_latent_kv.stream_budget import StreamBudget, StreamLimits
from skipstone_latent_kv.sweeper import Sweeper
from skipstone_shared.config import load_settings
from skipstone_shared.grpc_server import Mounted, serve


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


def open_store(settings: LatentKVSettings) -> LmdbStore | MemoryStore:
    """Opens the configured store.

    Raises:
        FailedPrecondition: the data directory cannot be used; the message says why.
    """
    quotas = Quotas(
        settings.quota_bytes,
        settings.namespace_quota_bytes,
        settings.high_water,
        settings.low_water,
    )
    policy = policy_named(settings.eviction_policy, settings.aging_half_life)
    if settings.store == "memory":
        return MemoryStore(
            quotas=quotas,
            policy=policy,
            ttl_s=settings.ttl_s,
            max_snapshot_bytes=settings.max_snapshot_bytes,
            event_history=settings.event_history,
        )
    return LmdbStore(
        settings.data_dir,
        quotas=quotas,
        policy=policy,
        ttl_s=settings.ttl_s,
        max_snapshot_bytes=settings.max_snapshot_bytes,
        event_history=settings.event_history,
        durability=settings.durability,
        codec=settings.codec,
        initial_map_bytes=settings.initial_map_bytes,
        page_check=settings.page_check,
    )


if __name__ == "__main__":
    sys.exit(main())
