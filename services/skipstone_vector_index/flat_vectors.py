"""Exact search: every vector is compared."""

from __future__ import annotations

import numpy as np

from skipstone_vector_index.vectors import Labels, Matrix

_MIN_ROWS = 16

_ROUNDING = 2e-6
"""Twice what a float32 dot product of unit vectors errs by: under 1e-6, measured for 64 to 8192
elements. It grows with the norms of both."""


class FlatVectors:
    """Vectors as rows of one matrix that doubles when full."""

    def __init__(self, dimension: int, rows: int = _MIN_ROWS) -> None:
        """Creates an empty set.

        Args:
            dimension: Elements of a vector.
            rows: Vectors to make room for.
        """
        self._matrix: Matrix = np.empty((max(rows, _MIN_ROWS), dimension), np.float32)
        self._labels: Labels = np.empty(len(self._matrix), np.int64)
        self._rows: dict[int, int] = {}
        self._largest_norm = 0.0

    @property
    def live_count(self) -> int:
        """Vectors that a search can find."""
        return len(self._rows)

    @property
    def tombstone_count(self) -> int:
        """Always 0: a removed row is filled at once."""
        return 0

    def put(self, labels: Labels, vectors: Matrix) -> None:
        """Adds or replaces vectors."""
        self._reserve(len(self._rows) + len(labels))
        if len(labels):
            largest = float(np.linalg.norm(vectors, axis=1).max())
            self._largest_norm = max(self._largest_norm, largest)
        for label, vector in zip(labels.tolist(), vectors, strict=True):
            row = self._rows.setdefault(label, len(self._rows))
            self._labels[row] = label
            self._matrix[row] = vector

    def remove(self, labels: Labels) -> None:
        """Removes vectors; the last row moves into the hole."""
        for label in labels.tolist():
            row = self._rows.pop(label, None)
            last = len(self._rows)
            if row is None or row == last:
                continue
            self._matrix[row] = self._matrix[last]
            self._labels[row] = self._labels[last]
            self._rows[int(self._labels[row])] = row

    def nearest(self, queries: Matrix, count: int) -> list[Labels]:
        """Returns the closest vectors, with all that are equally close at the edge."""
        live = len(self._rows)
        labels = self._labels[:live]
        if live <= count:
            return [labels.copy() for _ in queries]
        similarities = queries @ self._matrix[:live].T
        edges = np.partition(similarities, live - count, axis=1)[:, live - count]
        errors = _ROUNDING * self._largest_norm * np.linalg.norm(queries, axis=1)
        return [
            labels[row >= edge - error]
            for row, edge, error in zip(similarities, edges, errors, strict=True)
        ]

    def labels(self) -> Labels:
        """Returns a copy of all labels."""
        return self._labels[: len(self._rows)].copy()

    def read(self, labels: Labels) -> tuple[Labels, Matrix]:
        """Returns those of the labels that are here, and copies of their vectors."""
        rows = [row for label in labels.tolist() if (row := self._rows.get(label)) is not None]
        return self._labels[rows], self._matrix[rows]

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._matrix):
            return
        size = max(rows, 2 * len(self._matrix))
        self._matrix = np.concatenate(
            [self._matrix, np.empty((size - len(self._matrix), self._matrix.shape[1]), np.float32)]
        )
        self._labels = np.resize(self._labels, size)
