"""A value that no message can hold is a bad argument like any other, before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from skipstone_client.aio.vector_index import AsyncVectorIndexClient
from skipstone_client.embedding import EmbeddingClient
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.orchestrator import OrchestratorClient
from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import LatentRef

NOWHERE = "127.0.0.1:1"
LONE = "\ud800"
VECTOR = np.ones(3, np.float32)


def entry(**fields: object) -> list[VectorEntry]:
    values = {"entry_id": "a" * 32, "prompt": "p", "seed": 1, **fields}
    return [VectorEntry(IndexEntry(**values), VECTOR)]  # type: ignore[arg-type]


CASES: list[tuple[str, Callable[[], object]]] = [
    ("top_k", lambda: index().search_entries("n", "k", [VECTOR], 2**40)),
    ("top_k", lambda: index().search_entries("n", "k", [VECTOR], "five")),  # type: ignore[arg-type]
    ("embedding_model_id", lambda: index().search_entries("n", "k", [VECTOR], 5, None, LONE)),
    ("namespace", lambda: index().get_entry(LONE, "a" * 32)),
    ("prompt", lambda: index().upsert_entries("n", "k", entry(prompt=LONE))),
    ("seed", lambda: index().upsert_entries("n", "k", entry(seed=2**70))),
    ("labels", lambda: index().upsert_entries("n", "k", entry(labels={"a": LONE}))),
    ("namespace", lambda: store().read_latent(LONE, LatentRef("n", "a" * 32, 5))),
    ("entry_ids", lambda: store().delete_entries("n", [LONE])),
    ("text", lambda: EmbeddingClient(NOWHERE).embed_text(LONE)),
    ("entry_id", lambda: OrchestratorClient(NOWHERE).get_entry(LONE)),
]


def index() -> VectorIndexClient:
    return VectorIndexClient(NOWHERE)


def store() -> LatentKVClient:
    return LatentKVClient(NOWHERE)


@pytest.mark.parametrize(("field", "call"), CASES)
def test_the_error_names_the_field(field: str, call: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument, match=field) as caught:
        call()
    assert caught.value.field == field
    assert caught.value.allowed


def test_a_number_that_is_too_large_is_told_how_large_it_may_be() -> None:
    with pytest.raises(InvalidArgument, match=r"seed is .*at most 9223372036854775807"):
        index().upsert_entries("n", "k", entry(seed=2**70))
    with pytest.raises(InvalidArgument, match=r"top_k is -\d+ \(allowed: at least -2147483648"):
        index().search_entries("n", "k", [VECTOR], -(2**40))


def test_the_asynchronous_client_says_the_same() -> None:
    async def search() -> None:
        async with AsyncVectorIndexClient(NOWHERE) as client:
            await client.search_entries("n", "k", [VECTOR], 2**40)

    with pytest.raises(InvalidArgument, match="top_k"):
        asyncio.run(search())
