"""Two tenants on one deployment learn nothing of each other."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from tests import two_tenants
from tests.servers.postgres import shared_postgres
from tests.servers.redis_server import shared_redis
from tests.two_tenants import Fuzz, Open, Tenant, fuzz

from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.orchestration import CacheOptions
from skipstone_vector_index.engine_index import EngineIndex
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.index import ServedIndex
from skipstone_vector_index.pgvector_engine import PgvectorEngine
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.vector_form import VectorForm


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tens of thousands of lines would be most of the time."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40),
    )
    yield
    structlog.reset_defaults()


LONG = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("lookups", "seed"),
    [(400, 0), *(pytest.param(12_500, seed, marks=LONG) for seed in range(1, 9))],
)
def test_each_is_told_what_it_would_be_told_alone(lookups: int, seed: int, tmp_path: Path) -> None:
    """Answers, errors and counts are compared with those of a deployment without the other."""
    found = asyncio.run(fuzz(lookups, seed, tmp_path))
    assert found.crossings == []
    assert found.lookups == lookups
    assert found.hits > lookups / 10, "few hits would prove little"


def lmdb_and_hnswlib(folder: Path) -> tuple[LatentStore, ServedIndex]:
    store = LmdbStore(folder / "store", initial_map_bytes=1 << 20)
    return store, HnswIndex(RecordLog(folder / "index", 1 << 28, fsync=False))


def redis_and_pgvector(folder: Path) -> tuple[LatentStore, ServedIndex]:
    name = f"t{uuid.uuid4().hex}"
    engine = PgvectorEngine(shared_postgres().url, name)
    return RedisStore(shared_redis().address, prefix=name), EngineIndex(engine, VectorForm())


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backends", [lmdb_and_hnswlib, redis_and_pgvector])
def test_each_is_told_the_same_on_backends_that_keep_partitions_their_own_way(
    backends: Open, tmp_path: Path
) -> None:
    found = asyncio.run(fuzz(1000, 11, tmp_path, backends))
    assert found.crossings == []
    assert found.lookups == 1000
    assert found.hits > 100, "few hits would prove little"


def test_a_crossing_is_noticed(tmp_path: Path) -> None:
    """Two tenants that are put into one namespace see each other, and the fuzz must say so."""

    async def run() -> Fuzz:
        made = Fuzz(seed=1)
        async with (
            two_tenants.deployment(None, "a") as shared,
            two_tenants.deployment(None, "a") as alone_a,
            two_tenants.deployment(None, "a") as alone_b,
        ):
            crossing = {"a": shared["a"], "b": shared["a"]}
            await made.run(100, crossing, {"a": alone_a["a"], "b": alone_b["a"]})
        return made

    found = asyncio.run(run())
    assert len(found.crossings) > 10


def test_an_entry_of_somebody_else_is_noticed() -> None:
    async def run() -> None:
        async with two_tenants.deployment(None, "a") as shared:
            mine = shared["a"]
            await mine.save("e", "red blue green", 1)
            other = Tenant("b", mine._front, mine._store)
            with pytest.raises(AssertionError, match="of somebody else"):
                other._entry(await mine._front.get_entry("e", "a"))
            with pytest.raises(AssertionError, match="of somebody else"):
                other._decision(
                    await mine._front.lookup(
                        "red blue green",
                        two_tenants.PRINT,
                        two_tenants.SIGMAS,
                        2,
                        CacheOptions(),
                        namespace="a",
                    )
                )

    asyncio.run(run())
