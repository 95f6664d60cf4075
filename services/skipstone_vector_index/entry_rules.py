"""What an index accepts: the checks every implementation makes, and the arithmetic of cosines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry, Vector, VectorEntry
from skipstone_shared.latents import NAMESPACE_PATTERN, checked_entry_id

MAX_BATCH_SIZE = 1000
MAX_TOP_K = 1000
MAX_DIMENSION = 8192
MAX_PAGE_SIZE = 1000
MAX_PROMPT_BYTES = 20_000
MAX_LABELS = 16
MAX_LABEL_BYTES = 256

_INT64 = range(-(2**63), 2**63)
_INT32 = range(2**31)


def checked_compatibility_key(key: str) -> str:
    """Returns the key.

    Raises:
        InvalidArgument: It is no name.
    """
    if not NAMESPACE_PATTERN.fullmatch(key):
        raise InvalidArgument(
            f"compatibility_key {key[:80]!r} is not a key",
            field="compatibility_key",
            allowed="1 to 64 characters of [A-Za-z0-9_.-]",
        )
    return key


def check_count(field: str, count: int, limit: int = MAX_BATCH_SIZE) -> None:
    """Checks the number of things in a call, or a number that the caller chose.

    Raises:
        InvalidArgument: It is not 1 to ``limit``.
    """
    if not 1 <= count <= limit:
        raise InvalidArgument(f"{field} is {count}", field=field, allowed=f"1 to {limit}")


def checked_entry(entry: VectorEntry, dimension: int | None) -> tuple[IndexEntry, Vector]:
    """Returns an entry and its normalised vector.

    Args:
        entry: What the caller sent.
        dimension: Elements a vector of the partition has; None when it has no entries.

    Raises:
        InvalidArgument: A field of it is not allowed.
    """
    info = entry.entry
    checked_entry_id(info.entry_id)
    _check_size("prompt", info.prompt, MAX_PROMPT_BYTES)
    if len(info.labels) > MAX_LABELS:
        raise InvalidArgument(
            f"{len(info.labels)} labels", field="labels", allowed=f"at most {MAX_LABELS}"
        )
    for name, value in info.labels.items():
        _check_size("labels", name, MAX_LABEL_BYTES)
        _check_size("labels", value, MAX_LABEL_BYTES)
    _check_size("embedding_model_id", info.embedding_model_id, MAX_PROMPT_BYTES)
    if info.seed not in _INT64:
        raise InvalidArgument(
            "seed is no 64-bit integer", field="seed", allowed="-2**63 to 2**63-1"
        )
    if info.depth not in _INT32:
        raise InvalidArgument(f"depth is {info.depth}", field="depth", allowed="0 to 2**31-1")
    if not 0 <= info.create_time < math.inf:
        raise InvalidArgument(
            f"create_time is {info.create_time}", field="create_time", allowed="finite, 0 and up"
        )
    steps = [ref.step_index for ref in info.snapshots]
    if steps != sorted(set(steps)):
        raise InvalidArgument(
            f"snapshots are at steps {steps[:8]}",
            field="snapshots",
            allowed="each step_index once, ascending",
        )
    return dataclasses.replace(info, labels=dict(info.labels)), unit_vector(
        entry.vector, "vector", dimension
    )


def _check_size(field: str, text: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{field} is not valid Unicode", field=field, allowed="text without lone surrogates"
        ) from None
    if size > limit:
        raise InvalidArgument(
            f"{field} has {size} bytes", field=field, allowed=f"at most {limit} bytes"
        )


def unit_vector(vector: Vector, field: str, dimension: int | None = None) -> Vector:
    """Returns a vector scaled to L2 norm 1, float32 ``(dimension,)``.

    Raises:
        InvalidArgument: It is zero, not finite, not one-dimensional or not of ``dimension``.
    """
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
    unit: Vector = (wide / norm).astype(np.float32)
    return unit


def unit_queries(queries: Sequence[Vector], dimension: int | None) -> npt.NDArray[np.float32]:
    """Returns the queries scaled to norm 1, float32 ``(len(queries), dimension)``.

    Raises:
        InvalidArgument: One of them is no vector of the partition.
    """
    units = []
    for index, query in enumerate(queries):
        units.append(unit_vector(query, f"queries[{index}]", dimension))
        dimension = units[-1].size
    return np.stack(units)


def cosines(rows: npt.NDArray[np.float32], query: Vector) -> list[float]:
    """Returns the similarity of unit vectors ``(n, dimension)`` to a unit query.

    Summed in float64 and rounded to float32, so that equal vectors have equal similarities
    wherever they stand in the matrix: BLAS adds up rows in an order that depends on their place.
    """
    wide, other = rows.astype(np.float64), query.astype(np.float64)
    # A unit vector in float32 is a little off norm 1; without this a vector is not its own equal.
    exact = (wide @ other) / (np.linalg.norm(wide, axis=1) * np.linalg.norm(other))
    rounded: list[float] = np.clip(exact, -1.0, 1.0).astype(np.float32).tolist()
    return rounded


def check_min_similarity(value: float | None) -> None:
    """Checks the lower bound of a search.

    Raises:
        InvalidArgument: It is not a number.
    """
    if value is not None and math.isnan(value):
        raise InvalidArgument(
            "min_similarity is not a number", field="min_similarity", allowed="-1 to 1"
        )
