"""Counts of a store's operations, as Prometheus sees them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from tests.contract.latent_store_cases import LATENT_BYTES, Write

from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.metrics_store import MetricsStore
from skipstone_shared.errors import LatentNotFound
from skipstone_shared.latents import LatentRef


def test_operations_are_counted_by_outcome_with_their_bytes_and_times() -> None:
    store = MetricsStore(MemoryStore())
    registry = CollectorRegistry()
    for collector in store.collectors:
        registry.register(collector)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"skipstone_latent_kv_{name}", labels)

    ref = Write.of("entry").to(store)
    store.read_latent("", ref)
    store.read_latent("", ref)
    store.touch_latent("", ref)
    with pytest.raises(LatentNotFound):
        store.read_latent("", LatentRef("", "nothing", 0))
    with pytest.raises(ZeroDivisionError):
        Write.of("entry").but(data=(1 // 0 for _ in range(1))).to(store)

    assert value("operations_total", operation="read_latent", outcome="OK") == 2
    assert value("operations_total", operation="read_latent", outcome="LATENT_NOT_FOUND") == 1
    assert value("operations_total", operation="write_latent", outcome="INTERNAL") == 1
    assert value("operation_seconds_count", operation="read_latent") == 3
    assert value("operations_total", operation="touch_latent", outcome="OK") == 1
    assert value("data_bytes_total", operation="read_latent") == 2 * LATENT_BYTES
    assert value("data_bytes_total", operation="write_latent") == LATENT_BYTES
