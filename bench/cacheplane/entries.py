"""What is stored: entries with five snapshots, of which those that are read have the measured size.

A cache of 100,000 entries with 9.7 MB in each snapshot would take terabytes. So every entry is
there, with five snapshots of about 1 kB, and of some the first snapshot has a measured size.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import ml_dtypes
import numpy as np

from skipstone_shared.index_entries import IndexEntry
from skipstone_shared.latents import LATENTS_PART, LatentRef, SnapshotMetadata
from skipstone_shared.tensor_messages import Array, parts_of

KEY: Final = "c0ffee00" * 4
STEPS: Final = (5, 10, 15, 20, 50)
MEASURED_STEP: Final = STEPS[0]
MODEL: Final = "minilm"
DIMENSION: Final = 384

SHAPES: Final[Mapping[float, tuple[int, ...]]] = MappingProxyType(
    {
        0.13: (1, 16, 64, 64),
        0.52: (1, 4096, 64),  # Flux at 1024 x 1024
        1: (1, 16, 128, 256),
        4: (1, 16, 512, 256),
        8.39: (1, 16, 42, 60, 104),  # as many bytes as Wan at 480p, 81 frames, in float32
        9.7: (1, 16, 21, 90, 160),  # Wan at 720p, 81 frames
        19.4: (1, 16, 42, 90, 160),  # the same in float32
    }
)
"""Shapes of bfloat16 latents by their megabytes."""

USUAL_MB: Final = (0.13, 1, 4, 9.7)
"""The sizes of the pages' tables."""

_SMALL = (1, 16, 4, 8)
_STEPS_OF_A_RUN = 50
_TOLD_APART = 256
"""Whole numbers that bfloat16 holds."""
_PROMPT = "a red fox in the snow at dawn, photograph, soft light, shallow depth of field"


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """Which entries have a snapshot of a measured size.

    Attributes:
        entries: Entries in all.
        mbs: The measured sizes.
        measured: Entries of each.
    """

    entries: int
    mbs: tuple[float, ...]
    measured: int

    def rows(self, mb: float) -> range:
        """The entries with a snapshot of a size, spread evenly over all."""
        first, apart = self.mbs.index(mb), self.entries // self.measured
        return range(first, first + apart * self.measured, apart)

    def by_row(self) -> dict[int, float]:
        """The measured size of each entry that has one."""
        return {row: mb for mb in self.mbs for row in self.rows(mb)}


def entry_id(row: int) -> str:
    """The id of an entry."""
    return f"entry-{row:08d}"


def latents(row: int, mb: float | None) -> Array:
    """Latents of an entry, told from those of others by their first value."""
    array = _base(SHAPES[mb] if mb else _SMALL).copy()
    array.reshape(-1)[0] = row % _TOLD_APART
    return array


def is_of(row: int, array: Array) -> bool:
    """Whether latents are those of an entry."""
    return bool(array.reshape(-1)[0] == row % _TOLD_APART)


def metadata(row: int, step: int, array: Array) -> SnapshotMetadata:
    """What is told of a snapshot."""
    return SnapshotMetadata(
        entry_id(row),
        step,
        _STEPS_OF_A_RUN,
        sigma=1 - step / _STEPS_OF_A_RUN,
        compatibility_key=KEY,
        parts=parts_of({LATENTS_PART: array}),
    )


def index_entry(row: int, snapshots: tuple[LatentRef, ...]) -> IndexEntry:
    """What the index keeps beside the vector."""
    return IndexEntry(entry_id(row), _PROMPT, row, snapshots, embedding_model_id=MODEL)


@functools.cache
def _base(shape: tuple[int, ...]) -> Array:
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    return values.astype(ml_dtypes.bfloat16)
