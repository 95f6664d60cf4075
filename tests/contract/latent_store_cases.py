"""Snapshots to write, and the stores that the latent store contract is tested on."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from tests.servers.redis_server import (
    shared_cluster,
    shared_redis,
    shared_valkey,
    shared_valkey_cluster,
)
from tests.servers.seaweedfs import shared_seaweedfs

from skipstone_client.latent_kv import LatentKVClient
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import EvictionPolicy, LeastRecentlyUsed
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.memory_tier import MemoryTier
from skipstone_latent_kv.metrics_store import MetricsStore
from skipstone_latent_kv.mirrored_store import MirroredStore
from skipstone_latent_kv.redis_connection import RedisAddress
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_latent_kv.s3_store import S3Store
from skipstone_latent_kv.server import mount
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.latents import LatentRef, SnapshotMetadata, checksum
from skipstone_shared.stored_entries import StoredEntry
from skipstone_shared.tensor_messages import Array, array_bytes, parts_of

KEY = "c0ffee00" * 4
LATENT_BYTES = 1024
MAX_SNAPSHOT_BYTES = 1 << 22


class Clock:
    """A clock that stands until it is told to move."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclasses.dataclass(frozen=True)
class Options:
    """What a test wants of a store."""

    quotas: Quotas = dataclasses.field(default_factory=Quotas)
    policy: EvictionPolicy = dataclasses.field(default_factory=LeastRecentlyUsed)
    ttl_s: float = 0.0
    event_history: int = 1000


@dataclasses.dataclass(frozen=True)
class Opened:
    """A store under test and what else belongs to it."""

    store: LatentStore
    sweep: Callable[[], int]


Open = Callable[[Path, ExitStack, Clock, Options], Opened]


def _common(clock: Clock, options: Options) -> dict[str, Any]:
    return {
        "quotas": options.quotas,
        "policy": options.policy,
        "ttl_s": options.ttl_s,
        "max_snapshot_bytes": MAX_SNAPSHOT_BYTES,
        "event_history": options.event_history,
        "clock": clock,
    }


def open_memory(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    store = MemoryStore(**_common(clock, options))
    stack.callback(store.close)
    return Opened(store, store.sweep)


def open_lmdb(path: Path, stack: ExitStack, clock: Clock, options: Options, **more: Any) -> Opened:
    store = LmdbStore(path / "lmdb", initial_map_bytes=1 << 20, **_common(clock, options), **more)
    stack.callback(store.close)
    return Opened(store, store.sweep)


def open_lmdb_unsynced(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    return open_lmdb(path, stack, clock, options, durability="none")


def open_measured(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    inner = open_memory(path, stack, clock, options)
    return Opened(MetricsStore(inner.store), inner.sweep)


def open_client(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    inner = open_lmdb(path, stack, clock, options)
    target = stack.enter_context(in_process_server(mount(inner.store)))
    return Opened(stack.enter_context(LatentKVClient(target)), inner.sweep)


def open_tiered(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    inner = open_lmdb(path, stack, clock, options)
    return Opened(MemoryTier(inner.store, 1 << 20), inner.sweep)


def open_tiered_remote(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    inner = open_memory(path, stack, clock, options)
    target = stack.enter_context(in_process_server(mount(inner.store)))
    client = stack.enter_context(LatentKVClient(target))
    return Opened(MemoryTier(client, 1 << 20), inner.sweep)


def open_redis_at(
    address: RedisAddress, stack: ExitStack, clock: Clock, options: Options, **more: Any
) -> Opened:
    prefix = f"test-{uuid.uuid4().hex}"
    store = RedisStore(address, prefix=prefix, **_common(clock, options), **more)
    stack.callback(store.close)
    return Opened(store, store.sweep)


def open_mirrored(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    """While its entries move to another store; both are swept."""
    source = LmdbStore(path / "source", initial_map_bytes=1 << 20, **_common(clock, options))
    target = MemoryStore(**_common(clock, options))
    store = MirroredStore(source, target)
    stack.callback(store.close)
    return Opened(store, store.sweep)


def open_redis(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    return open_redis_at(shared_redis().address, stack, clock, options)


def open_redis_cluster(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    return open_redis_at(shared_cluster().address, stack, clock, options)


def open_valkey(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    return open_redis_at(shared_valkey().address, stack, clock, options)


def open_valkey_cluster(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    return open_redis_at(shared_valkey_cluster().address, stack, clock, options)


def open_tiered_redis(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    inner = open_redis(path, stack, clock, options)
    return Opened(MemoryTier(inner.store, 1 << 20), inner.sweep)


def open_tiered_redis_cluster(
    path: Path, stack: ExitStack, clock: Clock, options: Options
) -> Opened:
    inner = open_redis_cluster(path, stack, clock, options)
    return Opened(MemoryTier(inner.store, 1 << 20), inner.sweep)


def open_s3(path: Path, stack: ExitStack, clock: Clock, options: Options, **more: Any) -> Opened:
    store = S3Store(
        shared_seaweedfs().address,
        prefix=f"test-{uuid.uuid4().hex}",
        quotas=options.quotas,
        policy=options.policy,
        ttl_s=options.ttl_s,
        max_snapshot_bytes=MAX_SNAPSHOT_BYTES,
        event_history=options.event_history,
        clock=clock,
        **more,
    )
    stack.callback(store.close)
    return Opened(store, store.sweep)


def open_s3_tiered_remote(path: Path, stack: ExitStack, clock: Clock, options: Options) -> Opened:
    inner = open_s3(path, stack, clock, options)
    target = stack.enter_context(in_process_server(mount(MemoryTier(inner.store, 1 << 20))))
    return Opened(stack.enter_context(LatentKVClient(target)), inner.sweep)


IMPLEMENTATIONS: list[Open] = [
    open_memory,
    open_lmdb,
    open_lmdb_unsynced,
    open_measured,
    open_client,
    open_tiered,
    open_tiered_remote,
    open_mirrored,
    open_redis,
    open_redis_cluster,
    open_valkey,
    open_tiered_redis,
    open_s3,
]

LONG_IMPLEMENTATIONS: list[Open] = [
    open_valkey_cluster,
    open_tiered_redis_cluster,
    open_s3_tiered_remote,
]
"""Combinations of those above, and what would take the tests of every change long."""


def latents(seed: int = 0, size_bytes: int = LATENT_BYTES) -> Array:
    """Distinct finite latents of float16."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((1, size_bytes // 2), np.float32).astype(np.float16)


def metadata(entry_id: str, arrays: Mapping[str, Array], step_index: int = 5) -> SnapshotMetadata:
    return SnapshotMetadata(
        entry_id=entry_id,
        step_index=step_index,
        num_inference_steps=20,
        sigma=0.7310585786300049,
        compatibility_key=KEY,
        parts=parts_of(arrays),
    )


@dataclasses.dataclass(frozen=True)
class Write:
    """A write in the making; tests spoil one argument of it."""

    metadata: SnapshotMetadata
    data: Iterable[bytes | memoryview]
    size_bytes: int
    xxh3_64: int
    lease_s: float | None = None
    namespace: str = ""

    @classmethod
    def of(
        cls,
        entry_id: str,
        arrays: Mapping[str, Array] | Array | None = None,
        step_index: int = 5,
        **fields: Any,
    ) -> Write:
        if arrays is None:
            arrays = latents()
        if not isinstance(arrays, Mapping):
            arrays = {"latents": arrays}
        buffers = [array_bytes(array) for array in arrays.values()]
        return cls(
            metadata=metadata(entry_id, arrays, step_index),
            data=buffers,
            size_bytes=sum(len(buffer) for buffer in buffers),
            xxh3_64=checksum(*buffers),
            **fields,
        )

    def but(self, **fields: Any) -> Write:
        return dataclasses.replace(self, **fields)

    def to(self, store: LatentStore) -> LatentRef:
        return store.write_latent(
            self.namespace,
            self.metadata,
            self.data,
            size_bytes=self.size_bytes,
            xxh3_64=self.xxh3_64,
            lease_s=self.lease_s,
        )

    @property
    def all_bytes(self) -> bytes:
        return b"".join(bytes(buffer) for buffer in self.data)


def save(
    store: LatentStore,
    entry_id: str,
    arrays: Mapping[str, Array] | Array | None = None,
    namespace: str = "",
) -> LatentRef:
    """Writes one snapshot and commits its entry."""
    ref = Write.of(entry_id, arrays, namespace=namespace).to(store)
    store.commit_entry(namespace, entry_id)
    return ref


def list_ids(store: LatentStore, namespace: str = "") -> list[str]:
    return [entry.entry_id for entry in list_all(store, namespace)]


def list_all(store: LatentStore, namespace: str = "", page_size: int = 100) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    token = ""
    while True:
        page = store.list_entries(namespace, page_size, token)
        found += page.entries
        token = page.next_page_token
        if not token:
            return found
