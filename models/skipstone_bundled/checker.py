"""Reads a picture: which objects it shows, and which attributes of a scene hold.

The background is fitted as a plane of light. What differs from it is explained by one object after
the other: of all shapes, radii and places the one that explains most of the difference, as in
matching pursuit (Mallat and Zhang, 1993, IEEE Trans. Signal Processing 41(12), section III). This
needs no clean edges, so it reads the decoder's slightly soft pictures too.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image

from skipstone_bundled.drawing import (
    BACKGROUND_VALUES,
    COLOUR_VALUES,
    PICTURE_SIZE,
    shape_mask,
)
from skipstone_bundled.scenes import PLACE_CENTRES, RADII, SHAPES, Scene, SceneObject

MIN_CONTRAST: Final = 45.0
"""An object differs at least this much from the background (RGB distance, 0 to 441)."""
MIN_FIT: Final = 0.75
"""Share of a region's difference that a shape must explain to be called that shape."""
MAX_COLOUR_DISTANCE: Final = 75.0
"""A colour further than this from every named one has no name (RGB distance)."""
MAX_PLACE_DISTANCE: Final = 6.0
"""An object is at a place when its centre is this near in x and in y, in pixels."""

_MAX_OBJECTS = 3  # one more than a scene has, so that a superfluous one is seen
_WINDOW = 28  # pixels; holds the largest template
_HALF = _WINDOW // 2
_COARSE_RADII = (5.0, 6.25, 7.5, 8.75, 10.0)
_FINE_RADII = tuple(np.arange(4.0, 11.6, 0.5))
_STRIDE = 2

Pixels = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object seen in a picture.

    Attributes:
        colour: Nearest colour name, or None where no name is near.
        shape: Shape that explains the pixels best, or None where none does well.
        size: Size with the nearest radius.
        place: Place with the nearest centre, or None between places.
        centre: Centre (x, y) in pixels.
        fit: Share of the difference in its region that the shape explains, 0 to 1.
    """

    colour: str | None
    shape: str | None
    size: str
    place: str | None
    centre: tuple[float, float]
    fit: float


@dataclass(frozen=True, slots=True)
class Reading:
    """All that is seen in a picture; `background` is None where no named colour is near."""

    background: str | None
    objects: tuple[FoundObject, ...]


@dataclass(frozen=True, slots=True)
class ObjectCheck:
    """Which attributes of one expected object hold."""

    colour: bool
    place: bool
    shape: bool
    size: bool

    @property
    def colour_and_place(self) -> bool:
        """Right colour at the right place."""
        return self.colour and self.place

    @property
    def colour_place_and_shape(self) -> bool:
        """Right colour and shape at the right place."""
        return self.colour and self.place and self.shape


@dataclass(frozen=True, slots=True)
class SceneCheck:
    """Which attributes of a scene hold in a picture.

    Attributes:
        background: The background has the right colour.
        count: The picture shows as many objects as the scene.
        objects: One check per object of the scene, in the scene's order.
    """

    background: bool
    count: bool
    objects: tuple[ObjectCheck, ...]

    @property
    def everything(self) -> bool:
        """All attributes of all objects, their number and the background are right."""
        right = (item.colour_place_and_shape and item.size for item in self.objects)
        return self.background and self.count and all(right)


def check_scene(picture: Image.Image, scene: Scene) -> SceneCheck:
    """Tells which attributes of a scene hold in a 64x64 picture.

    Every expected object is compared with one seen object; of all pairings the one that makes
    most attributes right counts, colour and place first.
    """
    reading = read_picture(picture)
    seen: list[FoundObject | None] = [*reading.objects]
    seen += [None] * (len(scene.objects) - len(seen))
    pairings = [
        tuple(_compare(item, found) for item, found in zip(scene.objects, order, strict=True))
        for order in itertools.permutations(seen, len(scene.objects))
    ]
    best = max(pairings, key=lambda checks: sum(_score(check) for check in checks))
    count = len(reading.objects) == len(scene.objects)
    return SceneCheck(reading.background == scene.background, count, best)


def read_picture(picture: Image.Image) -> Reading:
    """Finds the background and up to three objects in a 64x64 picture.

    Raises:
        ValueError: The picture is not 64x64.
    """
    if picture.size != (PICTURE_SIZE, PICTURE_SIZE):
        raise ValueError(f"expected a picture of 64x64 pixels, got {picture.size}")
    pixels = np.asarray(picture.convert("RGB"), dtype=np.float32)
    background = _fit_background(pixels)
    rest = pixels - background
    found = []
    for _ in range(_MAX_OBJECTS):
        match = _match_object(rest)
        if float(np.linalg.norm(match.difference)) < MIN_CONTRAST:
            break
        found.append(_name_object(match, background))
        rest = rest - match.mask[..., None] * match.difference
    name = _nearest_name(background.mean(axis=(0, 1)), BACKGROUND_VALUES)
    return Reading(name, tuple(found))


@dataclass(frozen=True, slots=True)
class _Match:
    shape: str
    radius: float
    centre: tuple[float, float]
    mask: Pixels
    difference: Pixels
    fit: float


@dataclass(frozen=True, slots=True)
class _Templates:
    """Shapes as unit vectors of a window, one row each."""

    names: tuple[tuple[str, float, float, float], ...]
    rows: Pixels


@lru_cache(maxsize=2)
def _templates(fine: bool) -> _Templates:
    radii = _FINE_RADII if fine else _COARSE_RADII
    offsets = (0.0, 0.5) if fine else (0.0,)
    names = tuple(itertools.product(SHAPES, radii, offsets, offsets))
    rows = []
    for shape, radius, dx, dy in names:
        mask = shape_mask(shape, (_HALF + dx, _HALF + dy, float(radius)))[:_WINDOW, :_WINDOW]
        rows.append(mask.ravel() / np.linalg.norm(mask))
    return _Templates(names, np.stack(rows).astype(np.float32))


def _fit_background(pixels: Pixels) -> Pixels:
    """Fits a plane per channel, leaving out what is far from it, `(64, 64, 3)`."""
    ramp = np.linspace(-1.0, 1.0, PICTURE_SIZE, dtype=np.float32)
    x, y = np.meshgrid(ramp, ramp)
    design = np.stack([np.ones_like(x), x, y], axis=-1).reshape(-1, 3)
    flat = pixels.reshape(-1, 3)
    plane = np.broadcast_to(np.median(flat, axis=0), flat.shape)
    for limit in (40.0, 30.0, 25.0):
        near = np.linalg.norm(flat - plane, axis=1) < limit
        if near.sum() < len(flat) // 4:
            break
        weights, *_ = np.linalg.lstsq(design[near], flat[near], rcond=None)
        plane = design @ weights
    return plane.reshape(pixels.shape).astype(np.float32)


def _match_object(rest: Pixels) -> _Match:
    padded = np.pad(rest, ((_HALF, _HALF), (_HALF, _HALF), (0, 0)))
    # windows[y, x] is the window whose middle is pixel (x, y).
    windows = sliding_window_view(padded, (_WINDOW, _WINDOW), axis=(0, 1))
    coarse = windows[::_STRIDE, ::_STRIDE]
    _, (row, column) = _best(coarse, _templates(fine=False))
    y0, x0 = max(0, row * _STRIDE - 2), max(0, column * _STRIDE - 2)
    near = windows[y0 : y0 + 5, x0 : x0 + 5]
    index, (row, column) = _best(near, _templates(fine=True))
    shape, radius, dx, dy = _templates(fine=True).names[index]
    x, y = x0 + column + dx, y0 + row + dy
    mask = shape_mask(shape, (x, y, radius))
    difference = (rest * mask[..., None]).sum(axis=(0, 1)) / np.square(mask).sum()
    return _Match(shape, radius, (x, y), mask, difference, _fit(rest, mask, difference))


def _best(windows: Pixels, templates: _Templates) -> tuple[int, tuple[int, int]]:
    """Returns which template explains most, and in which window (row, column)."""
    rows, columns = windows.shape[:2]
    flat = np.ascontiguousarray(windows).reshape(-1, _WINDOW * _WINDOW)
    explained = np.square(flat @ templates.rows.T).reshape(rows, columns, 3, -1).sum(axis=2)
    row, column, index = np.unravel_index(int(explained.argmax()), explained.shape)
    return int(index), (int(row), int(column))


def _fit(rest: Pixels, mask: Pixels, difference: Pixels) -> float:
    """Share of the energy around an object that its shape explains."""
    ys, xs = np.nonzero(mask > 0)
    region = (slice(max(0, ys.min() - 1), ys.max() + 2), slice(max(0, xs.min() - 1), xs.max() + 2))
    before = np.square(rest[region]).sum()
    after = np.square(rest[region] - mask[region][..., None] * difference).sum()
    return float(1.0 - after / before) if before > 0 else 0.0


def _name_object(match: _Match, background: Pixels) -> FoundObject:
    x, y = match.centre
    under = background[min(PICTURE_SIZE - 1, round(y)), min(PICTURE_SIZE - 1, round(x))]
    return FoundObject(
        colour=_nearest_name(under + match.difference, COLOUR_VALUES),
        shape=match.shape if match.fit >= MIN_FIT else None,
        size=min(RADII, key=lambda size: abs(RADII[size] - match.radius)),
        place=_nearest_place(x, y),
        centre=(x, y),
        fit=match.fit,
    )


def _nearest_name(colour: Pixels, names: dict[str, tuple[int, int, int]]) -> str | None:
    distances = {name: float(np.linalg.norm(colour - value)) for name, value in names.items()}
    name = min(distances, key=lambda key: distances[key])
    return name if distances[name] <= MAX_COLOUR_DISTANCE else None


def _nearest_place(x: float, y: float) -> str | None:
    for place, (centre_x, centre_y) in PLACE_CENTRES.items():
        if max(abs(x - centre_x), abs(y - centre_y)) <= MAX_PLACE_DISTANCE:
            return place
    return None


def _compare(item: SceneObject, found: FoundObject | None) -> ObjectCheck:
    if found is None:
        return ObjectCheck(colour=False, place=False, shape=False, size=False)
    return ObjectCheck(
        colour=found.colour == item.colour,
        place=found.place == item.place,
        shape=found.shape == item.shape,
        size=found.size == item.size,
    )


def _score(check: ObjectCheck) -> int:
    return 8 * check.colour_and_place + 2 * (check.colour + check.place) + check.shape + check.size
