"""Scenes of the generated prompts, and the many ways to word one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from skipstone_gate import vocabulary as words

SINGLE, RELATION, TOGETHER, MOTION, DEED, SIGN, WITHOUT = (
    "single", "relation", "together", "motion", "deed", "sign", "without"
)  # fmt: skip
FORMS = (SINGLE, RELATION, TOGETHER, MOTION, DEED, SIGN, WITHOUT)

_IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "sheep": "sheep", "wolf": "wolves",
    "fox": "foxes", "knife": "knives", "box": "boxes", "bus": "buses", "couch": "couches",
    "bench": "benches", "sandwich": "sandwiches", "penguin": "penguins", "cactus": "cacti",
    "deer": "deer", "moose": "moose", "fisherman": "fishermen", "scarf": "scarves",
    "toothbrush": "toothbrushes", "ox": "oxen", "mouse": "mice", "compass": "compasses",
    "octopus": "octopuses", "waitress": "waitresses", "paintbrush": "paintbrushes",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """A thing of a scene.

    Attributes:
        noun: What it is.
        count: "one", or a number word.
        colour: Empty for none; so are the others.
        size: Of `SIZES`.
        material: Only for objects.
        pattern: Only for objects.
        age: Only for persons.
        mood: Only for persons and animals.
    """

    noun: str
    count: str = "one"
    colour: str = ""
    size: str = ""
    material: str = ""
    pattern: str = ""
    age: str = ""
    mood: str = ""

    @property
    def qualities(self) -> list[str]:
        """Adjectives in the order in which English has them."""
        said = (self.mood, self.size, self.age, self.pattern, self.colour, self.material)
        return [word for word in said if word]


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """What a prompt says.

    Attributes:
        form: One of `FORMS`.
        first: The thing it is about.
        second: The other thing, where the form has one.
        relation: Index into `RELATIONS`.
        action: Index into `MOTIONS` or `DEEDS`.
        place: Where it is; empty for nowhere, and so on.
        time: When.
        weather: Of the place.
        style: How the prompt opens; empty for a photograph.
        text: What a sign says.
    """

    form: str
    first: Item
    second: Item | None = None
    relation: int = 0
    action: int = 0
    place: str = ""
    time: str = ""
    weather: str = ""
    style: str = ""
    text: str = ""


def random_scene(rng: random.Random, *, held_out: bool) -> Scene:
    """Draws a scene from one half of the vocabulary."""

    def draw(pool: Sequence[str]) -> str:
        return str(rng.choice(words.share(tuple(pool), held_out)))

    form = rng.choice(FORMS)
    beings = [*words.ANIMALS, *words.PEOPLE]
    alive = form in (MOTION, DEED) or (form in (SINGLE, TOGETHER) and rng.random() < 0.4)
    first = _random_item(rng, draw, beings if alive else list(words.OBJECTS), form)
    second = None
    if form in (RELATION, TOGETHER, DEED, WITHOUT):
        pool = beings if form == DEED else list(words.OBJECTS)
        second = _random_item(rng, draw, [w for w in pool if w != first.noun], form)
    actions = words.DEEDS if form == DEED else words.MOTIONS
    offset = int(held_out)
    return Scene(
        form,
        first,
        second,
        relation=rng.randrange(len(words.RELATIONS)),
        action=rng.randrange(offset, len(actions), 2),
        place=draw(words.PLACES) if rng.random() < 0.45 and form != RELATION else "",
        time=draw(words.TIMES) if rng.random() < 0.2 else "",
        weather=draw(words.WEATHER) if rng.random() < 0.15 else "",
        style=draw(words.STYLES) if rng.random() < 0.12 else "",
        text=draw(words.TEXTS) if form == SIGN else "",
    )


def _random_item(rng: random.Random, draw: object, nouns: list[str], form: str) -> Item:
    assert callable(draw)
    noun = draw(nouns)
    person, animal = noun in words.PEOPLE, noun in words.ANIMALS
    item = Item(noun)
    if form not in (RELATION, SIGN) and rng.random() < 0.2:
        item = dataclasses.replace(item, count=draw(words.COUNTS))
    if not person and rng.random() < 0.5:
        item = dataclasses.replace(item, colour=draw(words.COLOURS))
    if rng.random() < 0.2:
        item = dataclasses.replace(item, size=rng.choice(rng.choice(words.SIZES)))
    if not person and not animal and rng.random() < 0.2:
        item = dataclasses.replace(item, material=draw(words.MATERIALS))
    if not person and not animal and rng.random() < 0.1:
        item = dataclasses.replace(item, pattern=draw(words.PATTERNS))
    if person and rng.random() < 0.3 and not item.size:
        item = dataclasses.replace(item, age=rng.choice(rng.choice(words.AGES)))
    if (person or animal) and rng.random() < 0.2:
        item = dataclasses.replace(item, mood=draw(words.MOODS))
    return item


class Writer:
    """Words scenes; each call may choose another wording."""

    def __init__(self, rng: random.Random, *, synonyms: float = 0.0) -> None:
        """Creates the writer.

        Args:
            rng: What chooses.
            synonyms: How often a word that has a synonym is exchanged for it.
        """
        self._rng = rng
        self._synonyms = synonyms

    def write(self, scene: Scene) -> str:
        """One wording of a scene."""
        rng = self._rng
        core = self._core(scene)
        where = self._where(scene)
        if scene.style:
            text = " ".join(filter(None, [scene.style, core, where]))
        elif where and rng.random() < 0.25:
            text = f"{where}, {core}"
        else:
            text = " ".join(filter(None, [core, where]))
            if rng.random() < 0.35 and not core.startswith("there"):
                text = f"{rng.choice(words.OPENINGS)} {text}"
        text = self._exchanged(text)
        return text[0].upper() + text[1:] + "." if rng.random() < 0.3 else text

    def name(self, item: Item, adorned: str = "", *, one: str = "") -> str:
        """A thing with its qualities and its article."""
        qualities = [adorned, *item.qualities] if adorned else item.qualities
        noun = item.noun if item.count == "one" else plural(item.noun)
        rest = " ".join([*qualities, noun])
        if item.count != "one":
            return f"{item.count} {rest}"
        return f"{one} {rest}" if one else f"{article(rest)} {rest}"

    def _core(self, scene: Scene) -> str:
        first = self.name(scene.first)
        if scene.form == RELATION:
            return self._relation(scene)
        if scene.form == TOGETHER:
            assert scene.second is not None
            pair = [first, self.name(scene.second)]
            if self._rng.random() < 0.5:
                pair.reverse()
            return f"{pair[0]} {self._rng.choice(['and', 'and', 'together with'])} {pair[1]}"
        if scene.form == MOTION:
            return self._motion(scene)
        if scene.form == DEED:
            return self._deed(scene)
        if scene.form == SIGN:
            verb = self._rng.choice(["that says", "saying", "that reads"])
            return f'{first} with a sign {verb} "{scene.text}"'
        if scene.form == WITHOUT:
            assert scene.second is not None
            word = self._rng.choice(["without", "with no"])
            name = self.name(scene.second)
            bare = name.split(" ", 1)[1] if word == "with no" and name[:2] in ("a ", "an") else name
            return f"{first} {word} {bare}"
        return first

    def _relation(self, scene: Scene) -> str:
        assert scene.second is not None
        said, converse, _ = words.RELATIONS[scene.relation]
        first, second = self.name(scene.first), self.name(scene.second)
        if converse and self._rng.random() < 0.4:
            return f"{second} {self._rng.choice(converse)} {first}"
        return f"{first} {self._rng.choice(said)} {second}"

    def _motion(self, scene: Scene) -> str:
        doing, does = words.MOTIONS[scene.action]
        first, many = self.name(scene.first), scene.first.count != "one"
        choices = [f"{first} {doing}", f"{first} {'are' if many else 'is'} {doing}"]
        choices.append(f"{first} {doing}" if many else f"{first} {does}")
        return self._rng.choice(choices)

    def _deed(self, scene: Scene) -> str:
        assert scene.second is not None
        doing, _, done = words.DEEDS[scene.action]
        first, second = self.name(scene.first), self.name(scene.second)
        many = scene.first.count != "one"
        choices = [
            f"{first} {doing} {second}",
            f"{first} {'are' if many else 'is'} {doing} {second}",
            f"{second} {'are' if scene.second.count != 'one' else 'is'} {done} by {first}",
            f"{second} being {done} by {first}",
        ]
        return self._rng.choice(choices)

    def _where(self, scene: Scene) -> str:
        place = ""
        if scene.place or scene.weather:
            name = " ".join(filter(None, [scene.weather, scene.place or "day"]))
            before = "in" if scene.place else "on"
            place = f"{before} {article(name)} {name}"
        return " ".join(filter(None, [place, scene.time]))

    def _exchanged(self, text: str) -> str:
        """Exchanges words that have a synonym, in either direction."""
        if self._rng.random() >= self._synonyms:
            return text
        for pair in words.SYNONYMS:
            left, right = pair if self._rng.random() < 0.5 else pair[::-1]
            if f" {left} " in f" {text} ":
                text = f" {text} ".replace(f" {left} ", f" {right} ").strip()
        return text


def plural(noun: str) -> str:
    """The plural of a noun of the vocabulary."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def article(rest: str) -> str:
    """`a` or `an`."""
    return "an" if rest[0] in "aeiou" else "a"
