"""Vectors to search among, and what exact search finds."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import SkipstoneError

Matrix = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_TOPIC_SIZE = 100
_SPREAD = 0.3
_BATCH = 64
_EXACT_ROWS = 256
_NEIGHBOURS = 20
_JITTER = 0.02


def clustered(count: int, dimension: int, topics: int, seed: int) -> Matrix:
    """Unit vectors as prompts give them: many around few topics, the same for every seed."""
    centres = np.random.default_rng(7).standard_normal((topics, dimension), np.float32)
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(topics, size=count)]
    rows += _SPREAD * rng.standard_normal((count, dimension), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def clustered_split(count: int, queries: int, dimension: int) -> tuple[Matrix, Matrix]:
    """Entries, and queries around the same topics that are no entries."""
    topics = max(1, count // _TOPIC_SIZE)
    return clustered(count, dimension, topics, 0), clustered(queries, dimension, topics, 1)


def prompt_split(paths: Sequence[Path], count: int, queries: int) -> tuple[Matrix, Matrix]:
    """MiniLM's vectors of the distinct prompts in tables, the last of them as queries.

    When more are wanted than there are, mixtures of two that are close to each other are added, as
    edits of one prompt lie between others.
    """
    texts = list(dict.fromkeys(text for path in paths for text in _prompts(path)))
    texts = texts[: count + queries]
    rows = minilm_vectors(texts)
    entries, asked = rows[:-queries], rows[-queries:]
    return np.concatenate([entries, mixtures(entries, count - len(entries), 0)]), asked


def minilm_vectors(texts: Sequence[str]) -> Matrix:
    """MiniLM's unit vectors of texts, one row each."""
    encoder = load_minilm()
    vectors: list[Matrix] = []
    for start in range(0, len(texts), _BATCH):
        batch = [EmbeddingInput(text=text) for text in texts[start : start + _BATCH]]
        for found in encoder.encode(batch):
            if isinstance(found, SkipstoneError):
                raise found
            vectors.append(np.asarray(found.vector, np.float32))
    return np.stack(vectors)


def mixtures(rows: Matrix, count: int, seed: int) -> Matrix:
    """Unit vectors between a row and one of its nearest neighbours, a little off the line."""
    rng = np.random.default_rng(seed)
    neighbours = nearest_exactly(rows, rows, _NEIGHBOURS)
    first = rng.integers(len(rows), size=count)
    second = neighbours[first, rng.integers(_NEIGHBOURS, size=count)]
    share = rng.uniform(0.1, 0.5, size=(count, 1)).astype(np.float32)
    mixed: Matrix = (1 - share) * rows[first] + share * rows[second]
    mixed += _JITTER * rng.standard_normal(mixed.shape, np.float32)
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    return mixed


def _prompts(path: Path) -> list[str]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter=delimiter)
        return [value for row in rows for name, value in row.items() if name.lower() == "prompt"]


def nearest_exactly(entries: Matrix, queries: Matrix, top_k: int) -> Ids:
    """The rows nearest to each query, best first."""
    found = []
    for start in range(0, len(queries), _EXACT_ROWS):
        similarities = queries[start : start + _EXACT_ROWS] @ entries.T
        best = np.argpartition(similarities, -top_k, axis=1)[:, -top_k:]
        order = np.argsort(-np.take_along_axis(similarities, best, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(best, order, axis=1))
    return np.concatenate(found)
