"""Pictures of callers: what is taken, and what is refused before it costs anything."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.unit.embedding.tiny_vision import encoded, picture, png

from skipstone_embedding.pictures import (
    MAX_PICTURE_BYTES,
    MAX_PICTURE_PIXELS,
    decoded_frames,
    picture_sizes,
)
from skipstone_shared.embeddings import EmbeddingInput, EncodedImage
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.frame_samples import evenly_spaced


def decode(*images: EncodedImage, max_frames: int = 16) -> list[Image.Image]:
    return list(decoded_frames(EmbeddingInput(frames=images), max_frames))


@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg"])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "1", "P", "LA", "RGBA"])
def test_the_usual_kinds_of_pixels_become_red_green_and_blue(media_type: str, mode: str) -> None:
    image = Image.new("RGB", (8, 6), "red").convert(mode)
    try:
        sent = encoded(image, media_type)
    except OSError:
        return  # no picture of this format has such pixels
    (found,) = decode(sent)
    assert (found.mode, found.size) == ("RGB", (8, 6))


def test_what_is_transparent_is_white() -> None:
    (found,) = decode(encoded(Image.new("RGBA", (4, 4), (255, 0, 0, 0))))
    assert found.getpixel((0, 0)) == (255, 255, 255)


def test_a_photo_is_turned_as_its_camera_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (found,) = decode(encoded(Image.new("RGB", (40, 20)), "image/jpeg", exif=exif))
    assert found.size == (20, 40)


def test_sizes_are_told_by_headers_alone() -> None:
    """What a call costs is known before it costs anything."""
    clip = EmbeddingInput(frames=(png(4000, 3000), png(300, 500), png(20, 20)))
    assert picture_sizes(clip, 2) == [(4000, 3000), (20, 20)]
    with pytest.raises(InvalidArgument, match="cannot be decoded"):
        decode(png(4000, 3000))


def test_frames_are_decoded_one_by_one() -> None:
    frames = decoded_frames(EmbeddingInput(frames=(picture(0), picture(1), png(9, 9))), 16)
    assert [next(frames).size for _ in range(2)] == [(48, 32)] * 2
    with pytest.raises(InvalidArgument) as caught:
        next(frames)
    assert caught.value.field == "frames.frames[2].data"


@pytest.mark.parametrize(
    ("image", "message", "field"),
    [
        (EncodedImage("image/png", b""), "0 bytes", "image.data"),
        (EncodedImage("image/png", b"\x89PNG"), "cannot be decoded", "image.data"),
        (EncodedImage("image/png", b"x" * (MAX_PICTURE_BYTES + 1)), "bytes", "image.data"),
        (EncodedImage("image/gif", b"GIF89a"), "media type", "image.media_type"),
        (EncodedImage("", b"x"), "media type", "image.media_type"),
        (EncodedImage("image/png", picture(0, (8, 8), "image/jpeg").data), "decoded", "image.data"),
        (EncodedImage("image/jpeg", picture().data), "cannot be decoded", "image.data"),
        (EncodedImage("image/png", picture().data[:-30]), "cannot be decoded", "image.data"),
        (png(50_000, 50_000), "pixels", "image.data"),
        (png(8192, 2049), "8192 x 2049 pixels", "image.data"),
        (png(2_000_000, 1), "pixels", "image.data"),
        (png(2100, 100), "2100 x 100 pixels", "image.data"),
        (encoded(Image.new("I;16", (8, 8))), "kind I;16", "image.data"),
    ],
)
def test_what_is_no_picture_or_too_large_is_refused(
    image: EncodedImage, message: str, field: str
) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        decode(image)
    assert caught.value.field == field
    assert caught.value.allowed
    if "decoded" not in message:
        with pytest.raises(InvalidArgument, match=message):
            picture_sizes(EmbeddingInput(frames=(image,)), 1)


def test_a_bomb_is_refused_by_its_header_alone() -> None:
    """A megabyte of nothing that would unpack to gigabytes."""
    bomb = png(30_000, 30_000, bytes(1 << 26))
    assert len(bomb.data) < 1 << 20
    tracemalloc.start()
    with pytest.raises(InvalidArgument):
        decode(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_of_a_clip_the_bad_frame_is_named() -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode(picture(0), picture(1), EncodedImage("image/png", b"\x89PNG"))
    assert caught.value.field == "frames.frames[2].data"


@pytest.mark.parametrize(
    ("count", "limit", "places"),
    [
        (3, 16, [0, 1, 2]),
        (16, 16, list(range(16))),
        (16, 4, [0, 5, 10, 15]),
        (16, 8, [0, 2, 4, 6, 8, 10, 12, 15]),
        (81, 3, [0, 40, 80]),
        (9, 1, [4]),
    ],
)
def test_frames_are_taken_evenly_from_first_to_last(
    count: int, limit: int, places: list[int]
) -> None:
    assert list(evenly_spaced(count, limit)) == places


@given(st.integers(1, 200), st.integers(1, 16))
def test_no_frame_is_taken_twice_and_gaps_differ_by_one_at_most(count: int, limit: int) -> None:
    places = list(evenly_spaced(count, limit))
    assert len(places) == len(set(places)) == min(count, limit)
    if len(places) > 1:
        gaps = np.diff(places)
        assert (places[0], places[-1]) == (0, count - 1)
        assert gaps.max() - gaps.min() <= 1


def test_only_frames_that_are_looked_at_are_decoded() -> None:
    frames = [picture(n) for n in range(5)]
    frames[1] = EncodedImage("image/png", b"broken")
    assert len(decode(*frames, max_frames=3)) == 3


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40), st.integers(0, 200), st.sampled_from(["image/png", "image/jpeg"]))
def test_damaged_bytes_are_a_picture_or_an_error_of_the_caller(
    noise: bytes, place: int, media_type: str
) -> None:
    data = picture(0, (24, 24), media_type).data
    data = data[:place] + noise + data[place + len(noise) :]
    with contextlib.suppress(InvalidArgument):
        (found,) = decode(EncodedImage(media_type, data))
        assert found.width * found.height <= MAX_PICTURE_PIXELS
