"""A prompt as the comparison takes it: its scene, and its words that add something."""

from __future__ import annotations

import dataclasses
import itertools

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.lexicon import ADJECTIVE, NOUN, VERB, Lexicon
from skipstone_embedding.gate.parsing import parse
from skipstone_embedding.gate.roles import Role, role_of
from skipstone_embedding.gate.scenes import Scene, Thing
from skipstone_embedding.gate.tagging import Tag, Word, tag_words
from skipstone_embedding.gate.words import split_words

_REPEATING = frozenset({"the", "its", "this", "his", "her", "their"})
_PICTURED = (["of", "a"], ["of", "an"], ["of", "the"])
_OUTER = frozenset({"of", "in", "the"})
_WEIGHTLESS = (Role.FREE, Role.LABEL)
_OPENING = frozenset({Role.FREE, Role.FRAMING, Role.STYLE, Role.QUALITY, Role.COLOUR, Role.SIZE})
_SHAPED = frozenset({Role.SIZE, Role.COLOUR, Role.PLACE})
_LIGHT = {"lighting": "light", "tones": "tone", "colors": "color"}

_FOREIGN_SHARE = 3
"""A third of unknown words makes a prompt one of another language."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A word that adds something.

    Attributes:
        word: The word.
        role: What it adds.
        forms: What it may be a form of: "sail" and "sailing" meet whatever they were taken for.
        repeats: Whether it only names again what was named before: "the dog" after "a dog".
        in_compound: Whether it is a noun beside another one: "rock" in "a rock band".
    """

    word: Word
    role: Role
    forms: frozenset[str]
    repeats: bool = False
    in_compound: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """A prompt, read.

    Attributes:
        scene: Its things and links.
        contents: Its words that add something, in order.
        weight: How many of them count.
        labels: Groups of words behind the prompt that only say how to picture it.
        shades: Colours with what they are a shade of: ("dark", "blue").
        looks: What labels say with what they say it of: ("warm", "light"); "" for the picture.
        unknown: How many words neither the lexicon nor a list has.
        medium: What it opens with where that tells what it is made in: "an oil painting of".
        genders: Whose pronouns there are, in order, without repetitions.
        length: Characters of the prompt.
    """

    scene: Scene
    contents: tuple[Content, ...]
    weight: int
    labels: int
    shades: frozenset[tuple[str, str]]
    looks: frozenset[tuple[str, str]]
    unknown: int
    medium: str
    genders: tuple[str, ...]
    length: int

    @property
    def is_foreign(self) -> bool:
        """Whether it is of another language, where nothing tells which word does what."""
        words = sum(word.text[0].isalpha() for word in self.scene.words)
        return self.unknown > 1 and _FOREIGN_SHARE * self.unknown > words


def read_prompt(prompt: str, lexicon: Lexicon) -> Reading:
    """Reads a prompt."""
    scene = parse(tag_words(split_words(prompt), lexicon))
    if _is_flat_drawing(scene):
        scene = parse([_flat_shape(word) for word in scene.words])
    found = _contents(scene.words, lexicon)
    weight = sum(content.role not in _WEIGHTLESS for content in found)
    return Reading(
        scene,
        tuple(found),
        weight,
        _labels(scene.words),
        _shades(scene.words),
        _looks(scene.words),
        sum(not word.known for word in scene.words),
        _medium(found),
        _genders(scene.words),
        len(prompt),
    )


def _is_flat_drawing(scene: Scene) -> bool:
    """Whether a prompt is a caption of the bundled model, to which a box is a flat square.

    Such a caption names the colour of the background, and of every other thing a size, a colour, a
    shape and a place. Elsewhere a box is a box.
    """
    shapes = [thing for thing in scene.things if thing.head.base != "background"]
    return (
        any(_roles(thing) >= _SHAPED for thing in shapes)
        and all(
            thing.head.base in lists.FLAT_SHAPES and _roles(thing) >= _SHAPED for thing in shapes
        )
        and any(Role.COLOUR in _roles(thing) for thing in scene.things if thing not in shapes)
    )


def _roles(thing: Thing) -> set[Role | None]:
    return {role_of(word) for word in thing.qualities}


def _flat_shape(word: Word) -> Word:
    if word.tag is not Tag.NOUN or word.base not in lists.FLAT_SHAPES:
        return word
    return dataclasses.replace(word, base=lists.FLAT_SHAPES[word.base])


def _shades(words: tuple[Word, ...]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (word.text, after.base)
        for word, after in itertools.pairwise(words)
        if word.text in lists.SHADES and after.text in lists.COLOURS
    )


def _looks(words: tuple[Word, ...]) -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for is_label, group in itertools.groupby(words, lambda word: word.tag is Tag.LABEL):
        if is_label:
            texts = [_LIGHT.get(word.text, word.text) for word in group]
            head = texts[-1] if texts[-1] in lists.TAG_HEADS else ""
            found |= {(text, head) for text in texts if text != head}
    return frozenset(found)


def _medium(contents: list[Content]) -> str:
    opening = itertools.takewhile(lambda content: content.role in _OPENING, contents)
    return " ".join(content.word.base for content in opening if content.role is Role.STYLE)


def _genders(words: tuple[Word, ...]) -> tuple[str, ...]:
    told = (
        "she" if word.text in lists.FEMALE else "he" if word.text in lists.MALE else ""
        for word in words
    )
    return tuple(gender for gender, _ in itertools.groupby(filter(None, told)))


def _contents(words: tuple[Word, ...], lexicon: Lexicon) -> list[Content]:
    found: list[Content] = []
    seen: set[str] = set()
    inside = False
    for at, word in enumerate(words):
        role = role_of(word)
        if role is None:
            inside = inside and word.tag is not Tag.STOP
            continue
        before = words[at - 1].text if at else ""
        role = _in_context(words, at, role, inside)
        again = role is Role.THING and word.base in seen and before in _REPEATING
        found.append(Content(word, role, _forms(word, lexicon), again, _in_compound(words, at)))
        seen.add(word.base)
        inside = inside or role in (Role.THING, Role.ACTION)
    return found


def _in_compound(words: tuple[Word, ...], at: int) -> bool:
    beside = (*words[max(0, at - 1) : at], *words[at + 1 : at + 2])
    return words[at].tag is Tag.NOUN and any(word.tag is Tag.NOUN for word in beside)


def _in_context(words: tuple[Word, ...], at: int, role: Role, inside: bool) -> Role:
    """What a word adds where it stands.

    A picture is no thing where it is the prompt's own, and words are none where they are quoted.
    """
    word, after = words[at], words[at + 1 : at + 2]
    before = words[at - 1].text if at else ""
    if word.text == "camera" and before == "the":
        return Role.FREE
    if (
        role is Role.PLACE
        and word.base == "center"
        and (before in lists.OPEN_PLACES or _places(after))
    ):
        return Role.FREE  # the middle left is on the left
    if word.tag is not Tag.NOUN:
        return role
    if role is Role.STYLE and [w.text for w in words[max(0, at - 2) : at]] in _PICTURED:
        return Role.THING  # the pencil in "a drawing of a pencil"
    if role is not Role.FREE:
        return role
    if word.base in lists.TEXT_NOUNS:
        return Role.FREE if after and after[0].tag is Tag.TEXT else Role.THING
    own = not inside or before in _OUTER or word.text in lists.BOOSTERS
    return Role.THING if word.base in lists.FILLER_NOUNS and not own else role


def _places(words: tuple[Word, ...]) -> bool:
    return any(word.text in lists.OPEN_PLACES for word in words)


def _forms(word: Word, lexicon: Lexicon) -> frozenset[str]:
    lemmas = (lexicon.lemma(word.text, part) for part in (NOUN, VERB, ADJECTIVE))
    return frozenset({word.base, word.text, *lemmas} - {""})


def _labels(words: tuple[Word, ...]) -> int:
    count, before = 0, False
    for word in words:
        is_label = word.tag is Tag.LABEL
        count += is_label and not before
        before = is_label
    return count
