"""Which words of two prompts mean the same."""

from __future__ import annotations

import dataclasses

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.lexicon import ADJECTIVE, NOUN, VERB, Lexicon, Likeness
from skipstone_embedding.gate.readings import Content, Reading
from skipstone_embedding.gate.roles import Role
from skipstone_embedding.gate.tagging import Tag

_ALIKE = {
    Tag.NOUN: lists.ALIKE_NOUNS,
    Tag.VERB: lists.ALIKE_VERBS,
    Tag.ADJECTIVE: lists.ALIKE_ADJECTIVES,
}
_PARTS = {Tag.NOUN: NOUN, Tag.VERB: VERB, Tag.ADJECTIVE: ADJECTIVE}
_MOST_UNLIKE = 12
_ROUNDS = (Likeness.SYNONYM, Likeness.KIND)


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two words that mean the same."""

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


def pair_words(left: Reading, right: Reading, lexicon: Lexicon) -> Pairing:
    """Pairs the words of two prompts, the surest pairs first."""
    mine, others = list(left.contents), list(right.contents)
    pairs: list[Pair] = []
    _pair_same(mine, others, pairs)
    _pair_forms(mine, others, pairs)
    # Where so much differs nothing will make the prompts the same.
    if min(len(mine), len(others)) <= _MOST_UNLIKE:
        for likeness in _ROUNDS:
            _pair_alike(mine, others, pairs, likeness, lexicon)
    return Pairing(tuple(pairs), tuple(mine), tuple(others))


def _pair_same(mine: list[Content], others: list[Content], pairs: list[Pair]) -> None:
    """Pairs words of one base. A colour is no fruit, though both may be an orange."""
    by_base: dict[str, list[Content]] = {}
    for other in others:
        by_base.setdefault(other.word.base, []).append(other)
    for content in list(mine):
        for other in by_base.get(content.word.base, ()):
            if content.role is other.role or not _exact(content, other):
                by_base[content.word.base].remove(other)
                _take(content, other, mine, others, pairs, Likeness.SAME)
                break


def _pair_forms(mine: list[Content], others: list[Content], pairs: list[Pair]) -> None:
    for content in list(mine):
        for other in others:
            if not content.forms.isdisjoint(other.forms) and not _exact(content, other):
                _take(content, other, mine, others, pairs, Likeness.SAME)
                break


def _pair_alike(
    mine: list[Content],
    others: list[Content],
    pairs: list[Pair],
    likeness: Likeness,
    lexicon: Lexicon,
) -> None:
    free = [other for other in others if _may_be_alike(other)]
    for content in [content for content in mine if _may_be_alike(content)]:
        for other in free:
            if _likeness(content, other, lexicon) is likeness:
                _take(content, other, mine, others, pairs, likeness)
                free.remove(other)
                break


def _take(
    content: Content,
    other: Content,
    mine: list[Content],
    others: list[Content],
    pairs: list[Pair],
    likeness: Likeness,
) -> None:
    pairs.append(Pair(content, other, likeness))
    mine.remove(content)
    others.remove(other)


def _exact(left: Content, right: Content) -> bool:
    return left.role.is_bound or right.role.is_bound


def _may_be_alike(content: Content) -> bool:
    """Whether another word may mean the same. A rock band is no stone band."""
    return (
        content.word.tag in _PARTS
        and content.role is not Role.FREE
        and not content.role.is_bound
        and not content.in_compound
        and content.word.base not in lists.MISLEADING
    )


def _likeness(left: Content, right: Content, lexicon: Lexicon) -> Likeness:
    """How two words go together that may be alike."""
    if left.word.tag is not right.word.tag:
        return Likeness.NONE
    listed = _ALIKE[left.word.tag]
    groups = listed.get(left.word.base), listed.get(right.word.base)
    if None not in groups:
        return Likeness.SYNONYM if groups[0] == groups[1] else Likeness.NONE
    return lexicon.likeness(left.word.base, right.word.base, _PARTS[left.word.tag])
