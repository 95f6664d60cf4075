"""Pairs of prompts to measure: an earlier one that would donate, and a later one that would ask."""

from __future__ import annotations

import csv
import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from skipstone_shared.errors import InvalidArgument

REWORDED: Final = "reworded"
"""Relation of two prompts that ask for the same picture."""

ADDED: Final = "added"
"""Relation of a donor to a prompt that asks for the same and more. Any other name is of something
that was changed."""

UNKNOWN: Final = ""
"""Relation of two prompts of a log: nobody has said whether they ask for the same."""

_LEAST_SIMILARITY: Final = 0.5
_MAX_PROMPTS: Final = 3000

Vectors = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts.

    Attributes:
        donor: The earlier one.
        prompt: The later one.
        relation: `reworded`, `added`, what was changed (for example `colour`), or empty where
            unknown.
    """

    donor: str
    prompt: str
    relation: str = UNKNOWN

    @property
    def is_edit(self) -> bool:
        """Whether the pair is known to differ in something a picture shows."""
        return self.relation not in (UNKNOWN, REWORDED, ADDED)


def read_pairs(path: Path, seed: int, embed: Callable[[Sequence[str]], Vectors]) -> list[Pair]:
    """Pairs of a CSV file, in a random order that the seed fixes.

    Columns `donor`, `prompt` and perhaps `relation` are pairs as they are. A column `prompt` alone
    is a log in order: each prompt is paired with the nearest one before it.

    Args:
        path: The file.
        seed: Of the sample.
        embed: Gives the vectors of prompts, `(prompts, dimension)`, L2 norm 1.

    Raises:
        InvalidArgument: The file cannot be read, or lacks the column.
    """
    rows = _rows(path)
    if "donor" in rows[0]:
        pairs = [Pair(r["donor"], r["prompt"], r.get("relation") or UNKNOWN) for r in rows]
    else:
        pairs = nearest_earlier([row["prompt"] for row in rows][:_MAX_PROMPTS], embed)
    pairs = [pair for pair in dict.fromkeys(pairs) if pair.donor.strip() and pair.prompt.strip()]
    random.Random(seed).shuffle(pairs)
    return pairs


def nearest_earlier(
    prompts: Sequence[str], embed: Callable[[Sequence[str]], Vectors]
) -> list[Pair]:
    """Every prompt with the most similar other one before it; without what nothing resembles."""
    vectors = embed(prompts)
    pairs = []
    for place in range(1, len(prompts)):
        similarities = vectors[:place] @ vectors[place]
        # The same prompt again is no pair: it is measured as the diversity of seeds.
        similarities[[prompts[i] == prompts[place] for i in range(place)]] = -1.0
        best = int(similarities.argmax())
        if similarities[best] >= _LEAST_SIMILARITY:
            pairs.append(Pair(prompts[best], prompts[place]))
    return pairs


def random_pairs(pairs: Sequence[Pair], count: int, seed: int) -> list[Pair]:
    """Prompts of different pairs, put together by chance: what unrelated prompts score."""
    rng = random.Random(seed)
    found: list[Pair] = []
    if len(pairs) < 2:
        return found
    while len(found) < count:
        one, other = rng.sample(range(len(pairs)), 2)
        found.append(Pair(pairs[one].donor, pairs[other].prompt))
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}", field="--prompts") from None
    if not rows or "prompt" not in rows[0]:
        raise InvalidArgument(
            f"{path} has no column named prompt, or no row",
            field="--prompts",
            allowed="a CSV file with a column prompt, or with donor, prompt and perhaps relation",
        )
    return rows
