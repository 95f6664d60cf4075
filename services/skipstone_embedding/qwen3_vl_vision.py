"""Pictures and clips -> the patches that Qwen3-VL looks at.

Written here, since the library's own way for clips needs torchvision, which nothing else does.
Sizes are those of the embedding model's authors (QwenLM/Qwen3-VL-Embedding with qwen-vl-utils
0.0.14).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

MAX_IMAGE_PIXELS = 1800 * 32 * 32
"""Pixels of a picture at most, after scaling."""

MAX_FRAME_PIXELS = 768 * 32 * 32
"""Pixels of a clip's frame at most. The authors' limit of a whole clip lowers it from 21 frames on,
which is more than are taken here."""

_MIN_IMAGE_PIXELS = 4 * 32 * 32

_MIN_FRAME_PIXELS = 128 * 32 * 32

_HALF = (0.5, 0.5, 0.5)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """A picture or clip as the model takes it.

    Attributes:
        values: float32 ``(frame pairs * rows * columns, channels * 2 * patch * patch)``.
        grid: Frame pairs, rows and columns of patches.
        is_clip: Whether it is a clip.
    """

    values: torch.Tensor
    grid: tuple[int, int, int]
    is_clip: bool


class VisionRules:
    """Sizes and colours that a model expects."""

    def __init__(self, vision_config: Any, directory: Path, max_pixels: int = 0) -> None:
        """Reads them.

        Args:
            vision_config: Of the model.
            directory: Of the model, with its preprocessor_config.json if it has one.
            max_pixels: Pixels of a picture at most, after scaling; 0: as the authors have it.
        """
        self._patch = vision_config.patch_size
        self._merge = vision_config.spatial_merge_size
        self._temporal = vision_config.temporal_patch_size
        path = directory / "preprocessor_config.json"
        told = json.loads(path.read_bytes()) if path.is_file() else {}
        self._mean = np.array(told.get("image_mean", _HALF), np.float32)
        self._std = np.array(told.get("image_std", _HALF), np.float32)
        self.max_image_pixels = max_pixels or MAX_IMAGE_PIXELS
        self.max_frame_pixels = min(self.max_image_pixels, MAX_FRAME_PIXELS)

    @property
    def patches_per_token(self) -> int:
        """Patches that become one token."""
        return int(self._merge**2)

    def grid(self, width: int, height: int, frames: int, *, is_clip: bool) -> tuple[int, int, int]:
        """Steps of time, rows and columns of patches of a picture or clip.

        Args:
            width: Of the picture, or of the first frame.
            height: Likewise; a picture on its side has as many patches as upright.
            frames: How many there are.
            is_clip: Whether it is a clip.
        """
        rows, columns = (side // self._patch for side in self._sizes(width, height, is_clip)[-1])
        return math.ceil(frames / self._temporal), rows, columns

    def prepare(self, frames: Iterable[Image.Image], count: int, *, is_clip: bool) -> Patches:
        """Scales, normalises and cuts into patches; one frame is in memory at its own size.

        Args:
            frames: RGB; those of a clip get the size of the first one.
            count: How many there are.
            is_clip: Whether they are a clip; a picture is one frame, seen twice.
        """
        values = np.empty(0, np.float32)
        grid = (0, 0, 0)
        sizes: list[tuple[int, int]] = []
        for place, frame in enumerate(frames):
            if not sizes:
                sizes = self._sizes(*frame.size, is_clip)
                grid = self.grid(*frame.size, count, is_clip=is_clip)
                values = self._blocks(grid)
            time, moment = divmod(place, self._temporal)
            # A last step of time that is not full sees its last frame again.
            last = place == count - 1
            values[time, ..., moment : None if last else moment + 1, :, :] = self._cut(
                self._pixels(frame, sizes), grid
            )
        flat = values.reshape(math.prod(grid), -1)
        return Patches(torch.from_numpy(flat), grid, is_clip)

    def _sizes(self, width: int, height: int, is_clip: bool) -> list[tuple[int, int]]:
        """Heights and widths that a frame is scaled to, one after the other."""
        factor = self._patch * self._merge
        if not is_clip:
            limits = (_MIN_IMAGE_PIXELS, self.max_image_pixels)
            return [fitted_size(height, width, factor, *limits)]
        # In two steps as qwen-vl-utils does with lists of frames, the first to multiples of twice
        # the usual: with that the authors measured their model.
        least = (2 * factor) ** 2
        first = fitted_size(height, width, 2 * factor, 4 * least, 16_384 * least)
        limits = (min(_MIN_FRAME_PIXELS, self.max_frame_pixels), self.max_frame_pixels)
        return [first, fitted_size(*first, factor, *limits)]

    def _pixels(self, frame: Image.Image, sizes: list[tuple[int, int]]) -> np.ndarray:
        """A frame scaled and normalised, float32 ``(height, width, channels)``."""
        scaled = frame.resize(sizes[0][::-1], Image.Resampling.BICUBIC)
        pixels = np.asarray(scaled, np.float32)
        for size in sizes[1:]:
            pixels = _resized(pixels, size)
        # One multiplication and one subtraction, as the library rounds.
        normal: np.ndarray = (pixels * np.float32(1 / 255) - self._mean) / self._std
        return normal

    def _blocks(self, grid: tuple[int, int, int]) -> np.ndarray:
        """Room for patches; those of one token are neighbours.

        Axes: time, row, column, row in token, column in token, channel, frame of the step, y, x.
        """
        times, rows, columns = grid
        merge, patch = self._merge, self._patch
        shape = (rows // merge, columns // merge, merge, merge, len(_HALF), self._temporal)
        return np.empty((times, *shape, patch, patch), np.float32)

    def _cut(self, pixels: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
        """Cuts ``(height, width, channels)`` into blocks of one frame."""
        _, rows, columns = grid
        merge, patch = self._merge, self._patch
        sides = (rows // merge, merge, patch, columns // merge, merge, patch, len(_HALF))
        return pixels.reshape(sides).transpose(0, 3, 1, 4, 6, 2, 5)[..., None, :, :]


def _resized(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scales ``(height, width, channels)`` of 0 to 255 as torchvision does: whole numbers again."""
    if pixels.shape[:2] == size:
        return pixels
    planes = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))[None]
    scaled = torch.nn.functional.interpolate(
        planes, size=size, mode="bicubic", align_corners=False, antialias=True
    )
    whole: np.ndarray = scaled[0].clamp(0, 255).round().permute(1, 2, 0).numpy()
    return whole


def fitted_size(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """The size that a picture is scaled to: sides are multiples of `factor`, its shape stays.

    It is what Qwen's processors call smart_resize.
    """
    rows, columns = max(1, round(height / factor)), max(1, round(width / factor))
    area = rows * columns * factor**2
    if area > max_pixels:
        scale = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / scale / factor))
        columns = max(1, math.floor(width / scale / factor))
    elif area < min_pixels:
        scale = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * scale / factor)
        columns = math.ceil(width * scale / factor)
    return rows * factor, columns * factor
