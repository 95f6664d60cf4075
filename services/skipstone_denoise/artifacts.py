"""Finished pictures and videos, encoded."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image

from skipstone_shared.generation import Artifact

_FRAME_MS = 62  # about 16 frames a second, the rate video models are mostly trained at


def encode_artifact(output: Sequence[Image.Image | Sequence[Image.Image]]) -> Artifact:
    """Encodes the output of a pipeline called with `output_type="pil"`.

    Args:
        output: One picture, or one video as a list of frames.

    Returns:
        A PNG, or a GIF for more than one frame.
    """
    first = output[0]
    frames = [first] if isinstance(first, Image.Image) else list(first)
    buffer = io.BytesIO()
    if len(frames) == 1:
        frames[0].save(buffer, "PNG")
    else:
        frames[0].save(
            buffer, "GIF", save_all=True, append_images=frames[1:], duration=_FRAME_MS, loop=0
        )
    return Artifact(
        media_type="image/png" if len(frames) == 1 else "image/gif",
        data=buffer.getvalue(),
        height=frames[0].height,
        width=frames[0].width,
        num_frames=len(frames),
    )
