"""What a word adds to a picture, which decides what it means when the other prompt lacks it."""

from __future__ import annotations

import enum

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.tagging import Tag, Word
from skipstone_embedding.gate.words import EMPHASIS


class Role(enum.Enum):
    """What a word adds to a picture.

    Attributes of the members: none. `HARD` may never be there on one side only, `DETAIL` may, at a
    price, and `FREE` may come and go.
    """

    # Members are looked up in sets for every word: their identity is enough, and quick.
    __hash__ = object.__hash__

    FREE = "free"
    FRAMING = "framing"
    STYLE = "style"
    COLOUR = "colour"
    SIZE = "size"
    NUMBER = "number"
    PLACE = "place"
    NEGATION = "negation"
    TEXT = "text"
    SYMBOL = "symbol"
    LOGIC = "logic"
    LABEL = "label"
    DIRECTION = "direction"
    STATE = "state"
    THING = "thing"
    ACTION = "action"
    QUALITY = "quality"

    @property
    def is_detail(self) -> bool:
        """Whether one prompt may have it without the other saying another thing."""
        return self in (Role.FRAMING, Role.SIZE, Role.QUALITY, Role.LABEL)

    @property
    def is_bound(self) -> bool:
        """Whether it is exact: it has no synonyms, and it must belong to the same thing."""
        return self in _BOUND


_BOUND = frozenset(
    {
        Role.STYLE, Role.COLOUR, Role.SIZE, Role.NUMBER, Role.PLACE, Role.NEGATION, Role.TEXT,
        Role.DIRECTION, Role.FRAMING, Role.SYMBOL, Role.LOGIC,
    }
)  # fmt: skip

_POSTURES = frozenset(["stand", "sit", "lie", "rest", "pose", "park", "hang", "lean"])
"""Verbs that may be left out: who is on a bench sits there more often than not."""

_LOOSE_COUNTS = frozenset({"one", "several", "many", "all"})
_COLOURS = frozenset(lists.COLOURS.values())
_SIZES = frozenset(lists.SIZES.values())
_PLACES = frozenset(lists.OPEN_PLACES.values())
_OWN_ROLES = {Tag.NEGATION: Role.NEGATION, Tag.TEXT: Role.TEXT, Tag.SYMBOL: Role.SYMBOL}
_WORDLESS = frozenset(
    {Tag.DETERMINER, Tag.CONJUNCTION, Tag.BREAK, Tag.STOP, Tag.AUXILIARY, Tag.PRONOUN,
    Tag.PREPOSITION}
)  # fmt: skip


def role_of(word: Word) -> Role | None:
    """What a word adds; None for words that only connect."""
    if word.tag is Tag.LABEL:
        return _label_role(word)
    if word.text in lists.LOGIC:
        return Role.LOGIC
    if word.text in EMPHASIS:
        return Role.SYMBOL
    if word.tag in _WORDLESS:
        return None
    if word.tag in _OWN_ROLES:
        return _OWN_ROLES[word.tag]
    if word.text in lists.BOOSTERS or word.base in lists.BOOSTERS:
        return Role.FREE
    if word.tag is Tag.COUNT:
        return Role.FREE if word.base in _LOOSE_COUNTS else Role.NUMBER
    if word.tag is Tag.ADVERB:
        return Role.DIRECTION if _is_shown(word) else Role.FREE
    if word.text in lists.FRAMING:
        return Role.FRAMING
    if word.tag is not Tag.VERB and (word.text in lists.MEDIA or word.base in lists.MEDIA):
        return Role.STYLE
    return _open_role(word)


def _label_role(word: Word) -> Role:
    if word.text in lists.FRAMING:
        return Role.FRAMING
    empty = word.text in lists.BOOSTERS or word.text in lists.TAG_HEADS
    return Role.FREE if empty else Role.LABEL


def _is_shown(adverb: Word) -> bool:
    """Whether an adverb is more than a manner ("gently") or a degree ("very")."""
    told = adverb.text in lists.DIRECTIONS or adverb.text in lists.PREPOSITIONS
    return told or not (adverb.text in lists.EMPTY_ADVERBS or adverb.text.endswith("ly"))


def _is_state(word: Word) -> bool:
    return word.text in lists.STATES or (
        word.text.endswith("less") and word.text not in lists.PRAISE
    )


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
    if _is_state(word):
        return Role.STATE
    if word.base in _COLOURS:
        return Role.COLOUR
    if word.base in _SIZES:
        return Role.SIZE
    return Role.PLACE if word.base in _PLACES else Role.QUALITY
