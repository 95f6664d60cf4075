"""Videos as files: their frames, their rate, and the same bytes from the same frames."""

from __future__ import annotations

import dataclasses
import io
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Outcome, open_rig
from tests.unit.denoise.families.video_pipelines import ltx
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline, wan_pipeline

from skipstone_denoise.artifacts import ArtifactFormat, encode_artifact
from skipstone_denoise.config import DenoiseSettings
from skipstone_shared.denoise_runs import ResumeFrom, ResumeKind
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import Artifact, VideoFormat

pytestmark = pytest.mark.filterwarnings("ignore")

FIVE_FRAMES = dataclasses.replace(PARAMS, num_frames=5)
MP4 = ArtifactFormat(VideoFormat.MP4, 24.0, 17)


def artifact_of(outcome: Outcome) -> Artifact:
    (artifact,) = (event for event in outcome.events if isinstance(event, Artifact))
    return artifact


def moving(width: int = 64, height: int = 48, frames: int = 9) -> list[Image.Image]:
    """A bright square that moves over a smooth background."""
    pictures = []
    for place in range(frames):
        pixels = np.zeros((height, width, 3), np.uint8)
        pixels[..., 0] = np.linspace(0, 200, width).astype(np.uint8)
        pixels[..., 1] = np.linspace(0, 200, height).astype(np.uint8)[:, None]
        pixels[8:24, 4 * place : 4 * place + 16] = (250, 240, 60)
        pictures.append(Image.fromarray(pixels))
    return pictures


def decoded(artifact: Artifact) -> tuple[float, list[Any]]:
    with av.open(io.BytesIO(artifact.data)) as file:
        stream = file.streams.video[0]
        assert stream.average_rate is not None
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
        return float(stream.average_rate), frames


def test_an_mp4_has_the_frames_and_the_rate() -> None:
    pictures = moving()
    artifact = encode_artifact([pictures], MP4)
    rate, frames = decoded(artifact)
    assert (artifact.media_type, artifact.num_frames, artifact.frame_rate) == ("video/mp4", 9, 24.0)
    assert (artifact.width, artifact.height) == (64, 48)
    assert (rate, len(frames)) == (24.0, 9)
    for picture, frame in zip(pictures, frames, strict=True):
        error = np.asarray(picture, np.float64) - frame
        # Colours are right, not only shapes: a wrong matrix shifts every pixel.
        assert np.abs(error.mean(axis=(0, 1))).max() < 3
        assert np.sqrt((error**2).mean()) < 12


def test_the_same_frames_are_the_same_bytes_and_no_encoder_names_itself() -> None:
    """With the encoder's own defaults about one in three differs at this size."""
    files = {encode_artifact([moving(80, 64)], MP4).data for _ in range(30)}
    assert len(files) == 1
    assert b"Lavf" not in files.pop()


@pytest.mark.parametrize(
    ("rate", "meant"),
    [
        (1.0, Fraction(1)),
        (7.5, Fraction(15, 2)),
        (12.3, Fraction(123, 10)),
        (23.976, Fraction(24000, 1001)),
        (23.98, Fraction(24000, 1001)),
        (29.97, Fraction(30000, 1001)),
        (59.94, Fraction(60000, 1001)),
        (60.0, Fraction(60)),
        (239.9, Fraction(2399, 10)),
    ],
)
def test_rates_that_are_no_whole_numbers_are_kept_as_they_are_meant(
    rate: float, meant: Fraction
) -> None:
    """Television's rates are told rounded, and editors know them by their fractions."""
    artifact = encode_artifact([moving()], dataclasses.replace(MP4, frame_rate=rate))
    with av.open(io.BytesIO(artifact.data)) as file:
        assert file.streams.video[0].average_rate == meant


@pytest.mark.parametrize("rate", [0.0, 0.5, 241.0, float("nan")])
def test_rates_out_of_range_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="frame_rate"):
        DenoiseSettings(frame_rate=rate)


def test_odd_sizes_can_be_encoded() -> None:
    rate, frames = decoded(encode_artifact([moving(width=63, height=47)], MP4))
    assert (rate, frames[0].shape) == (24.0, (47, 63, 3))


def test_a_larger_factor_is_a_smaller_file() -> None:
    fine, coarse = (
        encode_artifact([moving(128, 96, 17)], dataclasses.replace(MP4, crf=crf)).data
        for crf in (5, 40)
    )
    assert len(coarse) < len(fine)


def test_a_gif_is_for_previews_and_keeps_its_pace() -> None:
    form = ArtifactFormat(VideoFormat.GIF, 10.0, 17)
    artifact = encode_artifact([moving()], form)
    with Image.open(io.BytesIO(artifact.data)) as gif:
        assert gif.info["duration"] == 100
    assert (artifact.media_type, artifact.frame_rate) == ("image/gif", 10.0)


def test_one_frame_is_a_picture_without_a_rate() -> None:
    artifact = encode_artifact([moving(frames=1)], MP4)
    assert (artifact.media_type, artifact.frame_rate) == ("image/png", 0.0)


def test_a_video_model_sends_mp4_at_its_own_rate_and_the_exact_tier_the_same_bytes() -> None:
    with open_rig(wan_pipeline()) as rig:
        full = rig.run(FIVE_FRAMES, snapshots=EVERY_STEP)
        resume = ResumeFrom(full.refs[STEPS], STEPS, ResumeKind.DECODE)
        again = rig.run(FIVE_FRAMES, resume=resume)
    assert artifact_of(full) == artifact_of(again)
    assert artifact_of(full).frame_rate == 16.0
    assert decoded(artifact_of(full))[0] == 16.0


def test_a_request_chooses_what_its_video_is_sent_as_and_shares_latents_with_all_others() -> None:
    preview = dataclasses.replace(FIVE_FRAMES, video_format=VideoFormat.GIF)
    with open_rig(wan_pipeline()) as rig:
        full = rig.run(FIVE_FRAMES, snapshots=EVERY_STEP)
        resume = ResumeFrom(full.refs[STEPS], STEPS, ResumeKind.DECODE)
        again = rig.run(preview, resume=resume)
        plans = [rig.engine.plan(params) for params in (FIVE_FRAMES, preview)]
    assert artifact_of(full).media_type == "video/mp4"
    assert artifact_of(again).media_type == "image/gif"
    assert plans[0].compatibility_key == plans[1].compatibility_key
    assert [plan.params.video_format for plan in plans] == [VideoFormat.MP4, VideoFormat.GIF]
    with open_rig(wan_pipeline(), video_format="gif") as rig:
        assert rig.engine.plan(FIVE_FRAMES).params.video_format is VideoFormat.GIF


def test_a_rate_of_the_configuration_holds_and_changes_no_latents_of_most_models() -> None:
    with open_rig(wan_pipeline()) as rig, open_rig(wan_pipeline(), frame_rate=12.0) as slow:
        assert artifact_of(slow.run(FIVE_FRAMES)).frame_rate == 12.0
        keys = {r.engine.plan(FIVE_FRAMES).compatibility_key for r in (rig, slow)}
    assert len(keys) == 1


def test_a_model_that_is_told_the_rate_has_it_in_its_key() -> None:
    params = dataclasses.replace(FIVE_FRAMES, height=32, width=32)
    with open_rig(ltx()) as rig, open_rig(ltx(), frame_rate=12.0) as slow:
        told = [r.engine.plan(params).compatibility_key for r in (rig, slow)]
        latents = [r.run(params, snapshots=EVERY_STEP).refs[STEPS].xxh3_64 for r in (rig, slow)]
    assert told[0] != told[1]
    assert latents[0] != latents[1]


def test_a_picture_model_sends_png() -> None:
    with open_rig(cogview4_pipeline()) as rig:
        assert artifact_of(rig.run()).media_type == "image/png"
        with pytest.raises(InvalidArgument, match="makes pictures") as refused:
            rig.run(dataclasses.replace(PARAMS, video_format=VideoFormat.GIF))
        assert refused.value.field == "params.video_format"
