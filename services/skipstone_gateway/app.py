"""The gateway as an ASGI app: routes, errors, limits, the page."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client.exposition import choose_encoder
from starlette.exceptions import HTTPException

from skipstone_client.aio import AsyncLatentKVClient, AsyncOrchestratorClient
from skipstone_gateway import http_errors, links
from skipstone_gateway.artifact_shelf import ArtifactShelf
from skipstone_gateway.body_limit import LimitBodies
from skipstone_gateway.cache_api import CacheApi
from skipstone_gateway.config import GatewaySettings
from skipstone_gateway.http_metrics import CountRequests, HttpMetrics
from skipstone_gateway.http_traces import TraceRequests
from skipstone_gateway.images_api import ImagesApi
from skipstone_gateway.models_api import list_models
from skipstone_gateway.page_headers import PageHeaders
from skipstone_gateway.request_scope import BindRequestId
from skipstone_gateway.upstream import Upstream
from skipstone_gateway.video_jobs import VideoJobs
from skipstone_gateway.videos_api import VideosApi
from skipstone_shared.errors import PermissionDenied, SkipstoneError, Unauthenticated
from skipstone_shared.tracing import Tracer

_PAGE = Path(__file__).parent / "page"


def make_app(
    settings: GatewaySettings, metrics: HttpMetrics, tracer: Tracer | None = None
) -> FastAPI:
    """Returns the app; its clients connect with the first request and close when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await _mount(app, settings, stack)
            yield

    app = FastAPI(
        title="Skipstone",
        version=version("skipstone"),
        lifespan=lifespan,
        docs_url=None,  # Its page loads scripts from elsewhere; /openapi.json is there.
        redoc_url=None,
    )
    app.add_exception_handler(SkipstoneError, http_errors.on_skipstone_error)
    app.add_exception_handler(RequestValidationError, http_errors.on_invalid_request)
    app.add_exception_handler(HTTPException, http_errors.on_http_exception)
    app.add_exception_handler(Exception, http_errors.on_bug)
    # The last one added is the outermost.
    app.add_middleware(PageHeaders)
    app.add_middleware(LimitBodies, max_bytes=settings.max_body_bytes)
    app.add_middleware(CountRequests, metrics=metrics)
    app.add_middleware(TraceRequests, tracer=tracer)
    app.add_middleware(BindRequestId)
    app.add_api_route("/metrics", _metrics_of(metrics), methods=["GET"], include_in_schema=False)
    return app


async def _mount(app: FastAPI, settings: GatewaySettings, stack: AsyncExitStack) -> None:
    """Makes what needs the event loop, and its routes."""
    credentials = settings.credentials()
    orchestrator = AsyncOrchestratorClient(
        settings.orchestrator_target,
        generate_timeout_s=settings.generate_timeout_s,
        credentials=credentials,
    )
    stack.push_async_callback(orchestrator.close)
    store = None
    if settings.latent_kv_target:
        store = AsyncLatentKVClient(settings.latent_kv_target, credentials=credentials)
        stack.push_async_callback(store.close)
    upstream = Upstream(orchestrator, store)
    jobs = VideoJobs(
        max_jobs=settings.max_jobs,
        max_running=settings.max_running_jobs,
        max_bytes=settings.job_bytes,
        ttl_s=settings.artifact_ttl_s,
        clock=time.time,
    )
    stack.push_async_callback(jobs.close)
    shelf = ArtifactShelf(settings.artifact_bytes, settings.artifact_ttl_s, time.monotonic)

    async def models(request: Request) -> dict[str, Any]:
        return await list_models(upstream.orchestrator(request))

    async def health(request: Request) -> Response:
        """200 when the orchestrator answers, 503 otherwise."""
        client = upstream.orchestrator(request)
        try:
            model = (await client.get_capabilities(timeout_s=2.0)).model_id
        except (Unauthenticated, PermissionDenied):
            # It answers, to those with a token; a probe has none.
            return JSONResponse({"status": "ok", "model": ""})
        return JSONResponse({"status": "ok", "model": model, "version": version("skipstone")})

    app.add_api_route("/healthz", health, methods=["GET"])
    app.add_api_route("/livez", _alive, methods=["GET"])
    app.add_api_route("/v1/models", models, methods=["GET"])
    app.include_router(ImagesApi(upstream, shelf, settings.public_url).router())
    app.include_router(VideosApi(upstream, jobs, settings.video_fps).router())
    app.include_router(CacheApi(upstream, shelf).router())
    app.include_router(links.router(shelf))
    # Last: it takes every path that nothing else has.
    app.mount("/", StaticFiles(directory=_PAGE, html=True), name="page")


async def _alive() -> dict[str, str]:
    """200 as long as this process runs."""
    return {"status": "ok"}


def _metrics_of(metrics: HttpMetrics) -> Any:
    async def told(request: Request) -> Response:
        # OpenMetrics has exemplars, and is what Prometheus asks for when it keeps them.
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), media_type=media_type)

    return told
