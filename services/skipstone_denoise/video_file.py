"""Frames of a video as the bytes of a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from PIL import Image

_OPTIONS = {
    # Keeps up with one thread: seconds for the longest videos that models make.
    "preset": "veryfast",
    # Else x264 makes another file of the same frames now and then: one time in three at 80x64.
    "mbtree": "0",
}
_THREADS = 1
"""The file depends on how many there are, and is to be the same on every machine."""

_LARGEST_DENOMINATOR = 1001
"""Of frame rates, which files hold as fractions."""

_NTSC = (24, 30, 48, 60, 120)
"""Rates that television slows down by 1000/1001, and people write with two or three places: 23.976,
29.97, 59.94."""
_NTSC_ROUNDING = 0.005


def exact_rate(frame_rate: float) -> Fraction:
    """The rate that is meant by a number: 24000/1001 by 23.976.

    Args:
        frame_rate: Frames per second, 1 or more.
    """
    for whole in _NTSC:
        slowed = Fraction(whole * 1000, 1001)
        if abs(slowed - Fraction(frame_rate)) < _NTSC_ROUNDING:
            return slowed
    return Fraction(frame_rate).limit_denominator(_LARGEST_DENOMINATOR)


def mp4_bytes(frames: Sequence[Image.Image], frame_rate: float, crf: int) -> bytes:
    """An MP4 with H.264.

    The same frames give the same bytes: no time, no host and no version of a program is written.

    Args:
        frames: RGB pictures of one size.
        frame_rate: Frames per second, 1 or more.
        crf: Constant rate factor of x264: 0 (lossless) to 51.
    """
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4", options={"fflags": "+bitexact"}) as file:
        rate = exact_rate(frame_rate)
        stream = file.add_stream("libx264", rate, options={"crf": str(crf)} | _OPTIONS)
        stream.width, stream.height = frames[0].size
        # Half the colour resolution plays everywhere, but needs even sides.
        odd = stream.width % 2 or stream.height % 2
        stream.pix_fmt = "yuv444p" if odd else "yuv420p"
        context = stream.codec_context
        context.thread_count = _THREADS
        context.color_range = ColorRange.MPEG
        context.colorspace = Colorspace.ITU709
        context.color_primaries = ColorPrimaries.BT709
        context.color_trc = ColorTrc.BT709
        for picture in frames:
            pixels = np.asarray(picture.convert("RGB"))
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(
                format=stream.pix_fmt, dst_colorspace="ITU709", dst_color_range="MPEG"
            )
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def gif_bytes(frames: Sequence[Image.Image], frame_rate: float) -> bytes:
    """An endless GIF: 256 colours, and times in hundredths of a second.

    Args:
        frames: RGB pictures of one size.
        frame_rate: Frames per second, 1 or more; viewers slow down what is above 50.
    """
    buffer = io.BytesIO()
    duration_ms = max(1, round(1000 / frame_rate))
    frames[0].save(
        buffer, "GIF", save_all=True, append_images=frames[1:], duration=duration_ms, loop=0
    )
    return buffer.getvalue()
