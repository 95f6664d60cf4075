"""A clip from a video model to OpenAI's client: MP4, its length, and what a repeat gets."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import httpx
import openai
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect
from tests.e2e.processes import Cluster, running_gateway, running_service, wait_until
from tests.e2e.test_gateway_page import (
    COUNT_ADDRESSES,
    SHOWN_AND_LIVE,
    WAIT_MS,
    browser,  # noqa: F401 - a fixture
    needs_chromium,
)
from tests.unit.denoise.tiny_pipelines import wan_image_pipeline, wan_pipeline

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

TOKEN = "a-key-that-openais-client-insists-on"
PROMPT = "a small red circle"


@pytest.fixture(scope="module")
def gateway(_shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway over an orchestrator whose executor makes clips of 5 frames, 32x16 pixels."""
    folder: Path = tmp_path_factory.mktemp("wan")
    wan_pipeline().save_pretrained(folder)
    with gateway_over(folder, _shared_cluster) as address:
        yield address


@contextmanager
def gateway_over(folder: Path, cluster: Cluster) -> Iterator[str]:
    """A gateway, an orchestrator and an executor of a video model, over the cluster's cache.

    What the gateway is set to for models that tell no rate must not matter: these tell 16.
    """
    targets = cluster.targets
    form = ("--default-height=16", "--default-width=32", "--default-num-frames=5")
    store = f"--latent-kv-target={targets['latent_kv']}"
    others = [flag for flag in cluster.backend_flags() if "denoise" not in flag]
    with (
        running_service("denoise", f"--model={folder}", store, *form) as denoise,
        running_service("orchestrator", *others, f"--denoise-target={denoise}") as orchestrator,
        running_gateway({**targets, "orchestrator": orchestrator}, "--video-fps=7") as address,
    ):
        yield address


@pytest.fixture
def client(gateway: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway}/v1", api_key=TOKEN, max_retries=0) as made:
        yield made


def finished_job(client: openai.OpenAI, options: dict[str, Any], **more: Any) -> Any:
    picture = more.pop("input_reference", openai.omit)
    job = client.videos.create(
        prompt=PROMPT, input_reference=picture, extra_body={"skipstone": options, **more}
    )
    wait_until(lambda: client.videos.retrieve(job.id).status == "completed", "the clip is made")
    return client.videos.retrieve(job.id)


def test_a_clip_is_an_mp4_with_its_rate_and_an_exact_repeat_is_the_same_file(
    client: openai.OpenAI, namespace: str
) -> None:
    options = {"namespace": namespace, "seed": 1, "steps": 6}
    first = finished_job(client, options)
    assert (first.size, first.seconds) == ("32x16", "0.3125")
    answer = client.videos.download_content(first.id)
    assert answer.response.headers["content-type"] == "video/mp4"
    content = answer.read()
    with av.open(io.BytesIO(content)) as file:
        stream = file.streams.video[0]
        assert (stream.average_rate, stream.frames) == (16, 5)
        assert (stream.width, stream.height) == (32, 16)

    def repeated() -> Any:
        return finished_job(client, options).model_extra["skipstone"]["tier"] == "exact"

    wait_until(repeated, "the clip is saved")
    again = finished_job(client, options)
    assert client.videos.download_content(again.id).read() == content


def test_seconds_are_frames_at_the_rate_of_the_model_and_a_preview_is_the_same_clip(
    client: openai.OpenAI, namespace: str
) -> None:
    options = {"namespace": namespace, "seed": 3, "steps": 6}
    first = finished_job(client, options, seconds=1)
    assert first.seconds == f"{17 / 16:g}"
    assert client.videos.download_content(first.id).response.headers["content-type"] == "video/mp4"

    def preview() -> Any:
        return finished_job(client, {**options, "video_format": "gif"}, seconds=1)

    wait_until(lambda: preview().model_extra["skipstone"]["tier"] == "exact", "the clip is saved")
    gif = client.videos.download_content(preview().id)
    assert gif.response.headers["content-type"] == "image/gif"
    with pytest.raises(openai.BadRequestError, match="this model makes 257") as refused:
        finished_job(client, options, seconds=60)
    assert refused.value.param == "seconds"


def test_a_clip_begins_with_the_picture_of_a_form_and_another_picture_is_another_request(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    wan_image_pipeline().save_pretrained(tmp_path)

    def file(colour: str) -> tuple[str, bytes, str]:
        buffer = io.BytesIO()
        Image.new("RGB", (32, 16), colour).save(buffer, "PNG")
        return "first.png", buffer.getvalue(), "image/png"

    with (
        gateway_over(tmp_path, cluster) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key=TOKEN, max_retries=0) as client,
    ):

        def made(colour: str) -> tuple[bytes, str]:
            job = finished_job(
                client,
                {"namespace": namespace, "seed": 1, "steps": 6},
                input_reference=file(colour),
            )
            tier = job.model_extra["skipstone"]["tier"]
            return client.videos.download_content(job.id).read(), tier

        red, _ = made("red")
        wait_until(lambda: made("red") == (red, "exact"), "the clip is saved")
        blue, tier = made("blue")
        assert (blue != red, tier) == (True, "miss")
        text = client.videos.create(
            prompt=PROMPT, input_reference=("a.txt", b"no picture", "text/plain")
        )
        wait_until(lambda: client.videos.retrieve(text.id).status == "failed", "it is refused")
        error = client.videos.retrieve(text.id).error
        assert error is not None
        assert "media type 'text/plain'" in error.message


def test_the_pages_stream_tells_what_kind_of_thing_was_made(gateway: str, namespace: str) -> None:
    body = {
        "prompt": PROMPT,
        "stream": True,
        "skipstone": {"namespace": namespace, "seed": 2, "steps": 6},
    }
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(
        f"{gateway}/v1/images/generations", json=body, headers=headers, timeout=60.0
    )
    assert '"media_type": "video/mp4"' in answer.text


@needs_chromium
def test_clips_play_on_the_page(
    gateway: str,
    namespace: str,
    browser: Browser,  # noqa: F811
    tmp_path: Path,
) -> None:
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    page.add_init_script(COUNT_ADDRESSES)
    expect.set_options(timeout=WAIT_MS)
    page.goto(gateway)
    page.get_by_label("Namespace").fill(namespace)
    for name, value in (("Steps", 6), ("Seed", 1), ("Pictures", 2), ("Frames", 9)):
        page.get_by_role("spinbutton", name=name).fill(str(value))
    page.get_by_label("Prompt").fill(PROMPT)
    page.get_by_label("Prompt").press("Control+Enter")
    expect(page.locator("#state")).to_contain_text("Done")
    result = page.locator("#result-picture video")
    expect(result).to_have_js_property("videoWidth", 32)
    expect(page.locator("#results button video")).to_have_count(2)
    expect(page.locator("#entries li video")).to_have_count(2)
    page.evaluate("document.querySelector('#result-picture video').play()")
    expect(result).to_have_js_property("paused", False)
    page.screenshot(path=tmp_path / "clips.png", full_page=True)
    shown, live = page.evaluate(SHOWN_AND_LIVE)
    assert shown == live
    context.close()
