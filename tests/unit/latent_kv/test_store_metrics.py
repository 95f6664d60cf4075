"""What a store holds and what left it, as Prometheus sees it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.contract.latent_store_cases import LATENT_BYTES, Write
from tests.servers.redis_server import shared_redis

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_latent_kv.store_metrics import StoreMetrics

ROOM_FOR_TWO = Quotas(total_bytes=2 * LATENT_BYTES)
MakeStore = Callable[[Path], MemoryStore | LmdbStore | RedisStore]


def memory(_: Path) -> MemoryStore:
    return MemoryStore(quotas=ROOM_FOR_TWO)


def lmdb(folder: Path) -> LmdbStore:
    return LmdbStore(folder, quotas=ROOM_FOR_TWO)


def redis(folder: Path) -> RedisStore:
    return RedisStore(shared_redis().address, f"test-{uuid.uuid4().hex}", quotas=ROOM_FOR_TWO)


@pytest.mark.parametrize("make", [memory, lmdb, redis])
def test_totals_cover_all_namespaces_and_removals_say_why(make: MakeStore, tmp_path: Path) -> None:
    store = make(tmp_path)
    registry = CollectorRegistry()
    registry.register(StoreMetrics(store, quota_bytes=2 * LATENT_BYTES, label="a-store"))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(
            f"skipstone_latent_kv_{name}", {"store": "a-store", **labels}
        )

    assert value("entries") == 0
    assert value("removals_total", kind="corrupt") == 0
    for namespace in ("one", "two", "three"):
        Write.of("entry").but(namespace=namespace).to(store)
        store.commit_entry(namespace, "entry")
    store.delete_entries("three", ["entry"])

    assert value("entries") == 1
    assert value("stored_bytes") == LATENT_BYTES
    assert value("quota_bytes") == 2 * LATENT_BYTES
    assert value("removals_total", kind="capacity") == 1
    assert value("removals_total", kind="deleted") == 1
    on_disk = value("disk_bytes")
    assert on_disk is not None
    told = {MemoryStore: 0, RedisStore: LATENT_BYTES}
    assert on_disk == told.get(type(store), on_disk)
    assert (on_disk > LATENT_BYTES) is isinstance(store, LmdbStore)
    store.close()
