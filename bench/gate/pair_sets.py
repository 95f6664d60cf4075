"""Pairs of prompts with known answers, none of which the bundled gate was made with."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Final

from skipstone_gate.pairs import generated_pairs
from skipstone_gate.real_prompts import read_log, read_parti

DATA: Final = Path(__file__).parents[1] / "data"
GENERATED: Final = 3000
_SEED: Final = 7

REWRITES: Final = ("gpt_longer", "wan_aug", "hunyuan_aug")


@dataclasses.dataclass(frozen=True, slots=True)
class PairSet:
    """Pairs of which all are the same picture, or none is.

    Attributes:
        name: As printed.
        same: Whether the two prompts of a pair mean one picture.
        pairs: The pairs.
    """

    name: str
    same: bool
    pairs: tuple[tuple[str, str], ...]


def published_sets() -> list[PairSet]:
    """GenEval's swaps, VBench's prompts with each of their rewrites, and pairs written by hand."""
    swaps = _rows("swapped_pairs.csv")
    rewrites = _rows("paraphrases.csv")
    unseen = _rows("unseen_pairs.csv")
    return [
        PairSet("geneval swaps", False, tuple((r["prompt"], r["swapped"]) for r in swaps)),
        *(
            PairSet(f"vbench {column}", True, tuple((r["base"], r[column]) for r in rewrites))
            for column in REWRITES
        ),
        *(
            PairSet(
                f"hand-written {'rewordings' if same else 'edits'}",
                same,
                tuple((r["a"], r["b"]) for r in unseen if (r["same"] == "1") is same),
            )
            for same in (False, True)
        ),
    ]


def generated_sets() -> list[PairSet]:
    """Generated pairs of the words, the edits and the prompts that were held out of training."""
    real = [
        *read_parti(DATA / "parti_prompts.tsv")[1::2],
        *read_log(DATA / "request_log.csv")[1::2],
    ]
    pairs = generated_pairs(GENERATED, _SEED, held_out=True, real=real)
    return [
        PairSet(
            f"held-out {'rewordings' if same else 'edits'}",
            same,
            tuple((pair.left, pair.right) for pair in pairs if pair.same is same),
        )
        for same in (False, True)
    ]


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
