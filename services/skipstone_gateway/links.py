"""Links to what was made, and the answers behind them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from skipstone_gateway.artifact_shelf import ArtifactShelf
from skipstone_shared.errors import NotFound
from skipstone_shared.generation import Artifact

_SUFFIXES = {"image/png": "png", "image/gif": "gif", "video/mp4": "mp4"}


def artifact_link(request: Request, public_url: str, artifact_id: str, artifact: Artifact) -> str:
    """The address of a kept artifact.

    Args:
        request: Whose address is taken where there is no other.
        public_url: Configured address of the gateway; empty for none.
        artifact_id: From the shelf.
        artifact: What it names.
    """
    base = public_url or str(request.base_url)
    suffix = _SUFFIXES.get(artifact.media_type, "bin")
    return f"{base.rstrip('/')}/v1/artifacts/{artifact_id}.{suffix}"


def artifact_answer(artifact: Artifact | None, what: str) -> Response:
    """The bytes of an artifact.

    Raises:
        NotFound: It is not kept any more.
    """
    if artifact is None:
        raise NotFound(f"{what} is not kept here any more")
    return Response(
        artifact.data,
        media_type=artifact.media_type,
        headers={"Cache-Control": "private, max-age=3600"},
    )


def router(shelf: ArtifactShelf) -> APIRouter:
    """The route of the links."""
    routes = APIRouter()

    async def fetch(name: str) -> Response:
        return artifact_answer(shelf.get(name.partition(".")[0]), "the picture")

    routes.add_api_route("/v1/artifacts/{name}", fetch, methods=["GET"])
    return routes
