"""The checker: it must be right about pictures whose truth is known."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageFilter

from skipstone_bundled.checker import check_scene, read_picture
from skipstone_bundled.drawing import draw_scene
from skipstone_bundled.scenes import (
    ATTRIBUTES,
    Scene,
    SceneObject,
    edit_background,
    edit_object,
    random_scene,
)


def test_drawn_pictures_show_their_scene() -> None:
    """Every figure of the model card rests on this."""
    rng = random.Random(0)
    scenes = [random_scene(rng) for _ in range(100)]
    checks = [check_scene(draw_scene(scene, rng), scene) for scene in scenes]
    assert sum(check.everything for check in checks) >= 99


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_wrong_attribute_is_seen_and_the_others_still_hold(attribute: str) -> None:
    rng = random.Random(1)
    for _ in range(15):
        scene = random_scene(rng, objects=1)
        picture = draw_scene(scene, rng)
        (check,) = check_scene(picture, edit_object(scene, attribute, rng)).objects
        assert {name: getattr(check, name) for name in ATTRIBUTES} == {
            name: name != attribute for name in ATTRIBUTES
        }


def test_a_wrong_background_is_seen() -> None:
    rng = random.Random(2)
    scene = random_scene(rng)
    check = check_scene(draw_scene(scene, rng), edit_background(scene, rng))
    assert not check.background
    assert all(item.colour_place_and_shape for item in check.objects)


def test_exchanged_colours_are_seen() -> None:
    """Both colours are in the picture, but not where the caption says."""
    first = SceneObject("medium", "red", "circle", "left")
    second = SceneObject("medium", "blue", "circle", "right")
    picture = draw_scene(Scene("gray", (first, second)), random.Random(3))
    swapped = Scene("gray", (replace(first, colour="blue"), replace(second, colour="red")))
    assert not any(item.colour_and_place for item in check_scene(picture, swapped).objects)


def test_a_superfluous_and_a_missing_object_are_seen() -> None:
    one = SceneObject("medium", "red", "circle", "left")
    two = SceneObject("small", "green", "cross", "right")
    rng = random.Random(4)
    single, pair = Scene("teal", (one,)), Scene("teal", (one, two))
    assert not check_scene(draw_scene(pair, rng), single).count
    missing = check_scene(draw_scene(single, rng), pair)
    assert not missing.count
    assert [item.colour_and_place for item in missing.objects] == [True, False]


def test_an_empty_picture_holds_no_object() -> None:
    assert read_picture(Image.new("RGB", (64, 64), (145, 145, 145))).objects == ()


def test_soft_and_noisy_pictures_are_read_too() -> None:
    """Decoded latents are a little soft; that must not count as a wrong shape."""
    rng, noise = random.Random(5), np.random.default_rng(5)
    right = 0
    for _ in range(40):
        scene = random_scene(rng)
        soft = draw_scene(scene, rng).filter(ImageFilter.GaussianBlur(0.5))
        pixels = np.asarray(soft) + noise.normal(0.0, 5.0, (64, 64, 3))
        picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        right += check_scene(picture, scene).everything
    assert right >= 38


def test_noise_is_not_called_a_scene() -> None:
    noise = np.random.default_rng(6).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    reading = read_picture(Image.fromarray(noise))
    assert all(found.shape is None for found in reading.objects)


def test_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="64x64"):
        read_picture(Image.new("RGB", (32, 32)))
