"""Draws a scene as a 64x64 picture, with the small differences that a seed makes.

Place, size, colours and a soft light differ a little from picture to picture, so that a caption
describes a distribution and not one picture.
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from skipstone_bundled.scenes import PLACE_CENTRES, RADII, Scene, SceneObject

PICTURE_SIZE: Final = 64
COLOUR_VALUES: Final = {
    "red": (215, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (245, 220, 50),
    "orange": (245, 135, 25),
    "purple": (140, 45, 170),
    "white": (250, 250, 250),
    "black": (20, 20, 20),
}
"""RGB of the object colours, 0 to 255."""
BACKGROUND_VALUES: Final = {
    "gray": (145, 145, 145),
    "beige": (215, 190, 150),
    "pink": (240, 165, 185),
    "lavender": (185, 170, 225),
    "teal": (95, 165, 165),
    "brown": (120, 85, 60),
}
"""RGB of the backgrounds, 0 to 255; softer than, and far from, every object colour."""

RING_HOLE: Final = 0.5
"""Inner radius of a ring over its outer radius."""
CROSS_ARM: Final = 0.34
"""Half the width of a cross's arm over its radius."""

_OVERSAMPLING = 4
_PLACE_JITTER = 2.0  # pixels, each way
_RADIUS_JITTER = 0.4  # pixels, each way
_COLOUR_JITTER = 8  # of 255, each way
_LIGHT = 14.0  # of 255: how much brighter the lit side of the background can be
_GAP = 1.5  # pixels between two objects at least

Placed = tuple[float, float, float]
"""Centre x, centre y and radius of an object, in pixels."""


def draw_scene(scene: Scene, rng: random.Random) -> Image.Image:
    """Draws a scene as an RGB picture of 64x64 pixels."""
    size = PICTURE_SIZE * _OVERSAMPLING
    canvas = _draw_background(scene.background, rng).resize((size, size), Image.Resampling.BILINEAR)
    painter = ImageDraw.Draw(canvas)
    for item, placed in zip(scene.objects, _place_objects(scene.objects, rng), strict=True):
        x, y, radius = (value * _OVERSAMPLING for value in placed)
        colour = _jitter_colour(COLOUR_VALUES[item.colour], rng)
        hole = _point_colour(canvas, x, y)
        _draw_shape(painter, item.shape, (x, y, radius), colour, hole)
    return canvas.resize((PICTURE_SIZE, PICTURE_SIZE), Image.Resampling.BOX)


def shape_mask(shape: str, placed: Placed) -> NDArray[np.float32]:
    """Returns how much of every pixel a shape covers, `(64, 64)`, float32, 0 to 1."""
    size = PICTURE_SIZE * _OVERSAMPLING
    canvas = Image.new("L", (size, size), 0)
    x, y, radius = (value * _OVERSAMPLING for value in placed)
    _draw_shape(ImageDraw.Draw(canvas), shape, (x, y, radius), 255, 0)
    small = canvas.resize((PICTURE_SIZE, PICTURE_SIZE), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32) / 255.0


def _place_objects(objects: tuple[SceneObject, ...], rng: random.Random) -> list[Placed]:
    while True:
        placed = [_jitter_place(item, rng) for item in objects]
        if len(placed) == 1:
            return placed
        (x1, y1, r1), (x2, y2, r2) = placed
        if max(abs(x1 - x2), abs(y1 - y2)) >= r1 + r2 + _GAP:
            return placed


def _jitter_place(item: SceneObject, rng: random.Random) -> Placed:
    x, y = PLACE_CENTRES[item.place]
    return (
        x + rng.uniform(-_PLACE_JITTER, _PLACE_JITTER),
        y + rng.uniform(-_PLACE_JITTER, _PLACE_JITTER),
        RADII[item.size] + rng.uniform(-_RADIUS_JITTER, _RADIUS_JITTER),
    )


def _jitter_colour(colour: tuple[int, int, int], rng: random.Random) -> tuple[int, int, int]:
    def moved(value: int) -> int:
        return max(0, min(255, value + rng.randint(-_COLOUR_JITTER, _COLOUR_JITTER)))

    red, green, blue = colour
    return moved(red), moved(green), moved(blue)


def _draw_background(name: str, rng: random.Random) -> Image.Image:
    base = np.array(_jitter_colour(BACKGROUND_VALUES[name], rng), dtype=np.float32)
    light_x, light_y = rng.uniform(-_LIGHT, _LIGHT), rng.uniform(-_LIGHT, _LIGHT)
    ramp = np.linspace(-0.5, 0.5, PICTURE_SIZE, dtype=np.float32)
    light = light_x * ramp[None, :] + light_y * ramp[:, None]
    pixels = np.clip(base + light[..., None], 0, 255).astype(np.uint8)
    return Image.fromarray(pixels)


def _point_colour(canvas: Image.Image, x: float, y: float) -> tuple[int, int, int]:
    pixel = canvas.getpixel((round(x), round(y)))
    assert isinstance(pixel, tuple)
    return int(pixel[0]), int(pixel[1]), int(pixel[2])


def _draw_shape(
    painter: ImageDraw.ImageDraw,
    shape: str,
    placed: Placed,
    colour: tuple[int, int, int] | int,
    hole: tuple[int, int, int] | int,
) -> None:
    x, y, r = placed
    box = (x - r, y - r, x + r, y + r)
    if shape in ("circle", "ring"):
        painter.ellipse(box, fill=colour)
        if shape == "ring":
            h = r * RING_HOLE
            painter.ellipse((x - h, y - h, x + h, y + h), fill=hole)
    elif shape == "square":
        painter.rectangle(box, fill=colour)
    elif shape == "triangle":
        painter.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=colour)
    elif shape == "cross":
        arm = r * CROSS_ARM
        painter.rectangle((x - r, y - arm, x + r, y + arm), fill=colour)
        painter.rectangle((x - arm, y - r, x + arm, y + r), fill=colour)
    else:
        raise ValueError(f"unknown shape {shape!r}")
