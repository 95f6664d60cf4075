"""Starts the ``latent_kv`` service: settings -> store -> server."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
from skipstone_latent_kv.mirrored_store import MirroredStore
from skipstone_latent_kv.movable_store import MovableStore
from skipstone_latent_kv.server import mount
from skipstone_latent_kv.store import LatentStore
from skipstone_latent_kv.store_metrics import StoreMetrics, TotalledStore
from skipstone_latent_kv.store_mover import StoreMover
from skipstone_latent_kv.stream_budget import StreamBudget, StreamLimits
from skipstone_latent_kv.sweeper import Sweepable, Sweeper
from skipstone_shared.config import load_settings
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.grpc_server import Mounted, serve
from skipstone_shared.migration_server import with_migration
from skipstone_shared.migration_settings import read_target_settings
from skipstone_shared.store_label import store_label
from skipstone_shared.url_secrets import without_login


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
    mirrored = None
    if settings.migrate_to is not None:
        store = mirrored = mirror(store, settings, settings.migrate_to)
    sweeper = Sweeper(store, settings.sweep_interval_s)
    collectors: list[Collector] = [StoreMetrics(store, settings.quota_bytes, label_of(settings))]
    if mirrored is not None:
        collectors += mirrored.collectors
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
    mounted = mount(measured, settings.max_watchers, on_stop, collectors, budget)
    return mounted if mirrored is None else with_migration(mounted, StoreMover(mirrored))


def mirror(source: ServedStore, settings: LatentKVSettings, target_file: Path) -> MirroredStore:
    """Opens the store that entries move to, and puts both together.

    Raises:
        ConfigError: the file cannot be read, or a setting in it is wrong.
        FailedPrecondition: entries cannot move between these; the message says why.
        Unavailable: the store to move to does not answer.
    """
    target_settings = read_target_settings(settings, target_file, place_of)
    return MirroredStore(movable(source), movable(open_store(target_settings)))


def movable(store: ServedStore) -> MovableStore:
    """The store, if entries can move from and to it.

    Raises:
        FailedPrecondition: they cannot.
    """
    if isinstance(store, MovableStore):
        return store
    engine = store.get_capabilities().engine
    raise FailedPrecondition(f"migrate_to: entries cannot move from or to {engine}")


def place_of(settings: LatentKVSettings) -> tuple[object, ...]:
    """Where a store keeps its entries: settings with equal places name the same store."""
    match settings.store:
        case "lmdb":
            return "lmdb", settings.data_dir.resolve()
        case "redis":
            return "redis", sorted(settings.redis_urls), settings.redis_prefix
        case "s3":
            return "s3", settings.s3_endpoint, settings.s3_bucket, settings.s3_prefix
        case _:
            return (settings,)


def label_of(settings: LatentKVSettings) -> str:
    """Name of the store in metrics: the same in all processes that share it, as `place_of` says."""
    match settings.store:
        case "redis":
            urls = sorted(without_login(url) for url in settings.redis_urls)
            return store_label("redis", urls, settings.redis_prefix)
        case "s3":
            return store_label("s3", settings.s3_endpoint, settings.s3_bucket, settings.s3_prefix)
        case own:
            folder = str(settings.data_dir.resolve())
            return store_label(own, socket.gethostname(), folder, settings.port)


def open_store(settings: LatentKVSettings) -> ServedStore:
    """Opens the configured store.

    Raises:
        FailedPrecondition: what it keeps entries in cannot be used; the message says why.
        Unavailable: Redis or S3 does not answer.
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
        case "s3":
            return open_s3_store(settings, common)
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
    with _library_of("redis"):
        from skipstone_latent_kv.redis_connection import RedisAddress
        from skipstone_latent_kv.redis_store import RedisStore
    address = RedisAddress(
        settings.redis_urls,
        settings.redis_password.get_secret_value(),
        settings.redis_cluster,
        settings.redis_timeout_s,
    )
    return RedisStore(address, settings.redis_prefix, codec=settings.codec, **common)


def open_s3_store(settings: LatentKVSettings, common: CommonOptions) -> ServedStore:
    """Opens the configured bucket.

    Raises:
        FailedPrecondition: it cannot be used; the message says why.
        Unavailable: it does not answer.
    """
    with _library_of("s3"):
        from skipstone_latent_kv.s3_connection import S3Address
        from skipstone_latent_kv.s3_store import S3Store
    address = S3Address(
        bucket=settings.s3_bucket,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        path_style=settings.s3_path_style,
        credentials_file=settings.s3_credentials_file,
        timeout_s=settings.s3_timeout_s,
        attempts=settings.s3_attempts,
    )
    return S3Store(address, settings.s3_prefix, codec=settings.codec, **common)


@contextmanager
def _library_of(store: str) -> Iterator[None]:
    """A block that imports a store: who has another one need not have its library."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            f"store {store} needs {error.name}: pip install 'skipstone[latent-kv-{store}]'"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
