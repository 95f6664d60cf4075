"""How far two pictures are from each other."""

from __future__ import annotations

from typing import Final

import numpy as np

from skipstone_client.block_cache_sweep.drift import Frames, frames_of
from skipstone_shared.generation import Artifact

DESCRIPTION: Final = (
    "root mean square difference of pixels, at full size and after averaging over 2x2 and 4x4, "
    "mean of the three; unit: its mean over pairs of full runs of one prompt with two seeds"
)

_BLOCKS: Final = (1, 2, 4)


def distance(one: Frames, other: Frames) -> float:
    """Distance of two pictures or clips of one size, in grey levels.

    Three scales, so that an edge moved by a pixel counts less than an object that is elsewhere. It
    stands in for a learned distance such as LPIPS, which would need another model.
    """
    count = min(len(one), len(other))
    difference = one[:count] - other[:count]
    return float(np.mean([_rms(_averaged(difference, block)) for block in _BLOCKS]))


def pixels_of(artifact: Artifact) -> Frames:
    """The frames of a result."""
    return frames_of(artifact)


def _averaged(frames: Frames, block: int) -> Frames:
    height, width = (side - side % block for side in frames.shape[1:3])
    cut = frames[:, :height, :width]
    shape = (len(cut), height // block, block, width // block, block, cut.shape[-1])
    averaged: Frames = cut.reshape(shape).mean(axis=(2, 4))
    return averaged


def _rms(values: Frames) -> float:
    return float(np.sqrt(np.mean(np.square(values), dtype=np.float64)))
