"""Edits that change what a picture must show, by kind."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from skipstone_gate import vocabulary as words
from skipstone_gate.prompts import DEED, MOTION, RELATION, SIGN, TOGETHER, WITHOUT, Item, Scene

Edit = Callable[[Scene, random.Random], Scene | None]


def _other(pool: tuple[str, ...], word: str, rng: random.Random) -> str:
    return rng.choice([candidate for candidate in pool if candidate != word])


def _quality(name: str, pool: tuple[str, ...]) -> Edit:
    """Another value of a quality that one of the things has."""

    def edit(scene: Scene, rng: random.Random) -> Scene | None:
        def changed(item: Item) -> Item:
            value = _other(pool, getattr(item, name), rng)
            return dataclasses.replace(item, **{name: value})

        if getattr(scene.first, name):
            return dataclasses.replace(scene, first=changed(scene.first))
        if scene.second is not None and getattr(scene.second, name):
            return dataclasses.replace(scene, second=changed(scene.second))
        return None

    return edit


def _exchange(name: str) -> Edit:
    """Both things exchange a quality; one that only one of them has moves to the other."""

    def edit(scene: Scene, rng: random.Random) -> Scene | None:
        first, second = scene.first, scene.second
        if second is None or getattr(first, name) == getattr(second, name):
            return None
        return dataclasses.replace(
            scene,
            first=dataclasses.replace(first, **{name: getattr(second, name)}),
            second=dataclasses.replace(second, **{name: getattr(first, name)}),
        )

    return edit


def _count(scene: Scene, rng: random.Random) -> Scene | None:
    if scene.form in (RELATION, SIGN):
        return None
    count = _other(("one", *words.COUNTS), scene.first.count, rng)
    return dataclasses.replace(scene, first=dataclasses.replace(scene.first, count=count))


def _size(scene: Scene, rng: random.Random) -> Scene | None:
    for big, small in words.SIZES:
        if scene.first.size in (big, small):
            other = small if scene.first.size == big else big
            return dataclasses.replace(scene, first=dataclasses.replace(scene.first, size=other))
    return None


def _age(scene: Scene, rng: random.Random) -> Scene | None:
    for pair in words.AGES:
        if scene.first.age in pair:
            age = pair[1 - pair.index(scene.first.age)]
            return dataclasses.replace(scene, first=dataclasses.replace(scene.first, age=age))
    return None


def _turned(scene: Scene, rng: random.Random) -> Scene | None:
    """Both things change places: who is where, or who does it to whom."""
    symmetric = scene.form == RELATION and "next to" in words.RELATIONS[scene.relation][0]
    if scene.second is None or scene.form not in (RELATION, DEED) or symmetric:
        return None
    return dataclasses.replace(scene, first=scene.second, second=scene.first)


def _relation(scene: Scene, rng: random.Random) -> Scene | None:
    if scene.form != RELATION:
        return None
    said, _, other = words.RELATIONS[scene.relation]
    found = [
        number
        for number, (wordings, converse, _) in enumerate(words.RELATIONS)
        if other in wordings and not set(wordings) & set(said)
    ]
    return dataclasses.replace(scene, relation=rng.choice(found)) if found else None


def _object(scene: Scene, rng: random.Random) -> Scene:
    for pool in (words.ANIMALS, words.PEOPLE, words.OBJECTS):
        if scene.first.noun in pool:
            noun = _other(pool, scene.first.noun, rng)
            return dataclasses.replace(scene, first=dataclasses.replace(scene.first, noun=noun))
    raise AssertionError(f"{scene.first.noun} is in no list")


def _negation(scene: Scene, rng: random.Random) -> Scene | None:
    if scene.form == WITHOUT:
        return dataclasses.replace(scene, form=TOGETHER)
    return None


def _action(scene: Scene, rng: random.Random) -> Scene | None:
    if scene.form not in (MOTION, DEED):
        return None
    count = len(words.MOTIONS if scene.form == MOTION else words.DEEDS)
    return dataclasses.replace(scene, action=(scene.action + rng.randrange(1, count)) % count)


def _of_scene(name: str, pool: tuple[str, ...]) -> Edit:
    def edit(scene: Scene, rng: random.Random) -> Scene | None:
        value: str = getattr(scene, name)
        if not value:
            return None
        changes: dict[str, Any] = {name: _other(pool, value, rng)}
        return dataclasses.replace(scene, **changes)

    return edit


def _added_object(scene: Scene, rng: random.Random) -> Scene | None:
    if scene.second is not None or scene.form in (MOTION, SIGN):
        return None
    noun = _other(words.OBJECTS, scene.first.noun, rng)
    return dataclasses.replace(scene, form=TOGETHER, second=Item(noun))


def _lost_style(scene: Scene, rng: random.Random) -> Scene | None:
    return dataclasses.replace(scene, style="") if scene.style else None


TRAINED: Mapping[str, Edit] = MappingProxyType(
    {
        "colour": _quality("colour", words.COLOURS),
        "colour exchange": _exchange("colour"),
        "count": _count,
        "size": _size,
        "negation": _negation,
        "turned": _turned,
        "relation": _relation,
        "object": _object,
        "action": _action,
    }
)
"""Kinds of edits the scorer is fitted on."""

HELD_OUT: Mapping[str, Edit] = MappingProxyType(
    {
        "material": _quality("material", words.MATERIALS),
        "pattern": _quality("pattern", words.PATTERNS),
        "mood": _quality("mood", words.MOODS),
        "age": _age,
        "material exchange": _exchange("material"),
        "size exchange": _exchange("size"),
        "count exchange": _exchange("count"),
        "setting": _of_scene("place", words.PLACES),
        "time": _of_scene("time", words.TIMES),
        "weather": _of_scene("weather", words.WEATHER),
        "text": _of_scene("text", words.TEXTS),
        "style": _of_scene("style", words.STYLES),
        "style lost": _lost_style,
        "added object": _added_object,
    }
)
"""Kinds of edits nothing is fitted on."""
