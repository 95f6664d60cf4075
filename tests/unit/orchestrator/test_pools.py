"""Namespaces share nothing but what a pool makes common, in answers and in counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.orchestrator.site import Site, in_loop

from skipstone_client.aio import AsyncOrchestratorClient
from skipstone_orchestrator import served_tallies
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_orchestrator.pools import Pools
from skipstone_orchestrator.served_tallies import TalliesByNamespace
from skipstone_orchestrator.server import mounted
from skipstone_shared.access import token_hash
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import EntryNotFound, PermissionDenied
from skipstone_shared.generation import GenerationParams
from skipstone_shared.grpc_aio_server import in_process_async_server
from skipstone_shared.grpc_server import InProcessSettings
from skipstone_shared.orchestration import HitTier

PROMPT = "a red circle on a blue background"
SEED_1 = GenerationParams(PROMPT, seed=1)


@asynccontextmanager
async def served(
    access_file: Path | None = None, **settings: Any
) -> AsyncIterator[tuple[Site, AsyncOrchestratorClient]]:
    site = Site(**settings)
    server = InProcessSettings(access_file=access_file)
    async with in_process_async_server(mounted(site.orchestrator), server) as target:
        site.target = target  # type: ignore[attr-defined]
        async with AsyncOrchestratorClient(target) as client:
            yield site, client


@in_loop
async def test_members_of_a_pool_share_and_others_do_not() -> None:
    async with served(pools={"a": "both", "b": "both"}) as (site, client):
        first = (await client.generate(SEED_1, namespace="a")).provenance
        await site.settle()
        tiers = {}
        for namespace in ("b", "both", "c", ""):
            told = (await client.generate(SEED_1, namespace=namespace)).provenance
            tiers[namespace] = told.tier
            await site.settle()
        miss = HitTier.MISS
        assert tiers == {"b": HitTier.EXACT, "both": HitTier.EXACT, "c": miss, "": miss}
        entry = await client.get_entry(first.saved_entry_id, "b")
        assert {ref.namespace for ref in entry.snapshots} == {"both"}
        assert (await client.delete_prompt(PROMPT, "b")).count == 1
        assert (await client.verify_deleted("a")).is_proof
        with pytest.raises(EntryNotFound):
            await client.get_entry(first.saved_entry_id, "a")


@pytest.mark.parametrize(
    ("pools", "told"),
    [
        ({"a": "b c"}, "is not a name"),
        ({"": "b"}, "is no namespace"),
        ({"a": ""}, "is no namespace"),
        ({"a": "b", "b": "c"}, "b is the pool of a and itself in c"),
    ],
)
def test_pools_that_cannot_be_are_refused(pools: dict[str, str], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        OrchestratorSettings(pools=pools)


def test_a_pool_may_be_named_after_a_member() -> None:
    pools = OrchestratorSettings(pools={"a": "a", "b": "a"}).pools
    assert [Pools(pools).of(name) for name in ("a", "b", "c", "")] == ["a", "a", "c", "default"]


@in_loop
async def test_a_caller_with_some_namespaces_is_told_of_the_one_they_ask_for(
    tmp_path: Path,
) -> None:
    access = tmp_path / "access.toml"
    access.write_text(
        f"[mine]\ntokens = ['{token_hash('mine')}']\nnamespaces = ['mine']\n"
        "rights = ['generate', 'read']\n"
        f"[root]\ntokens = ['{token_hash('root')}']\nnamespaces = ['*']\n"
        "rights = ['generate', 'read']\n"
    )
    async with served(access) as (site, _):
        target: str = site.target  # type: ignore[attr-defined]
        async with (
            AsyncOrchestratorClient(target, credentials=Credentials(token="root")) as root,
            AsyncOrchestratorClient(target, credentials=Credentials(token="mine")) as mine,
        ):
            for seed in range(3):
                await root.generate(GenerationParams(PROMPT, seed=seed), namespace="theirs")
            await mine.generate(SEED_1, namespace="mine")
            await site.settle()
            told, everything = await mine.get_stats("mine"), await root.get_stats("mine")
            with pytest.raises(PermissionDenied):
                await mine.get_stats("theirs")
    assert (told.tiers[HitTier.MISS], told.saved_count, told.executed_steps) == (1, 1, 10)
    assert told.drift is None
    assert {(state.target, state.last_error) for state in told.services} == {("", "")}
    assert (everything.saved_count, told.entry_count, everything.entry_count) == (4, 1, 1)
    assert everything.services[0].target != ""
    assert everything.drift is not None


def test_the_memory_for_namespaces_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who may use any namespace can name a new one with every request."""
    monkeypatch.setattr(served_tallies, "MAX_NAMESPACES", 2)
    counted = TalliesByNamespace()
    for namespace in ("a", "b", "a", "c"):
        for tallies in counted.both(namespace):
            tallies.saved += 1
    assert counted.stats(None).saved_count == 4
    assert [counted.stats(name).saved_count for name in ("a", "b", "c")] == [2, 0, 1]
