"""Words for scenes: many wordings of one scene, and the way back from a caption to its scene.

A `Wording` fixes sentence form, order of the objects and choice of synonyms. One scene under two
wordings is a rewording; two scenes that differ in one attribute, under one wording, give two
captions that differ in that attribute's words only.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final

from skipstone_bundled.scenes import Scene, SceneObject

SIZE_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium", "midsize"),
    "large": ("large", "big", "huge"),
}
COLOUR_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "red": ("red", "scarlet"),
    "green": ("green",),
    "blue": ("blue",),
    "yellow": ("yellow",),
    "orange": ("orange",),
    "purple": ("purple", "violet"),
    "white": ("white",),
    "black": ("black",),
}
SHAPE_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "circle": ("circle", "disc"),
    "square": ("square", "box"),
    "triangle": ("triangle", "pyramid"),
    "cross": ("cross", "plus"),
    "ring": ("ring", "hoop"),
}
BACKGROUND_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "gray": ("gray", "grey"),
    "beige": ("beige", "tan"),
    "pink": ("pink",),
    "lavender": ("lavender", "lilac"),
    "teal": ("teal", "turquoise"),
    "brown": ("brown",),
}
PLACE_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "top left": ("at the top left", "in the top left corner", "at the upper left"),
    "top": ("at the top", "at the top center", "in the upper middle"),
    "top right": ("at the top right", "in the top right corner", "at the upper right"),
    "left": ("on the left", "at the left side", "in the middle left"),
    "center": ("in the center", "in the middle", "at the center"),
    "right": ("on the right", "at the right side", "in the middle right"),
    "bottom left": ("at the bottom left", "in the bottom left corner", "at the lower left"),
    "bottom": ("at the bottom", "at the bottom center", "in the lower middle"),
    "bottom right": ("at the bottom right", "in the bottom right corner", "at the lower right"),
}

MAX_CAPTION_TOKENS: Final = 30
"""Words and marks that a caption has at most."""

# A form is (opening, object, joint, ending): {o} an object without its place, {p} its place, {b}
# the background.
_FORMS: Final = (
    ("", "{o} {p}", " and ", " on a {b} background"),
    ("", "{o} {p}", ", ", ", {b} background"),
    ("on a {b} background, ", "{o} {p}", " and ", ""),
    ("{b} background, ", "{p} {o}", ", ", ""),
    ("a picture of ", "{o} {p}", " and ", " against {b}"),
    ("there is ", "{o} {p}", " and ", ", the background is {b}"),
    ("against a {b} backdrop, ", "{p} {o}", " and ", ""),
    ("", "{p} there is {o}", " and ", ", all on {b}"),
)
_OBJECT_FORMS: Final = ("a {s} {c} {h}", "a {s} {h} in {c}", "a {c} {h}, {s}")
_TOKEN = re.compile(r"[a-z]+|[^\sa-z]")


@dataclass(frozen=True, slots=True)
class Wording:
    """How a scene is put into words.

    Attributes:
        form: Index of the sentence form, 0 to `FORM_COUNT` - 1.
        object_form: Index of the form of an object's own words, 0 to 2.
        reverse: Names the second object first.
        synonyms: Seed of the choice among words of equal meaning.
    """

    form: int
    object_form: int
    reverse: bool
    synonyms: int


FORM_COUNT: Final = len(_FORMS)


def random_wording(rng: random.Random) -> Wording:
    """Draws a wording; half of the objects have the plain form "a small red circle"."""
    object_form = rng.choice((0, 0, 1, 2))
    return Wording(rng.randrange(FORM_COUNT), object_form, rng.random() < 0.5, rng.randrange(1000))


def write_caption(scene: Scene, wording: Wording) -> str:
    """Puts a scene into words; equal arguments give equal captions."""
    opening, pattern, joint, ending = _FORMS[wording.form]
    slots = list(enumerate(scene.objects))
    if wording.reverse:
        slots.reverse()
    objects = joint.join(_write_object(item, slot, pattern, wording) for slot, item in slots)
    background = _choose(BACKGROUND_WORDS[scene.background], wording, 99)
    return (opening + objects + ending).replace("{b}", background)


def captions(scene: Scene, count: int, rng: random.Random) -> list[str]:
    """Returns that many different wordings of one scene."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[write_caption(scene, random_wording(rng))] = None
    return list(found)


def tokenize(caption: str) -> list[str]:
    """Splits a caption into lower-case words and marks, as the model's tokenizer does."""
    return _TOKEN.findall(caption.lower())


def vocabulary() -> list[str]:
    """Returns every word and mark of the grammar, sorted."""
    texts = [text for form in _FORMS for text in form] + list(_OBJECT_FORMS)
    for words in (SIZE_WORDS, COLOUR_WORDS, SHAPE_WORDS, BACKGROUND_WORDS, PLACE_WORDS):
        texts += [word for choices in words.values() for word in choices]
    plain = re.sub(r"\{.\}", " ", " ".join(texts))
    return sorted({*tokenize(plain), "an", "with", "."})


def read_caption(caption: str) -> Scene:
    """Finds the scene that a caption of this grammar states.

    The objects are in the order in which the caption names them.

    Raises:
        ValueError: The caption is not of this grammar.
    """
    words = tokenize(caption)
    backgrounds = [_MEANING[word][1] for word in words if _kind(word) == "background"]
    if len(backgrounds) != 1:
        raise ValueError(f"expected one background in {caption!r}, found {len(backgrounds)}")
    colours = [index for index, word in enumerate(words) if _kind(word) == "colour"]
    if not 1 <= len(colours) <= 2:
        raise ValueError(f"expected one or two objects in {caption!r}, found {len(colours)}")
    values = {kind: _read_values(words, kind) for kind in ("size", "colour", "shape")}
    values["place"] = _read_places(words)
    if any(len(found) != len(colours) for found in values.values()):
        raise ValueError(f"every object needs size, colour, shape and place: {caption!r}")
    items = (
        SceneObject(**{kind: found[index] for kind, found in values.items()})
        for index in range(len(colours))
    )
    return Scene(backgrounds[0], tuple(items))


def _write_object(item: SceneObject, slot: int, pattern: str, wording: Wording) -> str:
    words = {
        "{s}": _choose(SIZE_WORDS[item.size], wording, slot),
        "{c}": _choose(COLOUR_WORDS[item.colour], wording, slot + 10),
        "{h}": _choose(SHAPE_WORDS[item.shape], wording, slot + 20),
        "{p}": _choose(PLACE_WORDS[item.place], wording, slot + 30),
    }
    text = pattern.replace("{o}", _OBJECT_FORMS[wording.object_form])
    for mark, word in words.items():
        text = text.replace(mark, word)
    return re.sub(r"\ba (?=orange)", "an ", text)


def _choose(choices: tuple[str, ...], wording: Wording, slot: int) -> str:
    # A multiplicative hash: the slots of one wording choose independently, and a slot keeps its
    # choice when another slot's word changes.
    mixed = (wording.synonyms * 1000 + slot + 1) * 2654435761 % 2**32
    return choices[(mixed >> 8) % len(choices)]


def _meanings() -> dict[str, tuple[str, str]]:
    kinds: dict[str, dict[str, tuple[str, ...]]] = {
        "size": SIZE_WORDS,
        "colour": COLOUR_WORDS,
        "shape": SHAPE_WORDS,
        "background": BACKGROUND_WORDS,
    }
    return {
        word: (kind, value)
        for kind, values in kinds.items()
        for value, choices in values.items()
        for word in choices
    }


_MEANING: Final = _meanings()
_PLACE_PHRASES: Final = sorted(
    ((tokenize(phrase), place) for place, phrases in PLACE_WORDS.items() for phrase in phrases),
    key=lambda entry: -len(entry[0]),
)


def _kind(word: str) -> str | None:
    return _MEANING[word][0] if word in _MEANING else None


def _read_values(words: list[str], kind: str) -> list[str]:
    return [_MEANING[word][1] for word in words if _kind(word) == kind]


def _read_places(words: list[str]) -> list[str]:
    places: list[str] = []
    start = 0
    while start < len(words):
        # The longest phrase wins: "at the top left" also begins with "at the top".
        for phrase, place in _PLACE_PHRASES:
            if words[start : start + len(phrase)] == phrase:
                places.append(place)
                start += len(phrase)
                break
        else:
            start += 1
    return places
