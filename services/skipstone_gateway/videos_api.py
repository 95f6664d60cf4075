"""`/v1/videos`: clips as jobs, in the form of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.datastructures import UploadFile

from skipstone_client.json_values import plain
from skipstone_gateway.http_errors import error_body
from skipstone_gateway.links import artifact_answer
from skipstone_gateway.models_api import ALIAS, check_named
from skipstone_gateway.requests import VideoRequest, parsed
from skipstone_gateway.upstream import Upstream, caller_token
from skipstone_gateway.video_jobs import Job, JobState, VideoJobs
from skipstone_shared.errors import FailedPrecondition, InvalidArgument
from skipstone_shared.generation import ReferenceInput, ReferenceRole
from skipstone_shared.orchestration import OrchestratorCapabilities

_NESTED = "skipstone["
"""How a form spells a field of the object `skipstone`: `skipstone[seed]`."""


class VideosApi:
    """Turns requests for clips into jobs."""

    def __init__(self, upstream: Upstream, jobs: VideoJobs, fps: int) -> None:
        """Creates it.

        Args:
            upstream: Who generates.
            jobs: Runs the jobs.
            fps: Frames per second by which `seconds` becomes a number of frames where the executor
                does not tell at which rate its model's videos play.
        """
        self._upstream = upstream
        self._jobs = jobs
        self._fps = fps

    def router(self) -> APIRouter:
        """Its routes."""
        router = APIRouter(prefix="/v1/videos")
        router.add_api_route("", self.create, methods=["POST"])
        router.add_api_route("", self.list, methods=["GET"])
        router.add_api_route("/{video_id}", self.show, methods=["GET"])
        router.add_api_route("/{video_id}", self.remove, methods=["DELETE"])
        router.add_api_route("/{video_id}/content", self.content, methods=["GET"])
        router.add_api_route("/{video_id}/events", self.events, methods=["GET"])
        return router

    async def create(self, request: Request) -> dict[str, Any]:
        """Starts a job."""
        body, references = await _read(request)
        client = self._upstream.orchestrator(request)
        # Also where the body needs nothing of it: only callers who are let in have jobs.
        model = await client.get_capabilities()
        check_named(model, body.model)
        options = body.skipstone
        if body.seconds is not None:
            if options.num_frames is not None:
                raise InvalidArgument("give one of seconds and num_frames", field="seconds")
            frames = num_frames(body.seconds, model, self._fps)
            options = options.model_copy(update={"num_frames": frames})
        params = options.params(body.prompt, body.size, references=references)
        job = self._jobs.add(
            lambda: client.generate_stream(params, options.cache(), options.namespace),
            _owner(request),
            body.prompt,
            body.model or ALIAS,
            body.size,
            body.seconds,
        )
        return self._told(job)

    async def list(self, request: Request) -> dict[str, Any]:
        """The caller's jobs, newest first."""
        jobs = [self._told(job) for job in self._jobs.list(_owner(request))]
        return {"object": "list", "data": jobs, "has_more": False}

    async def show(self, video_id: str, request: Request) -> dict[str, Any]:
        """How far a job is."""
        return self._told(self._jobs.get(video_id, _owner(request)))

    async def remove(self, video_id: str, request: Request) -> dict[str, Any]:
        """Ends a job and forgets it with what it made."""
        await self._jobs.remove(video_id, _owner(request))
        return {"id": video_id, "object": "video.deleted", "deleted": True}

    async def content(self, video_id: str, request: Request) -> Response:
        """What a job made."""
        job = self._jobs.get(video_id, _owner(request))
        if job.state is JobState.FAILED and job.error is not None:
            raise job.error
        if job.state is not JobState.COMPLETED:
            raise FailedPrecondition(f"job {video_id} is {job.state.value}; ask for it again later")
        return artifact_answer(job.artifact, "the clip")

    async def events(self, video_id: str, request: Request) -> Response:
        """The job after each change, as server-sent events."""
        job = self._jobs.get(video_id, _owner(request))

        async def changes() -> AsyncIterator[ServerSentEvent]:
            async for now in self._jobs.watch(job):
                told = self._told(now)
                yield ServerSentEvent(json.dumps(told, ensure_ascii=False), event=told["status"])

        return EventSourceResponse(changes())

    def _told(self, job: Job) -> dict[str, Any]:
        share = job.steps_done / job.steps if job.steps else 0.0
        expires_at = self._jobs.expires_at(job)
        return {
            "id": job.job_id,
            "object": "video",
            "model": job.model,
            "prompt": job.prompt,
            "status": job.state.value,
            "progress": 100 if job.state is JobState.COMPLETED else int(99 * share),
            "created_at": int(job.created_at),
            "completed_at": None if job.completed_at is None else int(job.completed_at),
            "expires_at": None if expires_at is None else int(expires_at),
            "size": job.size if job.artifact is None else _size(job),
            "seconds": _seconds(job),
            "error": None if job.error is None else error_body(job.error)["error"],
            "skipstone": None if job.provenance is None else plain(job.provenance),
        }


def num_frames(seconds: float, model: OrchestratorCapabilities, fps: int) -> int:
    """Frames of a clip at the rate at which the model's clips play.

    Video models count the frame at time 0 too, and make others in groups: of 5 seconds at 16 frames
    per second, in fours, they make 81.

    Args:
        seconds: How long the clip is to be, above 0.
        model: What is told of the model.
        fps: Frames per second of a model of which nothing is told.

    Raises:
        InvalidArgument: the model makes pictures, or no clips as long as this.
    """
    if model.max_num_frames == 1:
        raise InvalidArgument(
            "is given, but this model makes pictures", field="seconds", allowed="unset"
        )
    rate, step = model.frame_rate or fps, model.frame_step or 1
    frames = max(1, round(seconds * rate / step)) * step + 1
    if model.max_num_frames and frames > model.max_num_frames:
        raise InvalidArgument(
            f"{seconds:g} s are {frames} frames, and this model makes {model.max_num_frames}",
            field="seconds",
            allowed=f"at most {(model.max_num_frames - 1) // step * step / rate:g}",
        )
    return frames


def _size(job: Job) -> str:
    assert job.artifact is not None
    return f"{job.artifact.width}x{job.artifact.height}"


def _seconds(job: Job) -> str:
    """How long the clip plays; as the caller named it while there is none."""
    if job.artifact is not None and job.artifact.frame_rate:
        return f"{job.artifact.num_frames / job.artifact.frame_rate:g}"
    return "" if job.seconds is None else f"{job.seconds:g}"


def _owner(request: Request) -> str:
    """Who a job belongs to: a caller has one name however the header is spelt."""
    return caller_token(request)


async def _read(request: Request) -> tuple[VideoRequest, tuple[ReferenceInput, ...]]:
    """The body, JSON or a form, and the picture that comes with a form."""
    if request.headers.get("content-type", "").startswith("application/json"):
        try:
            return parsed(VideoRequest, await request.json()), ()
        except ValueError:
            raise InvalidArgument("the body is no JSON", field="body") from None
    async with request.form() as form:
        fields: dict[str, Any] = {}
        options: dict[str, Any] = {}
        references = []
        for name, value in form.items():
            if isinstance(value, UploadFile):
                references.append(await _reference(name, value))
            elif name.startswith(_NESTED) and name.endswith("]"):
                options[name.removeprefix(_NESTED).removesuffix("]")] = value
            else:
                fields[name] = value
    if options:
        fields["skipstone"] = options
    elif isinstance(fields.get("skipstone"), str):
        fields["skipstone"] = _object(fields["skipstone"])
    return parsed(VideoRequest, fields), tuple(references)


async def _reference(name: str, file: UploadFile) -> ReferenceInput:
    if name != "input_reference":
        raise InvalidArgument("not known", field=name, allowed="input_reference")
    media_type = file.content_type or "application/octet-stream"
    return ReferenceInput(ReferenceRole.IMAGE, media_type, await file.read())


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise InvalidArgument("no JSON object", field="skipstone") from None
    if not isinstance(value, dict):
        raise InvalidArgument("no JSON object", field="skipstone")
    return value
