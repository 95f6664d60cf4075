"""Pairs of prompts to measure: an earlier one that would donate, and a later one that would ask."""

from __future__ import annotations

import csv
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
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

_APART: Final = 0.25
_TRIES: Final = 20
_ARGUMENT: Final = "prompts"

Vectors = npt.NDArray[np.float32]
Row = Mapping[str, str | None]
"""A row of a file: what is missing in a short one is None."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts.

    Attributes:
        donor: The earlier one.
        prompt: The later one.
        relation: `reworded`, `added`, what was changed (for example `colour`), or empty where
            unknown.
        place: Row of the file, from 0; None where unknown. Equal pairs may have different ones.
    """

    donor: str
    prompt: str
    relation: str = UNKNOWN
    place: int | None = dataclasses.field(default=None, compare=False)

    @property
    def is_edit(self) -> bool:
        """Whether the pair is known to differ in something a picture shows."""
        return self.relation not in (UNKNOWN, REWORDED, ADDED)


def pairs_of(
    rows: Sequence[Row], seed: int, embed: Callable[[Sequence[str]], Vectors]
) -> list[Pair]:
    """Pairs of the rows of a file, in a random order that the seed fixes.

    Columns `donor`, `prompt` and perhaps `relation` are pairs as they are. A column `prompt` alone
    is a log in order: each prompt is paired with the nearest one before it.

    Args:
        rows: What `read_rows` gives.
        seed: Of the sample.
        embed: Gives the vectors of prompts, `(prompts, dimension)`, L2 norm 1.
    """
    if "donor" in rows[0]:
        pairs = [
            Pair(row["donor"] or "", row["prompt"] or "", row.get("relation") or UNKNOWN, place)
            for place, row in enumerate(rows)
        ]
    else:
        pairs = nearest_earlier([row["prompt"] or "" for row in rows][:_MAX_PROMPTS], embed)
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
            pairs.append(Pair(prompts[best], prompts[place], UNKNOWN, place))
    return pairs


def random_pairs(pairs: Sequence[Pair], count: int, seed: int) -> list[Pair]:
    """Prompts of different pairs, put together by chance: what unrelated prompts score.

    Who edits a prompt does it in a row, so the two come from far apart: at least a quarter of all
    pairs lies between them in the order of the file. Nor are they the same prompt. No score has a
    say, since it is the scores of chance that are wanted. None comes twice, so few pairs give
    fewer than `count`.
    """
    rng = random.Random(seed)
    ordered = sorted(pairs, key=lambda pair: -1 if pair.place is None else pair.place)
    apart = max(1, int(_APART * len(ordered)))
    found: dict[tuple[str, str], Pair] = {}
    for _ in range(_TRIES * count if len(ordered) > 1 else 0):
        one, other = rng.sample(range(len(ordered)), 2)
        donor, prompt = ordered[one].donor, ordered[other].prompt
        if abs(one - other) >= apart and _plain(donor) != _plain(prompt):
            found[donor, prompt] = Pair(donor, prompt)
        if len(found) == count:
            break
    return list(found.values())


def _plain(prompt: str) -> str:
    return " ".join(prompt.lower().split())


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV file of prompts.

    Raises:
        InvalidArgument: The file cannot be read, or lacks the column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[Row] = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgument(f"{path} cannot be read: {reason}", field=_ARGUMENT) from None
    if not rows or "prompt" not in rows[0]:
        raise InvalidArgument(
            f"{path} has no column named prompt, or no row",
            field=_ARGUMENT,
            allowed="a CSV file with a column prompt, or with donor, prompt and perhaps relation",
        )
    return rows
