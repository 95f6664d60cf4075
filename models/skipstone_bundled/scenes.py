"""What the bundled model draws: one or two objects on a plain background.

A `Scene` is the truth that a caption states and that `skipstone_bundled.checker` reads back from
the pixels. Scenes are kept apart from their captions (`skipstone_bundled.captions`), so that two
wordings of one scene are two prompts with one truth, and an edited scene is another truth.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

SIZES: Final = ("small", "medium", "large")
COLOURS: Final = ("red", "green", "blue", "yellow", "orange", "purple", "white", "black")
SHAPES: Final = ("circle", "square", "triangle", "cross", "ring")
PLACES: Final = (
    "top left", "top", "top right",
    "left", "center", "right",
    "bottom left", "bottom", "bottom right",
)  # fmt: skip
"""The cells of a 3x3 grid, row by row."""
BACKGROUNDS: Final = ("gray", "beige", "pink", "lavender", "teal", "brown")

ATTRIBUTES: Final = ("size", "colour", "shape", "place")
"""The attributes of an object that `edit_object` can change."""

PLACE_CENTRES: Final = {
    place: (13 + 19 * (index % 3), 13 + 19 * (index // 3)) for index, place in enumerate(PLACES)
}
"""Centre (x, y) of every place in a 64x64 picture, in pixels, y down."""

RADII: Final = {"small": 5.0, "medium": 7.5, "large": 10.0}
"""Half the width of an object, in pixels."""

_NEIGHBOUR_DISTANCE = 19
# Two objects in neighbouring cells may be this wide together; wider ones would touch once each is
# moved by the jitter of `skipstone_bundled.drawing`.
_NEIGHBOUR_REACH = 15.0
_HELD_OUT_SHARE = 0.1
_HELD_OUT_SALT = "skipstone-scenes-1"


@dataclass(frozen=True, slots=True)
class SceneObject:
    """One object: a value of `SIZES`, `COLOURS`, `SHAPES` and `PLACES` each."""

    size: str
    colour: str
    shape: str
    place: str


@dataclass(frozen=True, slots=True)
class Scene:
    """One or two objects that do not touch, on a background of one colour.

    Attributes:
        background: A value of `BACKGROUNDS`.
        objects: One or two objects in different places; their order has no meaning in the
            picture and is the order in which a caption names them.
    """

    background: str
    objects: tuple[SceneObject, ...]


def is_drawable(scene: Scene) -> bool:
    """Tells whether the objects of a scene have room beside each other."""
    if len(scene.objects) == 1:
        return True
    first, second = scene.objects
    (x1, y1), (x2, y2) = PLACE_CENTRES[first.place], PLACE_CENTRES[second.place]
    distance = max(abs(x1 - x2), abs(y1 - y2))
    if distance > _NEIGHBOUR_DISTANCE:
        return True
    return distance > 0 and RADII[first.size] + RADII[second.size] <= _NEIGHBOUR_REACH


def is_held_out(item: SceneObject) -> bool:
    """Tells whether an object's (colour, shape, place) is kept out of training.

    A fixed hash decides, about one combination in ten, so the split needs no file and never
    changes.
    """
    key = f"{_HELD_OUT_SALT}:{item.colour}:{item.shape}:{item.place}"
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 < _HELD_OUT_SHARE


def random_scene(rng: random.Random, objects: int | None = None) -> Scene:
    """Draws a scene from all that can be drawn, held-out combinations included.

    Args:
        rng: Source of randomness.
        objects: How many objects, 1 or 2; unset: one in 40 % of the scenes.
    """
    count = objects or (1 if rng.random() < 0.4 else 2)
    while True:
        items = tuple(_random_object(rng) for _ in range(count))
        scene = Scene(rng.choice(BACKGROUNDS), items)
        if is_drawable(scene):
            return scene


def training_scenes(seed: int) -> Iterator[Scene]:
    """Yields endlessly scenes without any held-out object."""
    rng = random.Random(seed)
    while True:
        scene = random_scene(rng)
        if not any(is_held_out(item) for item in scene.objects):
            yield scene


def held_out_scenes(count: int, seed: int) -> list[Scene]:
    """Returns scenes in which at least one object is a combination never trained on."""
    rng = random.Random(seed)
    scenes: list[Scene] = []
    while len(scenes) < count:
        scene = random_scene(rng)
        if any(is_held_out(item) for item in scene.objects):
            scenes.append(scene)
    return scenes


def edit_object(scene: Scene, attribute: str, rng: random.Random) -> Scene:
    """Changes one attribute of one object to another value.

    Args:
        scene: The scene to edit.
        attribute: One of `ATTRIBUTES`.
        rng: Chooses the object and the new value.

    Raises:
        ValueError: No other value of this attribute gives a scene that can be drawn.
    """
    values = {"size": SIZES, "colour": COLOURS, "shape": SHAPES, "place": PLACES}[attribute]
    edits = []
    for index, item in enumerate(scene.objects):
        for value in values:
            if value != getattr(item, attribute):
                edited = replace(item, **{attribute: value})
                objects = (*scene.objects[:index], edited, *scene.objects[index + 1 :])
                edits.append(replace(scene, objects=objects))
    return _choose_drawable(edits, rng)


def edit_background(scene: Scene, rng: random.Random) -> Scene:
    """Changes the background to another colour."""
    others = [colour for colour in BACKGROUNDS if colour != scene.background]
    return replace(scene, background=rng.choice(others))


def swap(scene: Scene, attribute: str) -> Scene:
    """Exchanges one attribute between the two objects of a scene.

    Args:
        scene: A scene of two objects.
        attribute: One of `ATTRIBUTES`.

    Raises:
        ValueError: The scene has one object, both objects agree in the attribute, or the
            exchanged scene cannot be drawn.
    """
    if len(scene.objects) != 2:
        raise ValueError("only a scene of two objects can be swapped")
    first, second = scene.objects
    values = getattr(first, attribute), getattr(second, attribute)
    if values[0] == values[1]:
        raise ValueError(f"both objects have the {attribute} {values[0]!r}")
    objects = (replace(first, **{attribute: values[1]}), replace(second, **{attribute: values[0]}))
    swapped = replace(scene, objects=objects)
    if not is_drawable(swapped):
        raise ValueError(f"the objects would touch after a swap of {attribute}")
    return swapped


def _choose_drawable(scenes: list[Scene], rng: random.Random) -> Scene:
    drawable = [scene for scene in scenes if is_drawable(scene)]
    if not drawable:
        raise ValueError("no such edit gives a scene that can be drawn")
    return rng.choice(drawable)


def _random_object(rng: random.Random) -> SceneObject:
    choose: Callable[[tuple[str, ...]], str] = rng.choice
    return SceneObject(choose(SIZES), choose(COLOURS), choose(SHAPES), choose(PLACES))
