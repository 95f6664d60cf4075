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
        definite: Whether it is "the dog" where it is named first.
    """

    head: Word
    qualities: list[Word] = dataclasses.field(default_factory=list)
    definite: bool = False


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Link:
    """What connects one thing to another.

    Attributes:
        name: Preposition, or base form of a verb.
        subject: What it is said of.
        others: What it may be said of as well, as far as the order of words tells.
        target: The other thing.
        verb: What the subject does to the target; None for a preposition.
    """

    name: str
    subject: Thing
    others: tuple[Thing, ...]
    target: Thing
    verb: Word | None = None

    @property
    def is_verb(self) -> bool:
        """Whether the subject does something to the target."""
        return self.verb is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """A prompt, read.

    Attributes:
        words: All its words and punctuation, tagged.
        things: In order.
        links: In order.
        loose: Prepositions that connect nothing, in order: the second one of "tossed about in".
        guesses: How often the order of words left open who does or is what.
    """

    words: tuple[Word, ...]
    things: tuple[Thing, ...]
    links: tuple[Link, ...]
    loose: tuple[str, ...] = ()
    guesses: int = 0
