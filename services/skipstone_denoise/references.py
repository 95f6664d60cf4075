"""Reference inputs: encoded bytes to the pictures a pipeline takes."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from skipstone_denoise.model_profile import ModelProfile
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import ReferenceInput
from skipstone_shared.picture_damage import PICTURE_DAMAGE

MAX_PIXELS = 64_000_000
"""A small file may unpack to a huge picture; more pixels than this are refused."""

_FIELD = "params.reference_inputs.data"


def reference_arguments(
    references: tuple[ReferenceInput, ...], profile: ModelProfile
) -> dict[str, Any]:
    """The pictures by the call parameter that takes them.

    Raises:
        InvalidArgument: bytes that are no picture, or too large a one.
    """
    return {
        profile.reference_parameters[reference.role]: decode_picture(reference.data)
        for reference in references
    }


def decode_picture(data: bytes) -> Image.Image:
    """Decodes a PNG or JPEG.

    Raises:
        InvalidArgument: bytes that are no picture, or too large a one.
    """
    try:
        picture = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        if picture.width * picture.height > MAX_PIXELS:
            raise InvalidArgument(
                f"{_FIELD} is a picture of {picture.width} x {picture.height} pixels",
                field=_FIELD,
                allowed=f"at most {MAX_PIXELS} pixels",
            )
        return picture.convert("RGB")
    except (*PICTURE_DAMAGE, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InvalidArgument(
            f"{_FIELD} is not a picture: {error}", field=_FIELD, allowed="a PNG or JPEG"
        ) from None
