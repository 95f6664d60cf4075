"""How far a picture is from the full run's: PSNR and relative L1, over decoded pixels."""

from __future__ import annotations

import dataclasses
import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import Artifact

Frames = npt.NDArray[np.float32]
"""`(frames, height, width, 3)`, RGB, 0 to 255."""

_PICTURES = ("image/png", "image/gif")
_VIDEOS = ("video/mp4",)
COMPARABLE = (*_PICTURES, *_VIDEOS)
"""Media types whose frames can be compared."""


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """Distance of a result from the full run's.

    Attributes:
        psnr_db: Peak signal-to-noise ratio over all frames, in dB; infinite when nothing differs.
        rel_l1: Mean absolute difference over the mean of the full run's pixels, at least 0.
    """

    psnr_db: float
    rel_l1: float


def frames_of(artifact: Artifact) -> Frames:
    """The frames of a picture or clip.

    Raises:
        InvalidArgument: its media type cannot be decoded here.
    """
    if artifact.media_type not in COMPARABLE:
        raise InvalidArgument(
            f"the executor sends {artifact.media_type}, whose frames a sweep cannot compare",
            allowed=", ".join(COMPARABLE),
        )
    if artifact.media_type in _VIDEOS:
        return _frames_of_video(artifact.data)
    from PIL import Image, ImageSequence

    with Image.open(io.BytesIO(artifact.data)) as image:
        frames: list[Any] = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
    return np.stack([np.asarray(frame, dtype=np.float32) for frame in frames])


def _frames_of_video(data: bytes) -> Frames:
    try:
        import av
    except ImportError:
        raise InvalidArgument(
            "the executor sends video/mp4, and the package av, which reads it, is not installed; "
            "pip install av",
            allowed=", ".join(_PICTURES),
        ) from None
    with av.open(io.BytesIO(data), "r") as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    return np.stack(frames).astype(np.float32)


def drift_between(full: Frames, other: Frames) -> Drift:
    """The drift of a result.

    Args:
        full: The full run's frames.
        other: Frames of the same size. A GIF leaves out a frame that equals the one before, so
            that of clips of unequal length only what both have is compared.
    """
    count = min(len(full), len(other))
    difference = full[:count] - other[:count]
    mean_square = float(np.mean(np.square(difference), dtype=np.float64))
    level = float(np.mean(full[:count], dtype=np.float64))
    distance = float(np.mean(np.abs(difference), dtype=np.float64))
    return Drift(
        psnr_db=10.0 * math.log10(255.0**2 / mean_square) if mean_square else math.inf,
        rel_l1=distance / level if level else 0.0 if not distance else math.inf,
    )
