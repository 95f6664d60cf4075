"""A run gives small frames of what it made to whoever asks for them."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tests.unit.denoise.engine_rig import PARAMS, Rig, open_rig
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline, wan_pipeline

from skipstone.embedding.v1 import embedding_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_shared.denoise_runs import DenoiseFinished
from skipstone_shared.embedding_messages import input_to_message
from skipstone_shared.embeddings import EmbeddingInput, EncodedImage
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.frame_samples import (
    MAX_FRAME_BYTES,
    MAX_FRAMES,
    SAMPLE_SIDE,
    checked_frames,
    sampled_frames,
)
from skipstone_shared.generation_messages import frames_to_messages

pytestmark = pytest.mark.filterwarnings("ignore")

NINE_FRAMES = dataclasses.replace(PARAMS, num_frames=9)


def counted(frames: int, size: tuple[int, int] = (64, 48)) -> list[Image.Image]:
    """Frames that grow brighter by 10 each."""
    return [Image.new("RGB", size, (10 * place,) * 3) for place in range(frames)]


def brightness(frame: EncodedImage) -> int:
    with Image.open(io.BytesIO(frame.data)) as picture:
        return round(float(np.asarray(picture, np.float64).mean()))


def finished(rig: Rig, **request: object) -> DenoiseFinished:
    event = rig.run(NINE_FRAMES, **request).events[-1]
    assert isinstance(event, DenoiseFinished)
    return event


@pytest.mark.parametrize(
    ("count", "places"), [(1, [10]), (2, [0, 20]), (3, [0, 10, 20]), (5, [0, 5, 10, 15, 20])]
)
def test_samples_are_spread_over_the_clip_with_its_first_and_last_frame(
    count: int, places: list[int]
) -> None:
    frames = sampled_frames(counted(21), count)
    assert [brightness(frame) for frame in frames] == [10 * place for place in places]
    assert {frame.media_type for frame in frames} == {"image/jpeg"}


def test_a_sample_is_small_and_keeps_its_shape_and_the_frame_stays_as_it_was() -> None:
    large = Image.new("RGBA", (1280, 720), (200, 10, 10, 255))
    ImageDraw.Draw(large).rectangle((0, 0, 640, 720), fill=(10, 10, 200, 255))
    (frame,) = sampled_frames([large], 4)
    with Image.open(io.BytesIO(frame.data)) as picture:
        assert picture.size == (SAMPLE_SIDE, SAMPLE_SIDE * 720 // 1280)
        assert picture.getpixel((10, 100)) == pytest.approx((10, 10, 200), abs=8)
        assert picture.getpixel((400, 100)) == pytest.approx((200, 10, 10), abs=8)
    assert (large.size, large.mode) == ((1280, 720), "RGBA")


def test_sixteen_samples_of_pure_noise_fit_into_one_message() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), np.uint8)
    (frame,) = sampled_frames([Image.fromarray(noise)], 1)
    assert len(frame.data) * MAX_FRAMES < 4_000_000
    assert checked_frames([frame] * MAX_FRAMES)


def test_a_clip_is_sampled_by_its_run_and_a_picture_is_one_frame() -> None:
    with open_rig(wan_pipeline()) as rig:
        assert finished(rig).frames == ()
        clip = finished(rig, sample_frames=4).frames
        assert finished(rig, sample_frames=4, wants_artifact=False).frames == ()
    assert len(clip) == 4
    with open_rig(cogview4_pipeline()) as rig:
        last = rig.run(sample_frames=4).events[-1]
    assert isinstance(last, DenoiseFinished)
    assert len(last.frames) == 1


def test_more_frames_than_a_model_looks_at_are_refused() -> None:
    with open_rig(wan_pipeline()) as rig, pytest.raises(InvalidArgument) as refused:
        rig.run(NINE_FRAMES, sample_frames=17)
    assert (refused.value.field, refused.value.allowed) == ("sample_frames", "0 to 16")


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (EncodedImage("image/webp", b"x"), "frames[1].media_type"),
        (EncodedImage("", b"x"), "frames[1].media_type"),
        (EncodedImage("image/png", b""), "frames[1].data"),
        (EncodedImage("image/png", bytes(MAX_FRAME_BYTES + 1)), "frames[1].data"),
    ],
)
def test_a_frame_that_cannot_be_one_is_named(frame: EncodedImage, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        checked_frames([EncodedImage("image/png", b"x"), frame])
    assert refused.value.field == field
    with pytest.raises(InvalidArgument, match="17 frames"):
        checked_frames([EncodedImage("image/png", b"x")] * (MAX_FRAMES + 1))


def test_frames_of_the_largest_size_fit_into_a_message_of_a_save_and_of_a_vector() -> None:
    frames = [EncodedImage("image/jpeg", bytes(MAX_FRAME_BYTES))] * MAX_FRAMES
    save = orchestrator_pb2.SaveRequest(prompt="x" * 20_000, frames=frames_to_messages(frames))
    embed = embedding_pb2.EmbedRequest(inputs=[input_to_message(EmbeddingInput("", tuple(frames)))])
    assert max(save.ByteSize(), embed.ByteSize()) < (4 << 20) - 100_000
