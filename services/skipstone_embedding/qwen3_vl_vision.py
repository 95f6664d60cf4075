"""Pictures and clips -> the patches that Qwen3-VL looks at.

Written here, since the library's own way for clips needs torchvision, which nothing else does; for
pictures it is bit for bit the library's.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

MAX_FRAMES = 16

MAX_IMAGE_PIXELS = 1800 * 32 * 32
"""Pixels of a picture at most, after scaling: what the embedding model's authors use."""

MAX_FRAME_PIXELS = 768 * 32 * 32
"""Pixels of a clip's frame at most; likewise."""

_MIN_PIXELS = 4 * 32 * 32

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

    def prepare(self, frames: Sequence[Image.Image], *, is_clip: bool) -> Patches:
        """Scales, normalises and cuts into patches.

        Args:
            frames: RGB; those of a clip get the size of the first one.
            is_clip: Whether they are a clip; a picture is one frame, seen twice.
        """
        limit = self.max_frame_pixels if is_clip else self.max_image_pixels
        width, height = frames[0].size
        size = fitted_size(height, width, self._patch * self._merge, _MIN_PIXELS, limit)
        scaled = [frame.resize(size[::-1], Image.Resampling.BICUBIC) for frame in frames]
        pixels = np.stack([np.asarray(frame, np.float32) for frame in scaled])
        # One multiplication and one subtraction, as the library rounds.
        pixels = (pixels * np.float32(1 / 255) - self._mean) / self._std
        missing = -len(pixels) % self._temporal
        pixels = np.concatenate([pixels, np.repeat(pixels[-1:], missing, axis=0)])
        return self._cut(pixels, is_clip)

    def _cut(self, pixels: np.ndarray, is_clip: bool) -> Patches:
        """Cuts ``(frames, height, width, channels)``; patches of one token become neighbours."""
        count, height, width, channels = pixels.shape
        times, rows, columns = (
            count // self._temporal,
            height // self._patch,
            width // self._patch,
        )
        merge, patch = self._merge, self._patch
        blocks = pixels.reshape(
            *(times, self._temporal, rows // merge, merge, patch),
            *(columns // merge, merge, patch, channels),
        )
        # To: time, row, column, row in token, column in token, channel, frame of the pair, y, x.
        ordered = blocks.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)
        flat = ordered.reshape(times * rows * columns, -1)
        return Patches(
            torch.from_numpy(np.ascontiguousarray(flat)), (times, rows, columns), is_clip
        )


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
