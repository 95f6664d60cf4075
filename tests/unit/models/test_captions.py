"""Captions: many wordings, one truth, and the way back."""

from __future__ import annotations

import random

import pytest

from skipstone_bundled.captions import (
    MAX_CAPTION_TOKENS,
    captions,
    random_wording,
    read_caption,
    tokenize,
    vocabulary,
    write_caption,
)
from skipstone_bundled.scenes import edit_object, random_scene


def test_every_caption_is_read_back_as_its_scene() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        scene, wording = random_scene(rng), random_wording(rng)
        expected = tuple(reversed(scene.objects)) if wording.reverse else scene.objects
        reading = read_caption(write_caption(scene, wording))
        assert (reading.background, reading.objects) == (scene.background, expected)


def test_captions_use_the_vocabulary_and_stay_short() -> None:
    """The pipeline pads to 32 tokens, two of them marks; training batches rely on it."""
    rng, known = random.Random(1), set(vocabulary())
    for _ in range(2000):
        tokens = tokenize(write_caption(random_scene(rng), random_wording(rng)))
        assert set(tokens) <= known
        assert len(tokens) <= MAX_CAPTION_TOKENS


def test_wordings_of_one_scene_differ() -> None:
    scene = random_scene(random.Random(2), objects=2)
    found = captions(scene, 12, random.Random(3))
    assert len(set(found)) == 12


@pytest.mark.parametrize("attribute", ["size", "colour", "shape"])
def test_an_edit_under_one_wording_changes_that_attributes_word_only(attribute: str) -> None:
    rng = random.Random(4)
    for _ in range(200):
        scene, wording = random_scene(rng), random_wording(rng)
        edited = edit_object(scene, attribute, rng)
        before = tokenize(write_caption(scene, wording))
        after = tokenize(write_caption(edited, wording))
        articles = {"a", "an"}
        changed = [
            pair for pair in zip(before, after, strict=True)
            if pair[0] != pair[1] and not set(pair) <= articles
        ]  # fmt: skip
        assert len(changed) == 1


@pytest.mark.parametrize(
    "caption",
    [
        "",
        "a red circle",
        "a small red circle on the left",
        "a small red circle on a gray background",
        "a small red circle and a blue square on the left on a gray background",
    ],
)
def test_a_caption_that_leaves_something_open_is_refused(caption: str) -> None:
    with pytest.raises(ValueError):
        read_caption(caption)
