"""The prompts of the demo: new scenes, and what people send after them.

Every prompt states a scene, so its picture can be checked. A rewording keeps the scene, an edit
changes one attribute, a swap exchanges one attribute between two objects.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from skipstone_bundled.captions import Wording, random_wording, write_caption
from skipstone_bundled.scenes import (
    Scene,
    edit_background,
    edit_object,
    is_held_out,
    random_scene,
    swap,
)

NEW_SCENES = 9
_EDITS = ("size", "shape", "background", "colour", "place")
_SWAPS = ("colour", "place")


class Kind(Enum):
    """How a prompt relates to an earlier one."""

    NEW = "new"
    REPEAT = "exact repeat"
    REWORDED = "reworded"
    EDITED = "one-word edit"
    SWAPPED = "swap"


@dataclass(frozen=True, slots=True)
class DemoPrompt:
    """One request of the demo.

    Attributes:
        kind: How it relates to an earlier prompt.
        text: The prompt.
        seed: Seed of its noise.
        scene: What its picture must show.
        change: What an edit or swap changed, else empty.
    """

    kind: Kind
    text: str
    seed: int
    scene: Scene
    change: str = ""


@dataclass(frozen=True, slots=True)
class _Base:
    scene: Scene
    wording: Wording
    seed: int

    @property
    def text(self) -> str:
        return write_caption(self.scene, self.wording)


def demo_prompts(seed: int = 20) -> list[DemoPrompt]:
    """The 24 prompts in the order in which they are sent; equal seeds give equal lists."""
    rng = random.Random(seed)
    bases = [_base(rng, index) for index in range(NEW_SCENES)]
    new = [DemoPrompt(Kind.NEW, base.text, base.seed, base.scene) for base in bases]
    repeats = [DemoPrompt(Kind.REPEAT, b.text, b.seed, b.scene) for b in bases[:3]]
    reworded = [_reworded(base, rng, 200 + i) for i, base in enumerate(bases[:5])]
    edited = [
        _edited(base, change, rng, 300 + i)
        for i, (base, change) in enumerate(zip(bases[3:8], _EDITS, strict=True))
    ]
    swapped = [
        _swapped(base, change, 400 + i)
        for i, (base, change) in enumerate(zip(bases[7:9], _SWAPS, strict=True))
    ]
    return new + repeats + reworded + edited + swapped


def _base(rng: random.Random, index: int) -> _Base:
    """A scene of two objects that differ in everything, so that every edit and swap exists."""
    while True:
        scene = random_scene(rng, objects=2)
        first, second = scene.objects
        differ = all(
            getattr(first, name) != getattr(second, name) for name in ("colour", "shape", "place")
        )
        if differ and not any(is_held_out(item) for item in scene.objects):
            return _Base(scene, random_wording(rng), 100 + index)


def _reworded(base: _Base, rng: random.Random, seed: int) -> DemoPrompt:
    text = base.text
    while text == base.text:
        text = write_caption(base.scene, random_wording(rng))
    return DemoPrompt(Kind.REWORDED, text, seed, base.scene)


def _edited(base: _Base, change: str, rng: random.Random, seed: int) -> DemoPrompt:
    if change == "background":
        scene = edit_background(base.scene, rng)
    else:
        scene = edit_object(base.scene, change, rng)
    return DemoPrompt(Kind.EDITED, write_caption(scene, base.wording), seed, scene, change)


def _swapped(base: _Base, change: str, seed: int) -> DemoPrompt:
    scene = swap(base.scene, change)
    return DemoPrompt(Kind.SWAPPED, write_caption(scene, base.wording), seed, scene, change)
