"""How vectors are compared and kept: the one place that knows metric and precision."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import Vector

MAX_DIMENSION = 8192
_MAX_NORM = 1e18
"""Of an inner product: that of two such vectors is still a finite float32."""

Matrix = npt.NDArray[np.float32]


class Metric(Enum):
    """What the similarity of a vector and a query is."""

    COSINE = "cosine"
    INNER_PRODUCT = "inner_product"


@dataclasses.dataclass(frozen=True, slots=True)
class VectorForm:
    """The form of all vectors of an index.

    Attributes:
        metric: How they are compared.
        half: Whether they are rounded to float16 to be stored. Compared they always are in float32,
            the same before and after a restart.
    """

    metric: Metric = Metric.COSINE
    half: bool = False

    def stored(self, vector: Vector, dimension: int | None) -> Vector:
        """Returns a vector as it is kept, float32 ``(dimension,)``: scaled to norm 1 for a cosine.

        Args:
            vector: What the caller sent.
            dimension: Elements a vector of the partition has; None when it has no entries.

        Raises:
            InvalidArgument: It is zero, not finite, too large, not one-dimensional or not of
                ``dimension``.
        """
        kept = self._checked(vector, "vector", dimension)
        if not self.half:
            return kept
        with np.errstate(over="ignore", under="ignore"):
            rounded = kept.astype(np.float16).astype(np.float32)
        if not np.isfinite(rounded).all() or not rounded.any():
            raise InvalidArgument(
                "vector does not fit into float16",
                field="vector",
                allowed="elements up to 65504, not all below 6e-8",
            )
        return rounded

    def queries(self, queries: Sequence[Vector], dimension: int | None) -> Matrix:
        """Returns queries as they are compared, float32 ``(len(queries), dimension)``.

        Raises:
            InvalidArgument: One of them is no vector of the partition.
        """
        checked = []
        for index, query in enumerate(queries):
            checked.append(self._checked(query, f"queries[{index}]", dimension))
            dimension = checked[-1].size
        return np.array(checked)

    def searchable(self, rows: Matrix) -> Matrix:
        """Returns stored vectors ``(n, dimension)`` so that their inner product is the similarity.

        What was rounded to float16 is no unit vector any more.
        """
        if self.metric is Metric.INNER_PRODUCT:
            return rows
        scaled: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return scaled

    def similarities(self, rows: Matrix, query: Vector) -> list[float]:
        """Returns the similarity of stored vectors ``(n, dimension)`` to a query.

        Summed in float64 and rounded to float32, so that equal vectors have equal similarities
        wherever they stand in the matrix: BLAS adds up rows in an order that depends on their
        place.
        """
        wide, other = rows.astype(np.float64), query.astype(np.float64)
        exact: npt.NDArray[np.float64] = wide @ other
        if self.metric is Metric.COSINE:
            # A unit vector in float32 is a little off norm 1; without this a vector is not its own
            # equal.
            exact /= np.sqrt(np.einsum("ij,ij->i", wide, wide) * (other @ other))
            exact = exact.clip(-1.0, 1.0)
        rounded: list[float] = exact.astype(np.float32).tolist()
        return rounded

    def _checked(self, vector: Vector, field: str, dimension: int | None) -> Vector:
        array = np.asarray(vector, dtype=np.float32)
        if array.ndim != 1 or not 1 <= array.size <= MAX_DIMENSION:
            raise InvalidArgument(
                f"{field} has shape {array.shape}",
                field=field,
                allowed=f"one dimension of 1 to {MAX_DIMENSION} elements",
            )
        if dimension is not None and array.size != dimension:
            raise InvalidArgument(
                f"{field} has {array.size} elements",
                field=field,
                allowed=f"{dimension}, as the vectors of this partition",
            )
        # float64, since the square of a large float32 is infinite and of a small one zero.
        wide = array.astype(np.float64)
        norm = float(np.sqrt(wide @ wide))
        if not math.isfinite(norm) or norm == 0.0:
            what = "zero" if norm == 0.0 else "not finite"
            raise InvalidArgument(
                f"{field} is {what}", field=field, allowed="finite elements, not all zero"
            )
        if self.metric is Metric.INNER_PRODUCT:
            if norm > _MAX_NORM:
                raise InvalidArgument(
                    f"{field} has norm {norm:.3g}", field=field, allowed=f"up to {_MAX_NORM:.0e}"
                )
            return array
        unit: Vector = (wide / norm).astype(np.float32)
        return unit
