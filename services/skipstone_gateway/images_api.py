"""`POST /v1/images/generations`: pictures at once, or their progress as server-sent events."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from skipstone_client.aio import AsyncOrchestratorClient
from skipstone_client.json_values import plain
from skipstone_gateway.artifact_shelf import ArtifactShelf
from skipstone_gateway.callers import while_connected
from skipstone_gateway.http_errors import error_body
from skipstone_gateway.links import artifact_link
from skipstone_gateway.models_api import check_model
from skipstone_gateway.requests import ImageRequest
from skipstone_gateway.upstream import Upstream
from skipstone_shared.errors import Internal, SkipstoneError
from skipstone_shared.generation import Artifact, GenerationParams, StepProgress
from skipstone_shared.latents import checked_namespace
from skipstone_shared.orchestration import (
    GenerateAccepted,
    GenerateFinished,
    GenerateStarted,
    Provenance,
)
from skipstone_shared.structured_logging import get_logger

Event = dict[str, Any]


class ImagesApi:
    """Turns requests for pictures into generations."""

    def __init__(self, upstream: Upstream, shelf: ArtifactShelf, public_url: str) -> None:
        """Creates it.

        Args:
            upstream: Who generates.
            shelf: Where pictures are kept for their links.
            public_url: Of the gateway; empty: that of each request.
        """
        self._upstream = upstream
        self._shelf = shelf
        self._public_url = public_url

    def router(self) -> APIRouter:
        """Its routes."""
        router = APIRouter()
        router.add_api_route("/v1/images/generations", self.generate, methods=["POST"])
        return router

    async def generate(self, body: ImageRequest, request: Request) -> Response:
        """Makes the pictures of a request."""
        client = self._upstream.orchestrator(request)
        await check_model(client, body.model)
        params = [body.skipstone.params(body.prompt, body.size, n) for n in range(body.n)]
        if body.stream:
            return EventSourceResponse(self._events(client, body, params, request))
        created = int(time.time())
        pictures = await while_connected(
            request, _together([self._picture(client, body, one, request) for one in params])
        )
        return JSONResponse({"created": created, "data": pictures})

    async def _picture(
        self,
        client: AsyncOrchestratorClient,
        body: ImageRequest,
        params: GenerationParams,
        request: Request,
    ) -> dict[str, Any]:
        result = await client.generate(params, body.skipstone.cache(), body.skipstone.namespace)
        return self._told(body, result.artifact, result.provenance, request)

    def _told(
        self, body: ImageRequest, artifact: Artifact, provenance: Provenance, request: Request
    ) -> dict[str, Any]:
        """A picture as `data` of an answer has it."""
        namespace = checked_namespace(body.skipstone.namespace)
        artifact_id = self._shelf.put(artifact, namespace, provenance.saved_entry_id)
        told: dict[str, Any] = (
            {"b64_json": base64.b64encode(artifact.data).decode()}
            if body.response_format == "b64_json"
            else {"url": artifact_link(request, self._public_url, artifact_id, artifact)}
        )
        return {**told, "skipstone": plain(provenance)}

    async def _events(
        self,
        client: AsyncOrchestratorClient,
        body: ImageRequest,
        params: list[GenerationParams],
        request: Request,
    ) -> AsyncIterator[ServerSentEvent]:
        try:
            for index, one in enumerate(params):
                async for event in self._events_of(client, body, one, request):
                    yield _sent({**event, "index": index})
        except SkipstoneError as error:
            yield _sent({"type": "error", **error_body(error)})
        except Exception as error:  # noqa: BLE001 - the answer has begun: it can only be told in it
            get_logger().error("unhandled exception", exc_info=error)
            yield _sent({"type": "error", **error_body(Internal())})

    async def _events_of(
        self,
        client: AsyncOrchestratorClient,
        body: ImageRequest,
        params: GenerationParams,
        request: Request,
    ) -> AsyncIterator[Event]:
        artifact: Artifact | None = None
        stream = client.generate_stream(params, body.skipstone.cache(), body.skipstone.namespace)
        async with aclosing(stream) as events:
            async for event in events:
                match event:
                    case GenerateAccepted():
                        yield {"type": "image_generation.accepted", "seed": event.params.seed}
                    case GenerateStarted():
                        yield {"type": "image_generation.started", **plain(event)}
                    case StepProgress():
                        yield {"type": "image_generation.progress", **plain(event)}
                    case Artifact():
                        artifact = event
                    case GenerateFinished() if artifact is not None:
                        told = self._told(body, artifact, event.provenance, request)
                        yield {
                            "type": "image_generation.completed",
                            "created_at": int(time.time()),
                            "size": f"{artifact.width}x{artifact.height}",
                            "output_format": artifact.media_type.partition("/")[2],
                            "media_type": artifact.media_type,
                            **told,
                        }


async def _together(works: list[Any]) -> list[Any]:
    """The results of all; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _sent(event: Event) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(event, ensure_ascii=False), event=event["type"])
