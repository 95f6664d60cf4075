"""The pairs that train the bundled gate, and the fit."""

from __future__ import annotations

import random

import numpy as np
import pytest

from skipstone_gate.edits import HELD_OUT, TRAINED
from skipstone_gate.pairs import Pair, generated_pairs
from skipstone_gate.prompts import Writer, random_scene
from skipstone_gate.real_prompts import edited_prompt, reworded_prompt
from skipstone_gate.train import fit


def test_equal_seeds_give_equal_pairs() -> None:
    first = generated_pairs(200, 3, held_out=False)
    assert first == generated_pairs(200, 3, held_out=False)
    assert first != generated_pairs(200, 4, held_out=False)


def test_half_of_the_pairs_are_the_same_and_none_is_a_copy() -> None:
    pairs = generated_pairs(400, 5, held_out=True)
    assert sum(pair.same for pair in pairs) == 200
    assert all(pair.left.casefold() != pair.right.casefold() for pair in pairs)


def test_what_is_held_out_shares_no_kind_of_edit_with_training() -> None:
    assert not HELD_OUT.keys() & TRAINED.keys()
    kinds = {
        held_out: {p.kind for p in generated_pairs(600, 6, held_out=held_out) if not p.same}
        for held_out in (False, True)
    }
    assert not kinds[False] & kinds[True]


@pytest.mark.parametrize("kind", [*TRAINED, *HELD_OUT])
def test_every_edit_changes_the_scene(kind: str) -> None:
    rng = random.Random(1)
    edit = {**TRAINED, **HELD_OUT}[kind]
    edited = 0
    for _ in range(400):
        scene = random_scene(rng, held_out=kind in HELD_OUT)
        other = edit(scene, rng)
        if other is not None:
            assert other != scene
            edited += 1
    assert edited > 5


def test_a_scene_has_many_wordings() -> None:
    scene = random_scene(random.Random(2), held_out=False)
    assert len({Writer(random.Random(seed)).write(scene) for seed in range(30)}) > 3


def test_peoples_prompts_are_reworded_and_edited() -> None:
    prompt = "a red fox and a white rabbit in a forest"
    assert edited_prompt(prompt, random.Random(0)) not in ("", prompt)
    assert edited_prompt("xyzzy", random.Random(0)) == ""
    assert {reworded_prompt(prompt, random.Random(seed)) for seed in range(20)} - {prompt}


def test_a_donor_without_a_detail_is_acceptable_half_of_the_time() -> None:
    assert Pair("a", "b", True, "wording").acceptable == 1.0
    assert Pair("a", "b", True, "detail", details=1).acceptable == 0.75
    assert Pair("a", "b", False, "colour").acceptable == 0.0


def test_no_difference_ever_raises_a_score() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((500, 3))
    targets = (rows[:, 0] > 0.5).astype(np.float64)  # would be a positive weight
    bias, weights = fit(rows, targets)
    assert np.isfinite(bias)
    assert (weights < 0.0).all()
