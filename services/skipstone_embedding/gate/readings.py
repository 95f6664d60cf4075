"""A prompt as the comparison takes it: its scene, and its words that add something."""

from __future__ import annotations

import dataclasses

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.lexicon import ADJECTIVE, NOUN, VERB, Lexicon
from skipstone_embedding.gate.parsing import parse
from skipstone_embedding.gate.roles import Role, role_of
from skipstone_embedding.gate.scenes import Scene
from skipstone_embedding.gate.tagging import Tag, Word, tag_words
from skipstone_embedding.gate.words import split_words

_REPEATING = frozenset({"the", "its", "this", "his", "her", "their"})
_OUTER = frozenset({"of", "in", "the"})


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A word that adds something.

    Attributes:
        word: The word.
        role: What it adds.
        forms: What it may be a form of: "sail" and "sailing" meet whatever they were taken for.
        repeats: Whether it only names again what was named before: "the dog" after "a dog".
    """

    word: Word
    role: Role
    forms: frozenset[str]
    repeats: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """A prompt, read.

    Attributes:
        scene: Its things and links.
        contents: Its words that add something, in order.
        weight: How many of them count.
        labels: Groups of words behind the prompt that only say how to picture it.
    """

    scene: Scene
    contents: tuple[Content, ...]
    weight: int
    labels: int


def read_prompt(prompt: str, lexicon: Lexicon) -> Reading:
    """Reads a prompt."""
    scene = parse(tag_words(split_words(prompt), lexicon))
    found = _contents(scene.words, lexicon)
    weight = sum(content.role is not Role.FREE for content in found)
    return Reading(scene, tuple(found), weight, _labels(scene.words))


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
        role = _in_context(word, role, before, inside, words[at + 1 : at + 2])
        again = role is Role.THING and word.base in seen and before in _REPEATING
        found.append(Content(word, role, _forms(word, lexicon), again))
        seen.add(word.base)
        inside = inside or role in (Role.THING, Role.ACTION)
    return found


def _in_context(word: Word, role: Role, before: str, inside: bool, after: tuple[Word, ...]) -> Role:
    """What a word adds where it stands.

    A picture is no thing where it is the prompt's own, and words are none where they are quoted.
    """
    if word.text == "camera" and before == "the":
        return Role.FREE
    if (
        role is Role.PLACE
        and word.base == "center"
        and (before in lists.OPEN_PLACES or _places(after))
    ):
        return Role.FREE  # the middle left is on the left
    if word.tag is not Tag.NOUN or role is not Role.FREE:
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
