"""Whose vectors are these? Texts whose vectors tell one model from another.

A remote service can get another model behind the same name. Its vectors of fixed texts betray that:
compared with those from before while this process runs, and as a short mark in the model's id, so
that also after a restart they are not searched together.
"""

from __future__ import annotations

import numpy as np

from skipstone_shared.index_entries import Vector

PROBES = (
    "a red fox in the snow",
    "two tall ships at night",
    "an old man reads a letter",
    "blue",
)
"""Unlike each other in what they say and in length."""

_SAME_COSINE = 0.999
"""Above it two vectors of one text are one model's: half precision and other batches stay above
0.9999 (Qwen3, BERT), another model or revision is far below."""

_ELEMENTS = 512
"""Elements of a vector that the mark looks at."""

_PROJECTIONS = 4096
"""Values of a mark."""


def are_of_one_model(left: list[Vector], right: list[Vector]) -> bool:
    """Whether both are vectors that one model gives to the probes; norms are 1."""
    return all(
        len(a) == len(b) and float(a @ b) >= _SAME_COSINE for a, b in zip(left, right, strict=True)
    )


def mark_of(vectors: list[Vector]) -> int:
    """A number that stays when vectors change by rounding, and differs between models.

    It is the place of the largest among fixed random projections: winner take all hashing (Yagnik,
    Strelow, Ross and Lin 2011, "The power of comparative reasoning"). Vectors that differ by 1e-3
    had another mark in 1 of 750 cases, by 4e-3 in 1 of 170; two models the same in 1 of 4,096.

    Args:
        vectors: One per probe, norm 1.

    Returns:
        0 to 4095.
    """
    signal = np.concatenate([np.asarray(vector[:_ELEMENTS], np.float64) for vector in vectors])
    # The legacy generator: its numbers are promised never to change.
    random = np.random.RandomState(20_260_601)
    values = [float(random.standard_normal(len(signal)) @ signal) for _ in range(_PROJECTIONS)]
    return int(np.argmax(values))
