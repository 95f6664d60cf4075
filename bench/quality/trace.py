"""A trace of captions with the threads, repeats and reuse distances of a real request log.

Row for row the log says *when* somebody asks for what kind of change; the words are those of the
bundled model, whose pictures a program can check. What a row of the log becomes:

- a prompt that was there before: the same caption with the same seed;
- no parent, or a parent that the log left out: a new scene in a new wording;
- the parent's words in another order, or more than three exchanged although the cosine of both is
  above 0.95: the parent's scene in another wording;
- words only added: one object more, where the parent has one;
- words only removed: one object less, where the parent has two;
- up to three words exchanged: one of size, colour, shape, place, background changed;
- more exchanged: two of these changed, and another wording.

An object cannot be added to two or taken from one: then one attribute changes instead.
"""

from __future__ import annotations

import csv
import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from replay.request_log import LOG, embed
from search.vectors import Matrix
from skipstone_bundled.captions import Wording, random_wording, read_caption, write_caption
from skipstone_bundled.scenes import (
    ATTRIBUTES,
    Scene,
    edit_background,
    edit_object,
    is_drawable,
    random_scene,
)

SEED: Final = 5
BACKGROUND: Final = "background"
REWORDING_SIMILARITY: Final = 0.95
FEW_WORDS: Final = 3

NEW, REPEAT, REWORDING = "new", "repeat", "rewording"
ADDED, REMOVED, TWO = "object added", "object removed", "two attributes"

T = TypeVar("T")

_WORD = re.compile(r"[a-z0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class CaptionRequest:
    """One request of the trace.

    Attributes:
        index: Place in the trace, from 0.
        caption: What is asked for.
        seed: Seed of the request; a repeat has that of the first time.
        kind: NEW, REPEAT, REWORDING, ADDED, REMOVED, TWO, or the one attribute that changed.
        thread: Thread of the log that it belongs to.
        parent: Index of the request whose caption was edited or repeated; None for a new one.
    """

    index: int
    caption: str
    seed: int
    kind: str
    thread: int
    parent: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A row of the log: parent and change are None where it starts a thread."""

    thread: int
    prompt: str
    parent: int | None
    repeat_of: int | None


def caption_trace(
    count: int, log: Path = LOG, embed_all: Callable[[Sequence[str]], Matrix] = embed
) -> list[CaptionRequest]:
    """The first requests of a log as captions; always the same ones.

    Args:
        count: How many.
        log: Request log.
        embed_all: Gives unit vectors of prompts, a row each.
    """
    rows = _read_rows(log, count)
    changes = _changes(rows, embed_all([row.prompt for row in rows]))
    rng = random.Random(SEED)
    truths: list[tuple[Scene, Wording]] = []
    requests: list[CaptionRequest] = []
    for index, row in enumerate(rows):
        if row.repeat_of is not None:
            truths.append(truths[row.repeat_of])
            first = requests[row.repeat_of]
            requests.append(
                dataclasses.replace(
                    first, index=index, kind=REPEAT, thread=row.thread, parent=row.repeat_of
                )
            )
            continue
        if row.parent is None:
            kind, truth = NEW, (random_scene(rng), random_wording(rng))
        else:
            kind, truth = _edited(*truths[row.parent], changes[index], rng)
        truths.append(truth)
        seed = rng.randrange(2**31)
        requests.append(
            CaptionRequest(index, write_caption(*truth), seed, kind, row.thread, row.parent)
        )
    return requests


def same_scene(caption: str, other: str) -> bool:
    """Whether two captions ask for the same, whatever their words and order."""
    first, second = read_caption(caption), read_caption(other)
    same_objects = Counter(first.objects) == Counter(second.objects)
    return same_objects and first.background == second.background


def with_new_seeds(requests: Sequence[CaptionRequest]) -> list[CaptionRequest]:
    """The trace of users who repeat a prompt for another picture: a new seed for every repeat."""
    rng = random.Random(SEED + 1)
    return [
        dataclasses.replace(request, seed=rng.randrange(2**31))
        if request.kind == REPEAT
        else request
        for request in requests
    ]


def _read_rows(log: Path, count: int) -> list[_Row]:
    rows: list[_Row] = []
    place_of: dict[int, int] = {}
    first_with: dict[str, int] = {}
    with log.open(encoding="utf-8", newline="") as file:
        for index, line in zip(range(count), csv.DictReader(file), strict=False):
            parent = place_of.get(int(line["parent_seq"])) if line["parent_seq"] else None
            prompt = line["prompt"]
            rows.append(_Row(int(line["thread"]), prompt, parent, first_with.get(prompt)))
            place_of[int(line["seq"])] = index
            first_with.setdefault(prompt, index)
    return rows


def _changes(rows: Sequence[_Row], vectors: Matrix) -> Mapping[int, str]:
    """How the prompt of each edited row differs from its parent's, by index of the row."""
    found = {}
    for index, row in enumerate(rows):
        if row.parent is not None and row.repeat_of is None:
            similarity = float(np.dot(vectors[index], vectors[row.parent]))
            found[index] = change_between(rows[row.parent].prompt, row.prompt, similarity)
    return found


def change_between(before: str, after: str, similarity: float) -> str:
    """The kind of an edit of a prompt: REWORDING, ADDED, REMOVED, TWO, or "" for one attribute."""
    old, new = (Counter(_WORD.findall(text.lower())) for text in (before, after))
    added, removed = (new - old).total(), (old - new).total()
    if not added and not removed:
        return REWORDING
    if not removed:
        return ADDED
    if not added:
        return REMOVED
    if max(added, removed) <= FEW_WORDS:
        return ""
    return REWORDING if similarity > REWORDING_SIMILARITY else TWO


def _edited(
    scene: Scene, wording: Wording, change: str, rng: random.Random
) -> tuple[str, tuple[Scene, Wording]]:
    if change == REWORDING:
        return REWORDING, (scene, _other_wording(scene, wording, rng))
    if change == TWO:
        first, second = rng.sample((*ATTRIBUTES, BACKGROUND), 2)
        edited = _with_other(_with_other(scene, first, rng)[1], second, rng)[1]
        return TWO, (edited, _other_wording(edited, wording, rng))
    if change == ADDED and len(scene.objects) == 1:
        return ADDED, (_with_object(scene, rng), wording)
    if change == REMOVED and len(scene.objects) == 2:
        return REMOVED, (dataclasses.replace(scene, objects=(rng.choice(scene.objects),)), wording)
    kind, edited = _with_other(scene, rng.choice((*ATTRIBUTES, BACKGROUND)), rng)
    return kind, (edited, wording)


def _other_wording(scene: Scene, wording: Wording, rng: random.Random) -> Wording:
    before = write_caption(scene, wording)
    return _first(lambda: random_wording(rng), lambda w: write_caption(scene, w) != before)


def _with_object(scene: Scene, rng: random.Random) -> Scene:
    def more() -> Scene:
        added = random_scene(rng, objects=1).objects
        return dataclasses.replace(scene, objects=(*scene.objects, *added))

    return _first(more, is_drawable)


def _with_other(scene: Scene, attribute: str, rng: random.Random) -> tuple[str, Scene]:
    """Another value of an attribute; another colour where no other value has room."""
    if attribute == BACKGROUND:
        return BACKGROUND, edit_background(scene, rng)
    try:
        return attribute, edit_object(scene, attribute, rng)
    except ValueError:
        return "colour", edit_object(scene, "colour", rng)


def _first(draw: Callable[[], T], fits: Callable[[T], bool]) -> T:
    while not fits(found := draw()):
        pass
    return found
