"""Which words of two prompts mean the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.lexicon import ADJECTIVE, NOUN, VERB, Lexicon, Likeness
from skipstone_embedding.gate.roles import Role, role_of
from skipstone_embedding.gate.scenes import Scene
from skipstone_embedding.gate.tagging import Tag, Word

_PARTS = {Tag.NOUN: NOUN, Tag.VERB: VERB, Tag.ADJECTIVE: ADJECTIVE}
_ROUNDS = (Likeness.SYNONYM, Likeness.KIND, Likeness.NEAR)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A word that adds something.

    Attributes:
        word: The word.
        role: What it adds.
        repeats: Whether it only names again what was named before: "the dog" after "a dog".
    """

    word: Word
    role: Role
    repeats: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two words that mean the same, or nearly."""

    left: Content
    right: Content
    likeness: Likeness


@dataclasses.dataclass(frozen=True, slots=True)
class Pairing:
    """All words of two prompts that add something.

    Attributes:
        pairs: Words that found each other.
        left: Words of the first prompt that the second one lacks.
        right: Words of the second prompt that the first one lacks.
    """

    pairs: tuple[Pair, ...]
    left: tuple[Content, ...]
    right: tuple[Content, ...]

    def names(self) -> dict[str, str]:
        """For bases of the second prompt, those of the first that mean the same."""
        return {pair.right.word.base: pair.left.word.base for pair in reversed(self.pairs)}


def contents(scene: Scene) -> list[Content]:
    """The words of a prompt that add something."""
    found: list[Content] = []
    seen: set[str] = set()
    before = ""
    for word in scene.words:
        role = role_of(word)
        if word.text == "camera" and before == "the":
            role = Role.FREE  # the one that takes the picture, not one in it
        if role is not None:
            again = role is Role.THING and word.base in seen and before in ("the", "its", "this")
            found.append(Content(word, role, again))
            seen.add(word.base)
        before = word.text
    return found


def pair_words(left: Scene, right: Scene, lexicon: Lexicon) -> Pairing:
    """Pairs the words of two prompts, the surest pairs first."""
    mine, others = contents(left), contents(right)
    pairs: list[Pair] = []

    def take(fits: Callable[[Content, Content], bool], likeness: Likeness) -> None:
        for content in list(mine):
            found = next((other for other in others if fits(content, other)), None)
            if found is not None:
                pairs.append(Pair(content, found, likeness))
                mine.remove(content)
                others.remove(found)

    take(_same, Likeness.SAME)
    take(
        lambda a, b: not _exact(a, b) and bool(_forms(a, lexicon) & _forms(b, lexicon)),
        Likeness.SAME,
    )
    for likeness in _ROUNDS:
        take(lambda a, b, wanted=likeness: _likeness(a, b, lexicon) is wanted, likeness)  # type: ignore[misc]
    return Pairing(tuple(pairs), tuple(mine), tuple(others))


def _same(left: Content, right: Content) -> bool:
    return left.word.base == right.word.base and (
        left.role is right.role or not _exact(left, right)
    )


def _exact(left: Content, right: Content) -> bool:
    return left.role.is_bound or right.role.is_bound


def _forms(content: Content, lexicon: Lexicon) -> set[str]:
    """What a word may be a form of: "sail" and "sailing" meet whatever they were taken for."""
    text = content.word.text
    return {content.word.base, text, *(lexicon.lemma(text, part) for part in _PARTS.values())} - {
        ""
    }


def _likeness(left: Content, right: Content, lexicon: Lexicon) -> Likeness:
    part = _PARTS.get(left.word.tag)
    if part is None or left.word.tag is not right.word.tag or _exact(left, right):
        return Likeness.NONE
    if Role.FREE in (left.role, right.role):
        return Likeness.NONE
    alike = lists.ALIKE.get(left.word.base)
    if alike is not None and alike == lists.ALIKE.get(right.word.base):
        return Likeness.SYNONYM
    return lexicon.likeness(left.word.base, right.word.base, part)
