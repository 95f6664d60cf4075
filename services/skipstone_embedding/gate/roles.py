"""What a word adds to a picture, which decides what it means when the other prompt lacks it."""

from __future__ import annotations

import enum

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.tagging import Tag, Word


class Role(enum.Enum):
    """What a word adds to a picture.

    Attributes of the members: none. `HARD` may never be there on one side only, `DETAIL` may, at a
    price, and `FREE` may come and go.
    """

    FREE = "free"
    FRAMING = "framing"
    STYLE = "style"
    COLOUR = "colour"
    SIZE = "size"
    NUMBER = "number"
    PLACE = "place"
    NEGATION = "negation"
    TEXT = "text"
    DIRECTION = "direction"
    STATE = "state"
    THING = "thing"
    ACTION = "action"
    QUALITY = "quality"

    @property
    def is_detail(self) -> bool:
        """Whether one prompt may have it without the other saying another thing."""
        return self in (Role.FRAMING, Role.SIZE, Role.QUALITY)

    @property
    def is_bound(self) -> bool:
        """Whether it is exact: it has no synonyms, and it must belong to the same thing."""
        return self in _BOUND


_BOUND = frozenset(
    {
        Role.STYLE, Role.COLOUR, Role.SIZE, Role.NUMBER, Role.PLACE, Role.NEGATION, Role.TEXT,
        Role.DIRECTION, Role.FRAMING,
    }
)  # fmt: skip

_POSTURES = frozenset(["stand", "sit", "lie", "rest", "pose", "park", "hang", "lean"])
"""Verbs that may be left out: who is on a bench sits there more often than not."""

_LOOSE_COUNTS = frozenset({"one", "several", "many", "all"})
_COLOURS = frozenset(lists.COLOURS.values())
_SIZES = frozenset(lists.SIZES.values())
_PLACES = frozenset(lists.OPEN_PLACES.values())
_WORDLESS = frozenset(
    {Tag.DETERMINER, Tag.CONJUNCTION, Tag.BREAK, Tag.STOP, Tag.AUXILIARY, Tag.PRONOUN,
    Tag.PREPOSITION}
)  # fmt: skip


def role_of(word: Word) -> Role | None:
    """What a word adds; None for words that only connect."""
    if word.tag in _WORDLESS:
        return None
    if word.tag is Tag.LABEL:
        return Role.FRAMING if word.text in lists.FRAMING else Role.FREE
    if word.tag is Tag.NEGATION:
        return Role.NEGATION
    if word.tag is Tag.TEXT:
        return Role.TEXT
    if word.text in lists.BOOSTERS or word.base in lists.BOOSTERS:
        return Role.FREE
    if word.tag is Tag.COUNT:
        return Role.FREE if word.base in _LOOSE_COUNTS else Role.NUMBER
    if word.tag is Tag.ADVERB:
        told = word.text in lists.DIRECTIONS or word.text in lists.PREPOSITIONS
        return Role.DIRECTION if told else Role.FREE
    if word.text in lists.FRAMING:
        return Role.FRAMING
    if word.tag is not Tag.VERB and (word.text in lists.MEDIA or word.base in lists.MEDIA):
        return Role.STYLE
    return _open_role(word)


def _open_role(word: Word) -> Role:
    if word.tag is Tag.VERB:
        if word.base in lists.FILLER_VERBS or word.base in lists.HAVING:
            return Role.FREE
        return Role.QUALITY if word.base in _POSTURES else Role.ACTION
    if word.tag is Tag.NOUN:
        free = (
            word.base in lists.FILLER_NOUNS
            or word.base in lists.EMPTY_NOUNS
            or word.base in lists.TEXT_NOUNS
        )
        return Role.FREE if free else Role.THING
    if word.text in lists.STATES:
        return Role.STATE
    if word.base in _COLOURS:
        return Role.COLOUR
    if word.base in _SIZES:
        return Role.SIZE
    return Role.PLACE if word.base in _PLACES else Role.QUALITY
