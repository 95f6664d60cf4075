"""The contract of a set of vectors that is searched as one."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float32]


class Vectors(Protocol):
    """Labelled unit vectors of one dimension.

    Not safe against a change during any other call; `AdaptiveVectors` adds the lock. Labels are
    unique within a call.
    """

    @property
    def live_count(self) -> int:
        """Vectors that a search can find."""
        ...

    @property
    def tombstone_count(self) -> int:
        """Vectors removed whose space is not yet reclaimed."""
        ...

    def put(self, labels: Labels, vectors: Matrix) -> None:
        """Adds vectors ``(len(labels), dimension)``; those of known labels are replaced."""
        ...

    def remove(self, labels: Labels) -> None:
        """Removes vectors; unknown labels are passed over."""
        ...

    def nearest(self, queries: Matrix, count: int) -> list[Labels]:
        """Returns per query the labels of about ``count`` closest vectors, in no order.

        All of them when there are no more than ``count``; more than ``count`` when several are
        equally close at the edge.
        """
        ...

    def labels(self) -> Labels:
        """Returns a copy of all live labels, in no order."""
        ...

    def read(self, labels: Labels) -> tuple[Labels, Matrix]:
        """Returns those of the labels that are live, and copies of their vectors."""
        ...
