"""How long a clip is: `seconds` at the rate of the model that makes it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from skipstone_gateway import http_errors
from skipstone_gateway.video_jobs import VideoJobs
from skipstone_gateway.videos_api import VideosApi, num_frames
from skipstone_shared.errors import InvalidArgument, SkipstoneError
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheMode, GenerateEvent, OrchestratorCapabilities

CONFIGURED = 16


def told(frame_rate: float, frame_step: int, max_num_frames: int = 257) -> OrchestratorCapabilities:
    return OrchestratorCapabilities(
        "1",
        "1",
        CacheMode.READ_WRITE,
        1000,
        "m",
        frame_rate=frame_rate,
        frame_step=frame_step,
        max_num_frames=max_num_frames,
    )


WAN, WAN_5B, HUNYUAN, LTX, COGVIDEOX = (
    told(16.0, 4),
    told(24.0, 4),
    told(24.0, 4),
    told(25.0, 8),
    told(8.0, 4),
)
NOT_TOLD = OrchestratorCapabilities("1", "1", CacheMode.READ_WRITE, 1000)


@pytest.mark.parametrize(
    ("model", "seconds", "frames"),
    [
        (WAN, 5.0, 81),
        (WAN_5B, 5.0, 121),
        (HUNYUAN, 5.0, 121),
        (LTX, 5.0, 129),
        (COGVIDEOX, 6.0, 49),
        (told(29.97, 4), 5.0, 149),
        (NOT_TOLD, 5.0, 5 * CONFIGURED + 1),
        (WAN, 0.01, 5),
    ],
    ids=["Wan", "Wan 5B", "HunyuanVideo", "LTX", "CogVideoX", "configured", "not told", "short"],
)
def test_seconds_are_frames_at_the_rate_and_in_the_groups_of_the_model(
    model: OrchestratorCapabilities, seconds: float, frames: int
) -> None:
    assert num_frames(seconds, model, CONFIGURED) == frames
    assert (frames - 1) % (model.frame_step or 1) == 0


def test_clips_that_a_model_does_not_make_are_refused_by_the_field_that_was_given() -> None:
    with pytest.raises(InvalidArgument, match="241 frames, and this model makes 129") as long:
        num_frames(10.0, told(24.0, 4, 129), CONFIGURED)
    with pytest.raises(InvalidArgument, match="makes pictures") as picture:
        num_frames(1.0, told(0.0, 1, 1), CONFIGURED)
    assert (long.value.field, picture.value.field) == ("seconds", "seconds")
    assert num_frames(128 / 24, told(24.0, 4, 129), CONFIGURED) == 129
    assert long.value.allowed == f"at most {128 / 24:g}"


class Executor:
    """An orchestrator's client in front of a model; remembers what it was asked to make."""

    def __init__(self, model: OrchestratorCapabilities) -> None:
        self.model = model
        self.asked: list[GenerationParams] = []

    def orchestrator(self, _request: Any) -> Executor:
        return self

    async def get_capabilities(self) -> OrchestratorCapabilities:
        return self.model

    async def generate_stream(
        self, params: GenerationParams, *_: Any
    ) -> AsyncGenerator[GenerateEvent, None]:
        self.asked.append(params)
        return
        yield


async def _posted(executor: Executor, *bodies: dict[str, Any]) -> list[httpx.Response]:
    app = FastAPI()
    app.add_exception_handler(SkipstoneError, http_errors.on_skipstone_error)
    clock = itertools.count()
    jobs = VideoJobs(
        max_jobs=9,
        max_running=1,
        max_bytes=1 << 20,
        ttl_s=60.0,
        clock=lambda: float(next(clock)),
    )
    app.include_router(VideosApi(executor, jobs, CONFIGURED).router())  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        answers = [await http.post("/v1/videos", json={"prompt": "p", **body}) for body in bodies]
        for answer in answers:
            if answer.is_success:
                await http.get(f"/v1/videos/{answer.json()['id']}/events")
    await jobs.close()
    return answers


def test_a_job_asks_for_the_frames_that_its_seconds_are() -> None:
    executor = Executor(WAN_5B)
    bodies = [{"seconds": 5}, {"skipstone": {"num_frames": 9}}, {}, {"seconds": 60}]
    answers = asyncio.run(_posted(executor, *bodies))
    assert [params.num_frames for params in executor.asked] == [121, 9, None]
    assert answers[-1].status_code == 400
    assert answers[-1].json()["error"]["param"] == "seconds"


def test_a_caller_has_one_share_of_the_jobs_however_the_header_is_spelt() -> None:
    async def run() -> list[int]:
        app = FastAPI()
        app.add_exception_handler(SkipstoneError, http_errors.on_skipstone_error)
        jobs = VideoJobs(
            max_jobs=4, max_running=0, max_bytes=1 << 20, ttl_s=60.0, clock=lambda: 0.0
        )
        app.include_router(VideosApi(Executor(WAN), jobs, CONFIGURED).router())  # type: ignore[arg-type]
        transport = httpx.ASGITransport(app)
        told = []
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            for spaces in (1, 2, 3):
                headers = {"Authorization": f"Bearer{' ' * spaces}tok"}
                answer = await http.post("/v1/videos", json={"prompt": "p"}, headers=headers)
                told.append(answer.status_code)
        await jobs.close()
        return told

    assert asyncio.run(run()) == [200, 200, 429]
