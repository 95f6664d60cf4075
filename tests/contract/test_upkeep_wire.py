"""Upkeep between a real latent_kv and a real vector_index, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import numpy as np
from prometheus_client import CollectorRegistry
from tests.unit.orchestrator.site import in_loop
from tests.unit.orchestrator.upkeep_site import patient_guards

from skipstone_client.aio import AsyncLatentKVClient, AsyncVectorIndexClient
from skipstone_latent_kv.memory_store import MemoryStore
from skipstone_latent_kv.server import mount as mount_store
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.upkeep import Upkeep
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import SnapshotMetadata
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.server import mount as mount_index

KEY = "c0ffee00" * 4
NAMESPACE = "tenant"
PATIENCE_S = 20.0


class Stores:
    """Clients of both services."""

    def __init__(self, store: AsyncLatentKVClient, index: AsyncVectorIndexClient) -> None:
        self.store = store
        self.index = index

    async def save(self, entry_id: str, *, vector: bool = True, latents: bool = True) -> None:
        if latents:
            about = SnapshotMetadata(entry_id, 10, 10, 0.0, KEY, ())
            arrays = {"latents": np.ones((1, 4), np.float32)}
            await self.store.write_arrays(NAMESPACE, about, arrays)
            await self.store.commit_entry(NAMESPACE, entry_id)
        if vector:
            entry = VectorEntry(IndexEntry(entry_id), np.ones(4, np.float32))
            assert await self.index.upsert_entries(NAMESPACE, KEY, [entry]) == [None]

    async def ids(self) -> tuple[list[str], list[str]]:
        stored = (await self.store.list_entries(NAMESPACE)).entries
        found = (await self.index.list_entries(NAMESPACE)).entries
        return sorted(e.entry_id for e in stored), sorted(e.entry_id for e in found)

    async def become(self, *entry_ids: str) -> None:
        """Waits until both have these entries."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.ids() != (list(entry_ids), list(entry_ids)):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served() -> AsyncIterator[Stores]:
    with ExitStack() as stack:
        store_target = stack.enter_context(in_process_server(mount_store(MemoryStore())))
        index_target = stack.enter_context(in_process_server(mount_index(FlatIndex())))
        async with (
            AsyncLatentKVClient(store_target) as store,
            AsyncVectorIndexClient(index_target) as index,
        ):
            yield Stores(store, index)


@in_loop
async def test_both_stores_agree_after_the_first_pass_and_after_every_removal() -> None:
    settings = OrchestratorSettings(reconcile_grace_s=0.0, reconcile_entries_per_s=1e6)
    async with served() as stores:
        for entry_id in ("a", "b", "c"):
            await stores.save(entry_id)
        await stores.save("lost", vector=False)
        await stores.save("stale", latents=False)
        upkeep = Upkeep(settings, stores.index, stores.store, patient_guards())
        tasks = [asyncio.create_task(work) for work in upkeep.work()]
        await stores.become("a", "b", "c")
        await stores.store.delete_entries(NAMESPACE, ["b"])
        await stores.become("a", "c")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    registry = CollectorRegistry()
    for collector in upkeep.collectors():
        registry.register(collector)
    by_reconcile = {"found_by": "reconcile"}
    assert registry.get_sample_value("skipstone_stale_vectors_removed_total", by_reconcile) == 1
    assert registry.get_sample_value("skipstone_unfindable_entries_removed_total") == 1
