"""The page's list of entries does not depend on the store that knows which are pinned."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from skipstone_gateway import cache_api
from skipstone_gateway.artifact_shelf import ArtifactShelf
from skipstone_gateway.cache_api import CacheApi
from skipstone_gateway.upstream import Upstream
from skipstone_shared.errors import EntryNotFound, Unavailable
from skipstone_shared.latents import LatentRef
from skipstone_shared.orchestration import Entry, EntryPage
from skipstone_shared.stored_entries import StoredEntry


class Orchestrator:
    """Has entries whose latents are in the pool `both`."""

    def __init__(self, count: int) -> None:
        ids = [f"e{number}" for number in range(count)]
        self._entries = [Entry(i, "a fox", 1, "", (LatentRef("both", i, 4),)) for i in ids]

    async def list_entries(self, *_: object, **__: object) -> EntryPage:
        return EntryPage(tuple(self._entries))


class Store:
    """Knows pins; hangs or fails where it is told to."""

    def __init__(self, trouble: Exception | None = None, *, hangs: bool = False) -> None:
        self.trouble, self.hangs = trouble, hangs
        self.asked: list[tuple[str, str]] = []

    async def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        self.asked.append((namespace, entry_id))
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        if entry_id == "e1":
            raise EntryNotFound("gone")
        return StoredEntry(entry_id, (), 0.0, 0.0, pinned=entry_id == "e0")


def pins(store: Store, count: int = 3) -> list[bool | None]:
    async def run() -> list[bool | None]:
        app = FastAPI()
        upstream = Upstream(cast(Any, Orchestrator(count)), cast(Any, store))
        app.include_router(CacheApi(upstream, ArtifactShelf(1, 1.0, lambda: 0.0)).router())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            told = (await http.get("/api/entries", params={"namespace": "a"})).json()
        return [entry["pinned"] for entry in told["entries"]]

    return asyncio.run(run())


def test_pins_are_those_of_the_namespace_that_the_entries_are_in() -> None:
    store = Store()
    assert pins(store) == [True, None, False]
    assert {namespace for namespace, _ in store.asked} == {"both"}


def test_a_store_that_is_away_or_hangs_costs_the_pins_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache_api, "_PINS_WAIT_S", 0.05)
    away = Store(Unavailable("gone"))
    assert pins(away, 100) == [None] * 100
    assert len(away.asked) < 100
    assert pins(Store(hangs=True), 100) == [None] * 100


def test_of_the_large_pages_of_a_search_nobody_is_asked() -> None:
    store = Store()
    assert pins(store, 101) == [None] * 101
    assert store.asked == []
