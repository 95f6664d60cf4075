"""The order of hits that the contract promises, from candidates however they were found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from skipstone_shared.index_entries import Vector
from skipstone_vector_index.vector_form import VectorForm


class Candidate(Protocol):
    """What can become a hit."""

    @property
    def entry_id(self) -> str:
        """Id of the entry."""
        ...

    @property
    def vector(self) -> Vector:
        """Vector as stored, float32 ``(dimension,)``."""
        ...


CandidateT = TypeVar("CandidateT", bound=Candidate)


def best_hits(
    form: VectorForm,
    query: Vector,
    candidates: Sequence[CandidateT],
    top_k: int,
    min_similarity: float | None,
) -> list[tuple[CandidateT, float]]:
    """Returns the best candidates and their similarities, computed exactly.

    Args:
        form: How vectors are compared.
        query: What they are compared with.
        candidates: Distinct entries of one dimension.
        top_k: Most hits wanted.
        min_similarity: Only hits with at least this similarity; None for all.

    Returns:
        Best first, equal similarities by ascending entry id.
    """
    if not candidates:
        return []
    least = -math.inf if min_similarity is None else min_similarity
    rows = np.array([candidate.vector for candidate in candidates])
    similarities = form.similarities(rows, query)
    scored = [
        (-similarity, candidate.entry_id, candidate)
        for similarity, candidate in zip(similarities, candidates, strict=True)
        if similarity >= least
    ]
    scored.sort(key=lambda item: item[:2])
    return [(candidate, -negative) for negative, _, candidate in scored[:top_k]]
