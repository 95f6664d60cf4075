"""The gate on the captions of the bundled model, whose scenes are known."""

from __future__ import annotations

import random

import pytest

from skipstone_bundled.captions import captions, random_wording, write_caption
from skipstone_bundled.scenes import Scene, edit_background, edit_object, random_scene, swap
from skipstone_embedding.gate.prompt_gate import PromptGate

ATTRIBUTES = ("size", "shape", "colour", "place")


def scenes(count: int) -> list[Scene]:
    rng = random.Random(5)
    return [random_scene(rng, objects=2) for _ in range(count)]


def test_nearly_every_rewording_passes(gate: PromptGate) -> None:
    rng = random.Random(6)
    pairs = [captions(scene, 2, rng) for scene in scenes(80)]
    assert sum(gate.score(left, right) > 0.5 for left, right in pairs) >= 76


@pytest.mark.parametrize("attribute", [*ATTRIBUTES, "background"])
def test_no_edit_passes_whatever_its_wording(gate: PromptGate, attribute: str) -> None:
    rng = random.Random(7)
    for scene in scenes(40):
        if attribute == "background":
            edited = edit_background(scene, rng)
        else:
            edited = edit_object(scene, attribute, rng)
        wording = random_wording(rng)
        caption = write_caption(scene, wording)
        assert gate.score(caption, write_caption(edited, wording)) == 0.0
        assert gate.score(caption, write_caption(edited, random_wording(rng))) == 0.0


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_no_swap_passes_whatever_its_wording(gate: PromptGate, attribute: str) -> None:
    rng = random.Random(8)
    swapped = 0
    for scene in scenes(40):
        try:
            other = swap(scene, attribute)
        except ValueError:  # both objects agree in it
            continue
        swapped += 1
        caption = write_caption(scene, random_wording(rng))
        assert gate.score(caption, write_caption(other, random_wording(rng))) == 0.0
    assert swapped > 10
