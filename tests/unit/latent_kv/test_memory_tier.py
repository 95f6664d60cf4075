"""The memory tier: what is read again costs the store no bytes, and nothing stale is served."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry
from tests.contract.latent_store_cases import LATENT_BYTES, Clock, Write, latents, list_ids, save

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.forwarding_store import ForwardingStore
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.memory_tier import MemoryTier
from skipstone_shared.errors import FingerprintMismatch, LatentNotFound
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import Snapshot


class CountingStore(ForwardingStore):
    """Counts the reads that move bytes."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.reads = 0
        self.after_read: Callable[[], None] = lambda: None

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        self.reads += 1
        snapshot = super().read_latent(namespace, ref)
        self.after_read()
        return snapshot


@dataclasses.dataclass
class Rig:
    tier: MemoryTier
    store: CountingStore
    clock: Clock


def rig(capacity: int = 4 * LATENT_BYTES, quota: int = 0, ttl_s: float = 0.0) -> Rig:
    clock = Clock()
    store = CountingStore(MemoryStore(quotas=Quotas(quota), ttl_s=ttl_s, clock=clock))
    return Rig(MemoryTier(store, capacity), store, clock)


def held_bytes(tier: MemoryTier) -> float | None:
    registry = CollectorRegistry()
    for collector in tier.collectors:
        registry.register(collector)
    return registry.get_sample_value("skipstone_latent_kv_memory_tier_bytes")


def test_what_is_read_again_comes_from_memory() -> None:
    r = rig()
    write = Write.of("entry")
    ref = write.to(r.tier)
    for _ in range(3):
        assert bytes(r.tier.read_latent("", ref).data) == write.all_bytes
    assert r.store.reads == 1


@pytest.mark.parametrize("goes", ["deleted", "emptied", "expired", "evicted"])
def test_what_the_store_no_longer_has_is_not_served(goes: str) -> None:
    """Also when it went behind the tier's back."""
    r = rig(quota=LATENT_BYTES, ttl_s=100.0)
    ref = save(r.tier, "entry")
    r.tier.read_latent("", ref)
    {
        "deleted": lambda: r.store.delete_entries("", ["entry"]),
        "emptied": lambda: r.store.delete_namespace(""),
        "expired": lambda: r.clock.advance(100.0),
        "evicted": lambda: save(r.store, "another"),
    }[goes]()
    with pytest.raises(LatentNotFound):
        r.tier.read_latent("", ref)
    assert held_bytes(r.tier) == 0


def test_what_was_overwritten_behind_its_back_is_read_anew() -> None:
    r = rig()
    old = save(r.tier, "entry")
    r.tier.read_latent("", old)
    write = Write.of("entry", latents(7))
    write.to(r.store)
    bare = LatentRef("", "entry", 5)
    assert bytes(r.tier.read_latent("", bare).data) == write.all_bytes
    with pytest.raises(FingerprintMismatch):
        r.tier.read_latent("", old)
    assert bytes(r.tier.read_latent("", bare).data) == write.all_bytes


def test_a_removal_in_the_middle_of_a_read_leaves_nothing_to_serve_later() -> None:
    r = rig()
    ref = save(r.tier, "entry")

    def delete() -> None:
        r.tier.delete_entries("", ["entry"])

    r.store.after_read = delete
    r.tier.read_latent("", ref)
    with pytest.raises(LatentNotFound):
        r.tier.read_latent("", ref)


def test_reads_from_memory_protect_from_eviction() -> None:
    r = rig(quota=2 * LATENT_BYTES)
    refs = [save(r.tier, entry_id) for entry_id in "ab"]
    r.tier.read_latent("", refs[0])
    r.tier.read_latent("", refs[1])
    r.tier.read_latent("", refs[0])
    save(r.tier, "c")
    assert list_ids(r.tier) == ["a", "c"]


def test_the_bytes_held_stay_within_the_bound_and_the_last_used_stay() -> None:
    r = rig(capacity=3 * LATENT_BYTES)
    refs = [save(r.tier, entry_id) for entry_id in "abcd"]
    for ref in (*refs[:3], refs[0], refs[3]):
        r.tier.read_latent("", ref)
        assert (held_bytes(r.tier) or 0) <= 3 * LATENT_BYTES
    assert r.store.reads == 4
    r.tier.read_latent("", refs[0])
    assert r.store.reads == 4
    r.tier.read_latent("", refs[1])
    assert r.store.reads == 5


def test_a_snapshot_above_the_bound_is_passed_through() -> None:
    r = rig(capacity=LATENT_BYTES)
    small = save(r.tier, "small")
    large = save(r.tier, "large", latents(size_bytes=2 * LATENT_BYTES))
    r.tier.read_latent("", small)
    for _ in range(2):
        assert len(r.tier.read_latent("", large).data) == 2 * LATENT_BYTES
    assert r.store.reads == 3
    assert held_bytes(r.tier) == LATENT_BYTES


def test_readers_cannot_change_what_others_read() -> None:
    r = rig()
    ref = save(r.tier, "entry")
    for _ in range(2):
        data = r.tier.read_latent("", ref).data
        with pytest.raises(TypeError):
            data[0] = 1  # type: ignore[index]


def test_the_bound_holds_under_concurrent_readers_and_writers() -> None:
    r = rig(capacity=5 * LATENT_BYTES)
    writes = [Write.of("entry", latents(seed)) for seed in range(3)]
    whole = {write.xxh3_64: write.all_bytes for write in writes}
    others = [save(r.tier, f"e{number}") for number in range(8)]
    writes[0].to(r.tier)
    start = threading.Barrier(6)

    def read() -> None:
        start.wait()
        for number in range(100):
            snapshot = r.tier.read_latent("", LatentRef("", "entry", 5))
            assert bytes(snapshot.data) == whole[snapshot.ref.xxh3_64]
            r.tier.read_latent("", others[number % 8])

    def write(mine: Write) -> None:
        start.wait()
        for _ in range(50):
            mine.to(r.tier)

    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(read) for _ in range(3)]
        running += [pool.submit(write, w) for w in writes]
        for future in running:
            future.result()
    assert 0 < (held_bytes(r.tier) or 0) <= 5 * LATENT_BYTES
    final = r.store.read_latent("", LatentRef("", "entry", 5))
    assert bytes(r.tier.read_latent("", LatentRef("", "entry", 5)).data) == bytes(final.data)
