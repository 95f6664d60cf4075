"""The words of a prompt -> the things in it, their qualities, and what connects them.

This is no grammar of English. It reads the way prompts are written, names joined by prepositions,
verbs and commas, and reads two wordings of one scene alike more often than not. Where it reads them
differently the comparison refuses, which costs a hit and gives no wrong picture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.roles import Role, role_of
from skipstone_embedding.gate.scenes import Link, Scene, Thing
from skipstone_embedding.gate.tagging import Tag, Word

_NEAREST = frozenset({"of", "with_", "style", "from_", "for_", "wearing", "holding"})
"""Prepositions that belong to the noun before them, whatever else happens in the sentence."""

_IN_NAME = frozenset({Tag.ADJECTIVE, Tag.COUNT, Tag.NOUN, Tag.TEXT})
_PLACES = frozenset(lists.OPEN_PLACES.values())
_COLOURS = frozenset(lists.COLOURS.values())
_PARTS = frozenset({"side", "corner", "part", "half", "edge", "area", "third"})
_OUTSIDES = frozenset({"surface", "middle", "center"})
_REFERRING = frozenset({"it", "them", "him", "her"})
_GROUNDS = frozenset({"background", "foreground"})
_SINGULAR = frozenset({"is", "was", "has", "does", "'s"})
_DEFINITE = frozenset({"the", "this", "that", "these", "those"})
_DESCRIBING = frozenset({"with_", "of", "in_", "wearing", "holding", "on", "from_"})
_SILENT = frozenset({"'s"})
_BEFORE_PLACE = frozenset({"on", "at", "in_", "to"})
_BEFORE_BACKGROUND = frozenset({"on", "against", "with_", "in_"})
_RELATIVE = frozenset({"that", "which", "who", "whose"})


def parse(words: Sequence[Word]) -> Scene:
    """Reads a prompt."""
    reader = _Reader()
    for at, word in enumerate(words):
        reader.read(word, words[at + 1] if at + 1 < len(words) else None)
    reader.end_sentence()
    loose = tuple(word.base for word in reader.loose if word.base not in _SILENT)
    return Scene(tuple(words), tuple(reader.things), tuple(reader.links), loose, reader.guesses)


class _Reader:
    """One pass over a prompt.

    `_last` is the last thing with those it is coordinated with, `_subjects` what the clause is
    about, `_actor` who does its last verb; `_is_target` tells that the last thing came behind a
    preposition or verb. `_preposition` and `_verb` wait for their target; fronted ones ("on the
    beach, a dog") wait for their subject, and hold for all it is
    coordinated with (`_around`).
    """

    def __init__(self) -> None:
        self.things: list[Thing] = []
        self.links: list[Link] = []
        self.guesses = 0
        self.loose: list[Word] = []
        self._name: list[Word] = []
        self._opener: Word | None = None
        self._determiner = ""
        self._article = ""
        self._before: Word | None = None
        self._closing: Word | None = None
        self._opened = False
        self._lead: Word | None = None
        self._start_sentence()

    def _start_sentence(self) -> None:
        self._last: list[Thing] = []
        self._subjects: list[Thing] = []
        self._actor: list[Thing] = []
        self._is_target = False
        self._is_told = False
        self._preposition = ""
        self._verb: Word | None = None
        self._joining = False
        self._relative = False
        self._after_filler = False
        self._fronted: list[tuple[str, Thing]] = []
        self._around: list[tuple[str, Thing]] = []
        self._waiting: list[Word] = []

    def read(self, word: Word, following: Word | None) -> None:
        """Takes the next word."""
        if word.tag is Tag.LABEL:
            return
        self._closing = word
        if word.tag in (Tag.DETERMINER, Tag.COUNT):
            self._opened = True
        if word.tag in _IN_NAME or self._is_participle(word, following):
            if self._starts_anew(word, following):
                self._end_name()
            if not self._name:
                self._opener, self._article = self._lead, self._determiner
            self._name.append(word)
        elif word.tag is not Tag.ADVERB and not self._goes_on(word, following):
            self._end_name()
            self._read_other(word)
        self._before = word if word.tag is not Tag.ADVERB else self._before
        self._lead_on(word)

    def _lead_on(self, word: Word) -> None:
        """Keeps what the next name stands behind, and the determiner before it."""
        if word.tag is Tag.DETERMINER:
            self._determiner = word.text
        elif word.tag not in (Tag.ADVERB, Tag.COUNT):
            self._lead = word
            self._determiner = ""

    def end_sentence(self) -> None:
        """What still waits belongs to what came last."""
        self._end_name()
        self._end_verb()
        for thing in self._last[-1:]:
            thing.qualities.extend(self._waiting)
        for name, thing in self._fronted:  # "inside a train": there is nothing that is inside
            thing.qualities.append(Word(name, name, Tag.ADJECTIVE))
        self._start_sentence()

    def _starts_anew(self, word: Word, following: Word | None) -> bool:
        """Whether a quality behind a noun begins another name: not in "a vintage red car"."""
        if not self._name or self._name[-1].tag is not Tag.NOUN or word.tag is Tag.NOUN:
            return False
        goes_on = following is not None and following.tag in (Tag.NOUN, Tag.ADJECTIVE)
        return not (self._opened and word.tag is Tag.ADJECTIVE and goes_on)

    def _goes_on(self, word: Word, following: Word | None) -> bool:
        """Whether a comma stands between adjectives: "a sleek, modern laptop"."""
        return (
            word.text in (",", "and")
            and bool(self._name)
            and self._opened
            and not self._preposition
            and all(part.tag is Tag.ADJECTIVE for part in self._name)
            and following is not None
            and following.tag in (Tag.ADJECTIVE, Tag.NOUN)
        )

    def _is_participle(self, word: Word, following: Word | None) -> bool:
        """Whether a participle stands within a name: "a sleeping dog"."""
        return (
            word.tag is Tag.VERB
            and (word.passive or word.progressive)
            and following is not None
            and following.tag in (Tag.NOUN, Tag.ADJECTIVE)
            and self._before is not None
            and self._before.tag in (Tag.DETERMINER, Tag.COUNT, Tag.ADJECTIVE)
        )

    def _read_other(self, word: Word) -> None:
        if word.tag is Tag.PREPOSITION:
            self._read_preposition(word)
        elif word.tag is Tag.VERB:
            self._read_verb(word)
        elif word.tag is Tag.NEGATION:
            self._end_verb()
            self._waiting.append(word)
            if word.text in ("without", "lacking", "minus"):
                self._preposition = "with_"
        elif word.tag in (Tag.CONJUNCTION, Tag.BREAK):
            self._end_verb()
            self._preposition = ""
            self._joining = True
        elif word.tag is Tag.STOP:
            self.end_sentence()
        elif word.tag is Tag.PRONOUN and self._preposition and word.text in _REFERRING:
            self._refer()
        if word.text in _RELATIVE:
            self._relative = True

    def _refer(self) -> None:
        """In "a castle with a dragon above it" the castle is what the sentence is about."""
        for target in self._subjects[:1]:
            for thing in self._last[-1:]:
                if thing is not target:
                    self.links.append(Link(self._preposition, thing, (), target))
                    self._fasten()
        self._preposition = ""

    def _read_preposition(self, word: Word) -> None:
        if self._after_filler and word.base in ("of", "with_"):
            self._after_filler = False
            return
        self.loose.append(word)
        if not (word.base == "near" and self._verb is not None and self._verb.passive):
            self._end_verb()
        self._preposition = word.base

    def _fasten(self) -> None:
        """The last preposition has found what it connects, or says where in the picture."""
        if self._preposition and self.loose:
            self.loose.pop()

    def _read_verb(self, word: Word) -> None:
        self._end_verb()
        if word.base in lists.FILLER_VERBS:
            return
        if self._relative or ((word.progressive or word.passive) and _is_noun(self._before)):
            actor = self._nearest_actor()
        elif self._joining and self._actor and not _is_noun(self._before):
            actor = self._actor
        else:
            actor = self._subjects if self._is_target else self._last
        self._relative = False
        finite = not (word.progressive or word.passive) and word.text.endswith("s")
        if finite or _is_singular(self._before):
            actor = actor[-1:]
        self._actor = actor or self._subjects
        self._verb = word
        self._preposition = ""

    def _nearest_actor(self) -> list[Thing]:
        """Who does what stands right behind a noun: no dress in "a woman in a dress dancing"."""
        lifeless = self._is_target and not any(thing.head.alive for thing in self._last)
        if lifeless and any(thing.head.alive for thing in self._subjects):
            self.guesses += 1
            return self._subjects
        return self._last

    def _end_verb(self) -> None:
        """A verb without an object is a quality of who does it, like one before a noun."""
        if self._verb is not None:
            if self._actor:
                for thing in self._actor:
                    thing.qualities.append(self._verb)
                self._is_told = True
            else:
                self._waiting.append(self._verb)
            self._verb = None

    def _end_name(self) -> None:
        name, self._name = self._name, []
        if not name:
            return
        self._opened = False
        places = [word for word in name if word.base in _PLACES]
        nouns = [word for word in name if word.tag is Tag.NOUN]
        texts = [word for word in name if word.tag is Tag.TEXT]
        if (
            nouns
            and name == nouns[-1:]
            and nouns[0].base in _GROUNDS
            and self._preposition == "in_"
        ):
            self._fasten()
            self._describe([_ground(nouns[0])], fronted=not self._last)
        elif places and (not nouns or nouns[-1].base in _PARTS):
            if self._preposition in _BEFORE_PLACE:
                self._fasten()
            self._describe(places, fronted=not self._last or self._joining)
        elif nouns and self._preposition and nouns[-1].base in _OUTSIDES and self._closes_with_of():
            self._after_filler = True  # "on the surface of mars" is on mars
            return
        elif nouns and self._opens_prompt(nouns[-1]):
            self._after_filler = True
            return
        elif self._is_colour_of_last(name):
            self._fasten()
            self._describe(name, fronted=False, nearest=True)
        elif texts and all(word.base in lists.TEXT_NOUNS for word in nouns):
            self._describe(texts, fronted=not self._last)
        elif nouns or (self._preposition and not texts):
            head = nouns[-1] if nouns else self._unnamed(name)
            qualities = [word for word in name if word is not head]
            self._add(self._told_before(head, qualities) or self._new(head, qualities))
        else:
            self._describe(name, fronted=not self._last, nearest=self._joining)
        self._after_filler = False

    def _is_colour_of_last(self, name: list[Word]) -> bool:
        """Whether "a box in green" is a green box. Who is in green wears it."""
        return (
            self._preposition == "in_"
            and all(word.base in _COLOURS for word in name)
            and bool(self._last)
            and not self._last[-1].head.alive
        )

    def _opens_prompt(self, noun: Word) -> bool:
        """Whether a noun is the picture itself: "a photo of", "an oil painting of"."""
        if self._preposition:
            return False
        if noun.text in lists.MEDIA or noun.text in lists.FRAMING or noun.text == "art":
            return self._closes_with_of()
        return noun.base in lists.FILLER_NOUNS

    def _closes_with_of(self) -> bool:
        return self._closing is not None and self._closing.base == "of"

    def _unnamed(self, name: list[Word]) -> Word:
        """What a quality behind a preposition is said of: "against blue" means a background."""
        if self._preposition in ("against", "on"):
            return Word("background", "background", Tag.NOUN)
        return name[-1]

    def _describe(self, qualities: list[Word], *, fronted: bool, nearest: bool = False) -> None:
        """Qualities without a noun of their own: "the car is red", "on the left"."""
        self._preposition = ""
        self._end_verb()
        if len(qualities) > 1 and all(word.base in _PLACES for word in qualities):
            # The middle left is on the left.
            qualities = [word for word in qualities if word.base != "center"] or qualities[:1]
        if fronted:
            self._waiting.extend(qualities)
            return
        described = self._described()
        self._joining = self._relative = False
        if nearest or qualities[0].base in _PLACES or _is_singular(self._opener):
            described = described[-1:]  # "a cat, a dog on the left": nothing says that both are
        for thing in described:
            thing.qualities.extend([*qualities, *self._waiting])
        self._waiting = []
        self._is_told = True

    def _described(self) -> list[Thing]:
        """What a quality is said of that stands alone: "the cat is black", "a cat in black"."""
        after_verb = self._opener is not None and self._opener.tag is Tag.AUXILIARY
        if self._is_target and after_verb and not self._relative:
            return self._subjects
        return self._last

    def _told_before(self, head: Word, qualities: list[Word]) -> Thing | None:
        """The thing that "the dog" is where a dog was named before; None where it may be another.

        What is described further ("the dog with a ball") or was "the dog" already is told apart
        by that.
        """
        closing = self._closing
        if self._article not in _DEFINITE or (closing is not None and _describes(closing)):
            return None
        said = {word.base for word in qualities}
        found = [
            thing
            for thing in self.things
            if thing.head.base == head.base
            and not thing.definite
            and said <= {word.base for word in thing.qualities}
        ]
        return found[0] if len(found) == 1 else None

    def _new(self, head: Word, qualities: list[Word]) -> Thing:
        thing = Thing(head, qualities, definite=self._article in _DEFINITE)
        self.things.append(thing)
        return thing

    def _add(self, thing: Thing) -> None:
        thing.qualities.extend(self._waiting)
        self._waiting = []
        self._relative = False
        if self._verb is not None and self._actor:
            self._add_object(thing)
        elif self._preposition:
            if self._connects(thing):
                self._fasten()
            self._add_target(thing)
        else:
            self._add_free(thing)
        self._preposition, self._verb, self._joining = "", None, False

    def _connects(self, thing: Thing) -> bool:
        """Whether the preposition before a thing says where something is, or nothing."""
        if thing.head.base == "background":
            return self._preposition in _BEFORE_BACKGROUND
        return role_of(thing.head) is not Role.FREE

    def _add_object(self, thing: Thing) -> None:
        assert self._verb is not None
        if self._verb.passive and self._preposition == "near":
            self._fasten()
            # "chased by a cat": the cat does it. "by" is the only such word that waits for a verb.
            for actor in self._actor:
                self.links.append(Link(self._verb.base, thing, (), actor, self._verb))
        else:
            for actor in self._actor:
                self.links.append(Link(self._verb.base, actor, (), thing, self._verb))
        self._last, self._is_target = [thing], True

    def _add_target(self, thing: Thing) -> None:
        name = self._preposition
        if name == "'s":
            for owner in self._last[-1:]:
                self._hand_over(owner, thing)
                self.links.append(Link("of", thing, (), owner))
            self._last = [thing]
            return
        if not self._last:
            self._fronted.append((name, thing))
            return
        self.links.extend(self._links_to(thing, name))
        if name != "of":
            self._last, self._is_target = [thing], True

    def _links_to(self, thing: Thing, name: str) -> list[Link]:
        """What a preposition connects to its target, as far as the order of words tells."""
        nearest = self._last[-1]
        if name in _NEAREST or (name == "in_" and nearest.head.alive and _is_worn(thing)):
            return [Link(name, nearest, tuple(self._subjects) if self._is_target else (), thing)]
        if self._actor and self._actor[-1] is not nearest:
            return [Link(name, actor, (nearest,), thing) for actor in self._actor]
        if self._is_target:
            return [Link(name, nearest, (*self._actor, *self._subjects), thing)]
        return [Link(name, subject, (), thing) for subject in self._last]

    def _hand_over(self, owner: Thing, thing: Thing) -> None:
        """Takes the place of its owner: "on a pirate's shoulder" is on the shoulder."""
        if self.links and self.links[-1].target is owner:
            self.links[-1] = dataclasses.replace(self.links[-1], target=thing)
        elif self._fronted and self._fronted[-1][1] is owner:
            self._fronted[-1] = (self._fronted[-1][0], thing)

    def _add_free(self, thing: Thing) -> None:
        """A thing that nothing connects to one before it."""
        again = thing is not self.things[-1]
        if self._joining and self._last and not (self._is_target or self._is_told or again):
            self._last = [*self._last, thing]
            self._fronted = self._fronted or self._around
        else:
            self._last = [thing]
        self._subjects = self._last
        self._actor, self._is_target, self._is_told = [], False, False
        self.links.extend(Link(name, thing, (), target) for name, target in self._fronted)
        self._around, self._fronted = self._fronted, []


def _ground(word: Word) -> Word:
    """A place in the picture, said by "in the background"; a background of its own is none."""
    return Word(word.text, f"in_{word.base}", Tag.ADJECTIVE)


def _is_worn(thing: Thing) -> bool:
    """Whether who is in it wears it: a shirt, or a colour that stands for one."""
    return thing.head.tag is Tag.ADJECTIVE or thing.head.base in lists.CLOTHES


def _describes(word: Word) -> bool:
    return word.base in _DESCRIBING or word.text in _RELATIVE


def _is_singular(word: Word | None) -> bool:
    """Whether what comes is said of one thing: "a man and his dog, the dog is asleep"."""
    return word is not None and word.text in _SINGULAR


def _is_noun(word: Word | None) -> bool:
    return word is not None and word.tag is Tag.NOUN
