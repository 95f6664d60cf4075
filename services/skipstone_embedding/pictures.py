"""Encoded pictures of callers -> pixels, within limits: nothing of theirs is trusted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image, ImageOps, UnidentifiedImageError

from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.frame_samples import evenly_spaced
from skipstone_shared.picture_damage import PICTURE_DAMAGE

MAX_PICTURE_BYTES = 4 << 20
"""Bytes of one encoded picture; gRPC's limit for a message is the same."""

MAX_PICTURE_PIXELS = 1 << 24
"""Pixels of one picture: 4096 x 4096, 48 MiB when decoded. Told by its header before that."""

MAX_SIDE_RATIO = 20
"""A longer strip would be scaled to nothing, or beyond what a model reads."""

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}

_MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}
"""What becomes 8 bits per channel without a loss that nobody asked for."""


def picture_sizes(item: EmbeddingInput, max_frames: int) -> list[tuple[int, int]]:
    """Width and height of the pictures of an input, by their headers: nothing is decoded.

    A picture that says it lies on its side is not turned yet.

    Args:
        item: A picture or a clip.
        max_frames: Frames of a clip that are looked at.

    Raises:
        InvalidArgument: One is no picture, or larger than the limits; the error names it.
    """
    sizes = []
    for place in evenly_spaced(len(item.frames), max_frames):
        with _opened(item, place) as picture:
            sizes.append(picture.size)
    return sizes


def decoded_frames(item: EmbeddingInput, max_frames: int) -> Iterator[Image.Image]:
    """The pictures of an input, in order; each is decoded when it is asked for.

    Args:
        item: A picture or a clip.
        max_frames: Frames of a clip that are looked at, evenly spaced, the first and last included.

    Yields:
        RGB pictures of their own size.

    Raises:
        InvalidArgument: One is no picture, or larger than the limits; the error names it.
    """
    for place in evenly_spaced(len(item.frames), max_frames):
        with _opened(item, place) as picture:
            found = _as_rgb(picture)
        yield found


def _field(item: EmbeddingInput, place: int) -> str:
    return "image.data" if item.kind == "image" else f"frames.frames[{place}].data"


@contextmanager
def _opened(item: EmbeddingInput, place: int) -> Iterator[Image.Image]:
    """A block that reads a picture whose header is within limits."""
    image, field = item.frames[place], _field(item, place)
    expected = FORMATS.get(image.media_type)
    if expected is None:
        raise InvalidArgument(
            f"the media type {image.media_type[:40]!r} is not known",
            field=field.removesuffix("data") + "media_type",
            allowed=", ".join(FORMATS),
        )
    allowed = f"a picture in {expected} of 1 to {MAX_PICTURE_BYTES} bytes"
    if not 1 <= len(image.data) <= MAX_PICTURE_BYTES:
        raise InvalidArgument(f"{len(image.data)} bytes", field=field, allowed=allowed)
    try:
        # Only this decoder: the others of the library are not for strangers' bytes.
        with Image.open(io.BytesIO(image.data), formats=[expected]) as picture:
            _check_header(picture, field)
            yield picture
    except Image.DecompressionBombError:  # the library looks at the header too
        raise InvalidArgument(
            "it has far too many pixels", field=field, allowed=f"up to {MAX_PICTURE_PIXELS} pixels"
        ) from None
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise InvalidArgument(
            f"it cannot be decoded: {type(error).__name__}", field=field, allowed=allowed
        ) from None
    except PICTURE_DAMAGE as error:
        raise InvalidArgument(
            f"it is damaged: {type(error).__name__}", field=field, allowed=allowed
        ) from None


def _check_header(picture: Image.Image, field: str) -> None:
    """Refuses by the header alone; nothing is decoded yet."""
    width, height = picture.size
    if width * height > MAX_PICTURE_PIXELS:
        raise InvalidArgument(
            f"it has {width} x {height} pixels",
            field=field,
            allowed=f"up to {MAX_PICTURE_PIXELS} pixels",
        )
    if max(width, height) > MAX_SIDE_RATIO * min(width, height):
        raise InvalidArgument(
            f"it has {width} x {height} pixels",
            field=field,
            allowed=f"sides of 1 : {MAX_SIDE_RATIO} at most",
        )
    if picture.mode not in _MODES:
        raise InvalidArgument(
            f"its pixels are of the kind {picture.mode}", field=field, allowed="8 bits per channel"
        )


def _as_rgb(picture: Image.Image) -> Image.Image:
    """Three channels, upright, on white where it is transparent."""
    upright = ImageOps.exif_transpose(picture)
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    layer = upright.convert("RGBA")
    ground = Image.new("RGB", layer.size, "white")
    ground.paste(layer, mask=layer.getchannel("A"))
    return ground
