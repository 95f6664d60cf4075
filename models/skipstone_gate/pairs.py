"""Pairs of prompts with what they are: the same picture in other words, or another picture."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence

from skipstone_gate import vocabulary as words
from skipstone_gate.edits import HELD_OUT, TRAINED, Edit
from skipstone_gate.prompts import Scene, Writer, random_scene
from skipstone_gate.real_prompts import edited_prompt, reworded_prompt

_TRIES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts.

    Attributes:
        left: One of them.
        right: The other one.
        same: Whether a picture of one may be a picture of the other: nothing they say excludes it.
        kind: How the second was made from the first.
        details: Visible details that only one of them names.
    """

    left: str
    right: str
    same: bool
    kind: str
    details: int = 0

    @property
    def acceptable(self) -> float:
        """Chance that a picture of one is an acceptable start for the other.

        A donor that shows more than was asked for is acceptable. One that lacks a detail is, we
        assume, half of the time. The gate does not know which of the two was drawn, so it is the
        mean of both.
        """
        return (1.0 + 0.5**self.details) / 2.0 if self.same else 0.0


def generated_pairs(
    count: int, seed: int, *, held_out: bool, real: Sequence[str] = ()
) -> list[Pair]:
    """Draws pairs, half of them the same.

    Args:
        count: How many.
        seed: Equal seeds give equal pairs.
        held_out: Whether from the half of the vocabulary and the kinds of edits that nothing is
            fitted on, or from the other one.
        real: Prompts of people to reword and edit as well.
    """
    rng = random.Random(seed)
    source = _Source(rng, held_out, real)
    pairs: list[Pair] = []
    while len(pairs) < count:
        pair = source.same() if len(pairs) % 2 else source.other()
        if _folded(pair.left) != _folded(pair.right):
            pairs.append(pair)
    return pairs


def _folded(prompt: str) -> str:
    return prompt.casefold().rstrip(".")


class _Source:
    def __init__(self, rng: random.Random, held_out: bool, real: Sequence[str]) -> None:
        self._rng = rng
        self._held_out = held_out
        self._real = list(real)
        self._edits = dict(HELD_OUT if held_out else TRAINED)
        self._kinds = [*self._edits]

    def same(self) -> Pair:
        rng = self._rng
        kind = rng.choice(["wording", "wording", "synonyms", "endings", "rewrite", "detail"])
        if self._real and rng.random() < 0.25:
            prompt = rng.choice(self._real)
            return Pair(prompt, reworded_prompt(prompt, rng), True, "real prompt")
        scene = random_scene(rng, held_out=self._held_out)
        left = Writer(rng).write(scene)
        if kind == "rewrite":
            return self._either_way(left, rewrite(scene, rng), True, kind, details=1)
        if kind == "detail":
            return self._detailed(scene)
        right = Writer(rng, synonyms=0.9 if kind == "synonyms" else 0.0).write(scene)
        if kind == "endings":
            right = _ended(right, rng)
        return self._either_way(left, right, True, kind)

    def other(self) -> Pair:
        rng = self._rng
        if self._real and rng.random() < 0.25:
            for _ in range(_TRIES):
                prompt = rng.choice(self._real)
                reworked = edited_prompt(prompt, rng)
                if reworked:
                    return Pair(prompt, reworked, False, "real prompt edited")
        kind = rng.choice(self._kinds)
        scene, edited = self._edited(self._edits[kind])
        state = rng.getstate()
        left = Writer(rng).write(scene)
        if rng.random() < 0.6:
            rng.setstate(state)  # the same wording: only what was edited differs
        # A rewrite may add things: only an edit that is all there is adds them on purpose.
        if rng.random() < 0.15 and kind != "added object":
            return self._either_way(left, rewrite(edited, rng), False, f"{kind}, rewritten")
        return self._either_way(left, Writer(rng).write(edited), False, kind)

    def _edited(self, edit: Edit) -> tuple[Scene, Scene]:
        while True:
            scene = random_scene(self._rng, held_out=self._held_out)
            edited = edit(scene, self._rng)
            if edited is not None and edited != scene:
                return scene, edited

    def _detailed(self, scene: Scene) -> Pair:
        """A scene and the same with one to three qualities more."""
        rng = self._rng
        item, details = scene.first, 0
        pools = {"pattern": words.PATTERNS, "material": words.MATERIALS, "mood": words.MOODS}
        for name in rng.sample([*pools, "size"], rng.randint(1, 3)):
            if not getattr(item, name):
                pool = pools.get(name, rng.choice(words.SIZES))
                item = dataclasses.replace(item, **{name: rng.choice(pool)})
                details += 1
        writer = Writer(rng)
        left, right = writer.write(scene), writer.write(dataclasses.replace(scene, first=item))
        return self._either_way(left, right, True, "detail", details)

    def _either_way(self, left: str, right: str, same: bool, kind: str, details: int = 0) -> Pair:
        turned = self._rng.random() < 0.5
        return Pair(*((right, left) if turned else (left, right)), same, kind, details)


def _ended(prompt: str, rng: random.Random) -> str:
    endings = rng.sample(words.ENDINGS, rng.randint(1, 4))
    return ", ".join([prompt.rstrip("."), *endings])


def rewrite(scene: Scene, rng: random.Random) -> str:
    """A long wording of a scene, with detail that nobody asked for."""
    writer = Writer(rng, synonyms=0.3)
    first = writer.write(dataclasses.replace(scene, style=scene.style))
    name = writer.name(scene.first)
    adorned = writer.name(scene.first, rng.choice(words.ADORNMENTS))
    text = first.rstrip(".")
    if rng.random() < 0.7:
        text = text.replace(name, adorned, 1)
    details = rng.sample(words.DETAILS, rng.randint(3, 6))
    return " ".join([text[0].upper() + text[1:] + ".", *details])


def all_kinds(pairs: Sequence[Pair]) -> Iterator[tuple[str, list[Pair]]]:
    """The pairs of each kind, kinds in alphabetical order."""
    for kind in sorted({pair.kind for pair in pairs}):
        yield kind, [pair for pair in pairs if pair.kind == kind]
