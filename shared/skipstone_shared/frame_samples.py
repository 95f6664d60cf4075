"""A few small frames of what was made, by which a model that sees finds it again."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.errors import InvalidArgument

MAX_FRAMES = 16
"""Most frames of one clip."""

MAX_FRAME_BYTES = 240_000
"""Bytes of one encoded frame: 16 of them fit into one gRPC message of 4 MiB with all else that it
has. A JPEG of pure noise at the size below has 190 kB."""

SAMPLE_SIDE = 448
"""Pixels of the longer side: what models that see look at, or more."""

_FRAMES = "#frames"

_QUALITY = 90
_MEDIA_TYPES = ("image/png", "image/jpeg")


class Picture(Protocol):
    """The part of ``PIL.Image.Image`` that makes a sample; this layer has no Pillow."""

    def convert(self, mode: str) -> Self:
        """A copy in another mode."""
        ...

    def copy(self) -> Self:
        """A copy."""
        ...

    def thumbnail(self, size: tuple[float, float]) -> None:
        """Scales itself down to fit into a size."""
        ...

    def save(self, fp: Any, format: str, **options: Any) -> None:  # noqa: A002 - Pillow's name
        """Encodes itself."""
        ...


def sampled_frames(pictures: Sequence[Picture], count: int) -> tuple[EncodedImage, ...]:
    """Some of a clip's frames, or the one picture, as small JPEGs.

    Args:
        pictures: All frames, of any size and mode; not changed.
        count: Most frames to take, 1 and up.

    Returns:
        At most ``count`` frames, evenly spaced, the first and the last included.
    """
    return tuple(_sample(pictures[place]) for place in evenly_spaced(len(pictures), count))


def _sample(picture: Picture) -> EncodedImage:
    small = picture.copy()
    small.thumbnail((SAMPLE_SIDE, SAMPLE_SIDE))
    buffer = io.BytesIO()
    small.convert("RGB").save(buffer, "JPEG", quality=_QUALITY)
    return EncodedImage("image/jpeg", buffer.getvalue())


def evenly_spaced(count: int, limit: int) -> Sequence[int]:
    """Places of at most ``limit`` of ``count`` things, the first and the last included.

    They are those that Qwen3-VL-Embedding's authors take. Of one, it is the one in the middle.
    """
    if count <= limit:
        return range(count)
    if limit == 1:
        return [count // 2]
    places: list[int] = np.linspace(0, count - 1, limit, dtype=int).tolist()
    return places


def frames_model_id(model_id: str) -> str:
    """Model id under which an index keeps a model's vectors of frames, apart from those of texts.

    They are of one space, but a text is nearer to any text than to the picture it tells of.
    """
    return model_id + _FRAMES


def checked_frames(frames: Sequence[EncodedImage]) -> tuple[EncodedImage, ...]:
    """Frames that a caller gives, before anything is done with them.

    Raises:
        InvalidArgument: there are too many, or one is empty, too large or of another media type.
    """
    if len(frames) > MAX_FRAMES:
        raise InvalidArgument(f"{len(frames)} frames", field="frames", allowed=f"0 to {MAX_FRAMES}")
    for place, frame in enumerate(frames):
        field = f"frames[{place}]"
        if frame.media_type not in _MEDIA_TYPES:
            raise InvalidArgument(
                f"{field} is {frame.media_type or 'of no media type'}",
                field=f"{field}.media_type",
                allowed=", ".join(_MEDIA_TYPES),
            )
        if not 1 <= len(frame.data) <= MAX_FRAME_BYTES:
            raise InvalidArgument(
                f"{field} has {len(frame.data)} bytes",
                field=f"{field}.data",
                allowed=f"1 to {MAX_FRAME_BYTES} bytes",
            )
    return tuple(frames)
