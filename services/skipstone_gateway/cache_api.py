"""`/api`: what the web page shows of the cache, and does to it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from skipstone_client.json_values import plain
from skipstone_gateway.artifact_shelf import ArtifactShelf
from skipstone_gateway.links import artifact_answer
from skipstone_gateway.requests import ExplainRequest
from skipstone_gateway.upstream import Orchestrators, Stores
from skipstone_shared.errors import EntryNotFound, Unimplemented
from skipstone_shared.latents import checked_namespace


class CacheApi:
    """Lists, explains, pins and removes entries; every call has the rights of its caller."""

    def __init__(
        self,
        orchestrators: Orchestrators,
        shelf: ArtifactShelf,
        stores: Stores | None,
    ) -> None:
        """Creates it.

        Args:
            orchestrators: Who knows the entries.
            shelf: Has pictures of those that were made here lately.
            stores: Pin entries; None where nobody does.
        """
        self._orchestrators = orchestrators
        self._shelf = shelf
        self._stores = stores

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
        client = await self._orchestrators.client(request)
        capabilities = await client.get_capabilities()
        told: dict[str, Any] = plain(await client.get_stats(namespace))
        return {**told, "capabilities": plain(capabilities), "can_pin": self._stores is not None}

    async def explain(self, body: ExplainRequest, request: Request) -> dict[str, Any]:
        """What a request would get and why, without generating."""
        client = await self._orchestrators.client(request)
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
        client = await self._orchestrators.client(request)
        page = await client.list_entries(namespace, page_size=page_size, page_token=page_token)
        space = checked_namespace(namespace)
        entries = [
            {**plain(e), "has_picture": self._shelf.of_entry(space, e.entry_id) is not None}
            for e in page.entries
        ]
        return {"entries": entries, "next_page_token": page.next_page_token}

    async def entry(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """One entry."""
        client = await self._orchestrators.client(request)
        told: dict[str, Any] = plain(await client.get_entry(entry_id, namespace))
        return told

    async def picture(self, entry_id: str, request: Request, namespace: str = "") -> Response:
        """The picture of an entry, if it was made through this gateway lately."""
        client = await self._orchestrators.client(request)
        await client.get_entry(entry_id, namespace)  # Raises unless the caller may see it.
        artifact = self._shelf.of_entry(checked_namespace(namespace), entry_id)
        return artifact_answer(artifact, f"the picture of {entry_id}")

    async def remove(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """Removes an entry from index and store."""
        client = await self._orchestrators.client(request)
        (existed,) = await client.delete_entries([entry_id], namespace)
        return {"entry_id": entry_id, "existed": existed}

    async def pin(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """Keeps an entry from being evicted."""
        return await self._set_pinned(entry_id, request, namespace, pinned=True)

    async def unpin(self, entry_id: str, request: Request, namespace: str = "") -> dict[str, Any]:
        """Lets an entry be evicted again."""
        return await self._set_pinned(entry_id, request, namespace, pinned=False)

    async def _set_pinned(
        self, entry_id: str, request: Request, namespace: str, *, pinned: bool
    ) -> dict[str, Any]:
        if self._stores is None:
            raise Unimplemented("this gateway has no latent_kv_target, by which it would pin")
        store = await self._stores.client(request)
        (existed,) = await store.pin_entries(namespace, [entry_id], pinned)
        if not existed:
            raise EntryNotFound(f"latent_kv has no entry {entry_id}", field="entry_id")
        return {"entry_id": entry_id, "pinned": pinned}
