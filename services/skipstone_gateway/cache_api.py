"""`/api`: what the web page shows of the cache, and does to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from skipstone_client.json_values import plain
from skipstone_gateway.artifact_shelf import ArtifactShelf
from skipstone_gateway.links import artifact_answer
from skipstone_gateway.requests import ExplainRequest
from skipstone_gateway.upstream import Upstream
from skipstone_shared.errors import EntryNotFound, SkipstoneError
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import Entry
from skipstone_shared.structured_logging import get_logger

_ASKED_AT_ONCE = 16
"""Entries of a page about which latent_kv is asked at a time."""

_ASKED_OF_A_PAGE = 100
"""Of a larger page, as a search has it, nobody is asked: they would be thousands of calls."""

_PINS_WAIT_S = 1.0


class CacheApi:
    """Lists, explains, pins and removes entries; every call has the rights of its caller."""

    def __init__(self, upstream: Upstream, shelf: ArtifactShelf) -> None:
        """Creates it.

        Args:
            upstream: Who knows the entries and pins them.
            shelf: Has pictures of those that were made here lately.
        """
        self._upstream = upstream
        self._shelf = shelf

    def router(self) -> APIRouter:
        """Its routes."""
        router = APIRouter(prefix="/api")
        router.add_api_route("/stats", self.stats, methods=["GET"])
        router.add_api_route("/explain", self.explain, methods=["POST"])
        router.add_api_route("/entries", self.entries, methods=["GET"])
        router.add_api_route("/entries/{entry_id}", self.entry, methods=["GET"])
        router.add_api_route("/entries/{entry_id}", self.remove, methods=["DELETE"])
        router.add_api_route("/entries/{entry_id}/picture", self.picture, methods=["GET"])
        router.add_api_route("/entries/{entry_id}/pin", self.pin, methods=["PUT"])
        router.add_api_route("/entries/{entry_id}/pin", self.unpin, methods=["DELETE"])
        return router

    async def stats(self, request: Request, namespace: str = "") -> dict[str, Any]:
        """Counts of the replica that answers, and of a namespace."""
        client = self._upstream.orchestrator(request)
        capabilities = await client.get_capabilities()
        told: dict[str, Any] = plain(await client.get_stats(namespace))
        return {**told, "capabilities": plain(capabilities), "can_pin": self._upstream.has_store}

    async def explain(self, body: ExplainRequest, request: Request) -> dict[str, Any]:
        """What a request would get and why, without generating."""
        client = self._upstream.orchestrator(request)
        options = body.skipstone
        params = options.params(body.prompt, body.size)
        told: dict[str, Any] = plain(
            await client.explain(params, options.cache(), options.namespace)
        )
        return told

    async def entries(
        self, request: Request, namespace: str = "", page_size: int = 100, page_token: str = ""
    ) -> dict[str, Any]:
        """One page of the entries, oldest first."""
        client = self._upstream.orchestrator(request)
        page = await client.list_entries(namespace, page_size=page_size, page_token=page_token)
        space = checked_namespace(namespace)
        pinned = await self._pinned(request, page.entries)
        entries = [
            {
                **plain(e),
                "has_picture": self._shelf.of_entry(space, e.entry_id) is not None,
                "pinned": pinned.get(e.entry_id),
            }
            for e in page.entries
        ]
        return {"entries": entries, "next_page_token": page.next_page_token}

    async def entry(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """One entry."""
        client = self._upstream.orchestrator(request)
        told: dict[str, Any] = plain(await client.get_entry(entry_id, namespace))
        return told

    async def picture(self, entry_id: str, request: Request, namespace: str = "") -> Response:
        """The picture of an entry, if it was made through this gateway lately."""
        client = self._upstream.orchestrator(request)
        await client.get_entry(entry_id, namespace)  # Raises unless the caller may see it.
        artifact = self._shelf.of_entry(checked_namespace(namespace), entry_id)
        return artifact_answer(artifact, f"the picture of {entry_id}")

    async def remove(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """Removes an entry from index and store."""
        client = self._upstream.orchestrator(request)
        (existed,) = await client.delete_entries([entry_id], namespace)
        return {"entry_id": entry_id, "existed": existed}

    async def pin(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """Keeps an entry from being evicted."""
        return await self._set_pinned(entry_id, request, namespace, pinned=True)

    async def unpin(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """Lets an entry be evicted again."""
        return await self._set_pinned(entry_id, request, namespace, pinned=False)

    async def _pinned(self, request: Request, entries: Sequence[Entry]) -> dict[str, bool]:
        """Which entries are pinned; none is in it of which latent_kv did not say in time."""
        told: dict[str, bool] = {}
        if not self._upstream.has_store or len(entries) > _ASKED_OF_A_PAGE:
            return told
        store, turns = self._upstream.store(request), asyncio.Semaphore(_ASKED_AT_ONCE)

        async def ask(entry: Entry) -> None:
            async with turns:
                with contextlib.suppress(EntryNotFound):
                    found = await store.get_entry(_space_of(entry), entry.entry_id)
                    told[entry.entry_id] = found.pinned

        # A listing does not wait for a store that is slow or away: the first that fails ends all.
        try:
            async with asyncio.timeout(_PINS_WAIT_S), asyncio.TaskGroup() as group:
                for entry in entries:
                    if entry.snapshots:
                        group.create_task(ask(entry))
        except* (SkipstoneError, TimeoutError) as failed:
            get_logger().info("pins are not known", error=str(failed.exceptions[0]))
        return told

    async def _set_pinned(
        self, entry_id: str, request: Request, namespace: str, *, pinned: bool
    ) -> dict[str, Any]:
        store = self._upstream.store(request)
        entry = await self._upstream.orchestrator(request).get_entry(entry_id, namespace)
        (existed,) = await store.pin_entries(_space_of(entry), [entry_id], pinned)
        if not existed:
            raise EntryNotFound(f"latent_kv has no entry {entry_id}", field="entry_id")
        return {"entry_id": entry_id, "pinned": pinned}


def _space_of(entry: Entry) -> str:
    """The namespace of an entry itself: that of a pool is not the one its callers name."""
    return entry.snapshots[0].namespace if entry.snapshots else ""
