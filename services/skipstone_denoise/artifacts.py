"""Finished pictures and videos, encoded."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence

from PIL import Image

from skipstone_denoise.video_file import gif_bytes, mp4_bytes
from skipstone_shared.generation import Artifact, VideoFormat


@dataclasses.dataclass(frozen=True, slots=True)
class ArtifactFormat:
    """How output is encoded.

    Attributes:
        video: What a video is sent as.
        frame_rate: Their frames per second.
        crf: Constant rate factor of MP4: 0 (lossless) to 51.
    """

    video: VideoFormat
    frame_rate: float
    crf: int


def encode_artifact(
    output: Sequence[Image.Image | Sequence[Image.Image]], form: ArtifactFormat
) -> Artifact:
    """Encodes the output of a pipeline called with `output_type="pil"`.

    Args:
        output: One picture, or one video as a list of frames.
        form: How.

    Returns:
        A PNG, or a video for more than one frame. Equal output gives equal bytes.
    """
    frames = frames_of(output)
    media_type, data = _encoded(frames, form)
    return Artifact(
        media_type=media_type,
        data=data,
        height=frames[0].height,
        width=frames[0].width,
        num_frames=len(frames),
        frame_rate=form.frame_rate if len(frames) > 1 else 0.0,
    )


def frames_of(output: Sequence[Image.Image | Sequence[Image.Image]]) -> list[Image.Image]:
    """All frames of the output of a pipeline called with `output_type="pil"`; one of a picture."""
    first = output[0]
    return [first] if isinstance(first, Image.Image) else list(first)


def _encoded(frames: Sequence[Image.Image], form: ArtifactFormat) -> tuple[str, bytes]:
    if len(frames) == 1:
        buffer = io.BytesIO()
        frames[0].save(buffer, "PNG")
        return "image/png", buffer.getvalue()
    if form.video is VideoFormat.GIF:
        return "image/gif", gif_bytes(frames, form.frame_rate)
    return "video/mp4", mp4_bytes(frames, form.frame_rate, form.crf)
