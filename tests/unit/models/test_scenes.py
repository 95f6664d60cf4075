"""Scenes: what can be drawn, what is held out, and what an edit changes."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from skipstone_bundled.scenes import (
    ATTRIBUTES,
    COLOURS,
    PLACES,
    SHAPES,
    Scene,
    SceneObject,
    edit_background,
    edit_object,
    held_out_scenes,
    is_drawable,
    is_held_out,
    random_scene,
    swap,
    training_scenes,
)


def test_about_one_combination_in_ten_is_held_out() -> None:
    """The split is a hash: it must stay as it is, or old figures mean something else."""
    held_out = [
        combination
        for combination in itertools.product(COLOURS, SHAPES, PLACES)
        if is_held_out(SceneObject("small", *combination))
    ]
    assert len(held_out) == 39


def test_training_scenes_hold_no_held_out_object() -> None:
    for scene in itertools.islice(training_scenes(seed=1), 500):
        assert not any(is_held_out(item) for item in scene.objects)


def test_held_out_scenes_are_the_same_every_time_and_hold_a_held_out_object() -> None:
    scenes = held_out_scenes(50, seed=3)
    assert scenes == held_out_scenes(50, seed=3)
    assert all(any(is_held_out(item) for item in scene.objects) for scene in scenes)


def test_every_held_out_value_is_seen_in_training() -> None:
    """Only combinations are new in the test, never a colour, a shape or a place."""
    seen = list(itertools.islice(training_scenes(seed=2), 2000))
    items = [item for scene in seen for item in scene.objects]
    assert {item.colour for item in items} == set(COLOURS)
    assert {item.shape for item in items} == set(SHAPES)
    assert {item.place for item in items} == set(PLACES)


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_an_edit_changes_one_attribute_of_one_object(attribute: str) -> None:
    rng = random.Random(4)
    for _ in range(100):
        scene = random_scene(rng, objects=2)
        edited = edit_object(scene, attribute, rng)
        changed = [
            (before, after)
            for before, after in zip(scene.objects, edited.objects, strict=True)
            if before != after
        ]
        assert len(changed) == 1
        before, after = changed[0]
        assert replace(before, **{attribute: getattr(after, attribute)}) == after
        assert is_drawable(edited)


def test_a_background_edit_leaves_the_objects_alone() -> None:
    rng = random.Random(5)
    scene = random_scene(rng)
    edited = edit_background(scene, rng)
    assert edited.background != scene.background
    assert edited.objects == scene.objects


def test_swapping_twice_gives_the_scene_back() -> None:
    first = SceneObject("small", "red", "circle", "left")
    second = SceneObject("large", "blue", "square", "right")
    scene = Scene("gray", (first, second))
    for attribute in ATTRIBUTES:
        assert swap(scene, attribute) != scene
        assert swap(swap(scene, attribute), attribute) == scene


def test_a_swap_that_changes_nothing_is_refused() -> None:
    item = SceneObject("small", "red", "circle", "left")
    with pytest.raises(ValueError, match="two objects"):
        swap(Scene("gray", (item,)), "colour")
    with pytest.raises(ValueError, match="both objects"):
        swap(Scene("gray", (item, replace(item, place="right"))), "colour")


def test_large_neighbours_cannot_be_drawn() -> None:
    large = SceneObject("large", "red", "circle", "left")
    assert not is_drawable(Scene("gray", (large, replace(large, place="center"))))
    assert is_drawable(Scene("gray", (large, replace(large, place="right"))))
