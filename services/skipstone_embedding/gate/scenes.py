"""What a prompt says, as things and what connects them."""

from __future__ import annotations

import dataclasses

from skipstone_embedding.gate.tagging import Word


@dataclasses.dataclass(slots=True, eq=False)
class Thing:
    """Something a prompt names.

    Attributes:
        head: Its noun, or a colour that stands for one ("dressed in red").
        qualities: What is said of it alone: adjectives, counts, places in the picture, what it does
            without an object, texts on it, nouns before its own, negations.
    """

    head: Word
    qualities: list[Word] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Link:
    """What connects one thing to another.

    Attributes:
        name: Preposition, or base form of a verb.
        subject: What it is said of.
        others: What it may be said of as well, as far as the order of words tells.
        target: The other thing.
        is_verb: Whether the subject does something to the target.
    """

    name: str
    subject: Thing
    others: tuple[Thing, ...]
    target: Thing
    is_verb: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """A prompt, read.

    Attributes:
        words: All its words and punctuation, tagged.
        things: In order.
        links: In order.
    """

    words: tuple[Word, ...]
    things: tuple[Thing, ...]
    links: tuple[Link, ...]
