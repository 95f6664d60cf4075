"""The request log and MiniLM's vectors of its prompts."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from search.vectors import Matrix, minilm_vectors

LOG: Final = Path(__file__).parents[1] / "data" / "request_log.csv"
VECTORS: Final = Path("out/bench")
_BATCH = 64


def read_prompts(path: Path = LOG) -> list[str]:
    """The prompts of a log, in the order of the requests."""
    with path.open(encoding="utf-8", newline="") as file:
        return [row["prompt"] for row in csv.DictReader(file)]


def embed(prompts: Sequence[str], folder: Path = VECTORS) -> Matrix:
    """Unit vectors of prompts, a row each; kept in a file, since 3,000 take half a minute.

    Args:
        prompts: Texts; equal ones get equal rows.
        folder: Where the file is kept. Its name has the prompts hashed in.

    Returns:
        float32, (prompts, 384).
    """
    texts = sorted(set(prompts), key=lambda text: (len(text), text))
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = folder / f"minilm-{digest}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path, minilm_vectors(texts))
    vectors: Matrix = np.load(path)
    row_of = {text: row for row, text in enumerate(texts)}
    return vectors[[row_of[prompt] for prompt in prompts]]
