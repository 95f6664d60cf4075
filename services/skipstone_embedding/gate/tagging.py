"""What each word of a prompt does in it. One pass from left to right, with one word ahead."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.lexicon import ADJECTIVE, ADVERB, NOUN, VERB, Lexicon
from skipstone_embedding.gate.words import BREAKS, EMPHASIS, QUOTE, STOPS


class Tag(enum.Enum):
    """What a word does."""

    # Members are looked up in sets for every word: their identity is enough, and quick.
    __hash__ = object.__hash__

    NOUN = "noun"
    ADJECTIVE = "adjective"
    VERB = "verb"
    ADVERB = "adverb"
    PREPOSITION = "preposition"
    CONJUNCTION = "conjunction"
    DETERMINER = "determiner"
    COUNT = "count"
    NEGATION = "negation"
    PRONOUN = "pronoun"
    AUXILIARY = "auxiliary"
    BREAK = "break"
    STOP = "stop"
    TEXT = "text"
    SYMBOL = "symbol"
    LABEL = "label"


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """One word of a prompt.

    Attributes:
        text: As it stands, lower case.
        base: What it is compared by: base form, group of a list, or the text in quotes.
        tag: What it does.
        plural: Whether it is a noun in the plural.
        passive: Whether it is a past participle or past tense.
        progressive: Whether it is a verb's -ing form.
        alive: Whether it is a noun for a person or an animal, who do things.
        known: Whether the lexicon or a list has it: no name, and no word of another language.
    """

    text: str
    base: str
    tag: Tag
    plural: bool = False
    passive: bool = False
    progressive: bool = False
    alive: bool = False
    known: bool = True


_LABEL_WORDS = {*lists.TAG_WORDS, *lists.TAG_HEADS, *lists.BOOSTERS, *lists.FRAMING}

_DIVIDING = BREAKS | STOPS | EMPHASIS

_FRUITS = frozenset({"orange", "peach", "olive", "lime", "mint"})

_ALIVE = frozenset({5, 18})
"""Files of the lexicon with animals and persons."""

_BEFORE_NOUN = (Tag.DETERMINER, Tag.COUNT, Tag.ADJECTIVE, Tag.NEGATION)
_CLOSED: tuple[tuple[frozenset[str], Tag], ...] = (
    (lists.NEGATIONS, Tag.NEGATION),
    (lists.DETERMINERS, Tag.DETERMINER),
    (lists.AUXILIARIES, Tag.AUXILIARY),
    (lists.PRONOUNS, Tag.PRONOUN),
    (lists.CONJUNCTIONS, Tag.CONJUNCTION),
)


def tag_words(words: Sequence[str], lexicon: Lexicon) -> list[Word]:
    """Tags the words of a prompt."""
    tagger = _Tagger(words, lexicon)
    for at in range(len(words)):
        tagger.tagged.append(tagger.tag(at))
    for at in _labels(words):
        tagger.tagged[at] = Word(words[at], words[at], Tag.LABEL)
    return tagger.tagged


def _labels(words: Sequence[str]) -> Iterator[int]:
    """Places of words between commas behind the prompt that only say how to picture it all."""
    start = 0
    for at in range(len(words) + 1):
        if at < len(words) and words[at] not in _DIVIDING:
            continue
        if start and at > start and all(word in _LABEL_WORDS for word in words[start:at]):
            yield from range(start, at)
        start = at + 1


class _Tagger:
    """One pass over one prompt."""

    def __init__(self, words: Sequence[str], lexicon: Lexicon) -> None:
        self._words = words
        self._lexicon = lexicon
        self.tagged: list[Word] = []

    def tag(self, at: int) -> Word:
        text = self._words[at]
        if text[0] == QUOTE:
            return Word(text, text, Tag.TEXT)
        if text in STOPS:
            return Word(text, text, Tag.STOP)
        if text in BREAKS or text in EMPHASIS:
            return Word(text, text, Tag.BREAK)
        if text == "'s":
            return Word(text, text, Tag.PREPOSITION)
        if not any(character.isalnum() for character in text):
            return Word(text, text, Tag.SYMBOL)
        if text == "that" and self.tagged and self.tagged[-1].tag is Tag.NOUN:
            return Word(text, text, Tag.PRONOUN)
        if text in lists.HAVING and self.tagged and self.tagged[-1].tag is not Tag.DETERMINER:
            having = self._having(text, at)
            if having is not None:
                return having
        if text == "plus" and self.tagged and self.tagged[-1].tag in _BEFORE_NOUN:
            return Word(text, text, Tag.NOUN)
        if text in lists.RESULTS:
            return Word(text, lists.RESULTS[text], Tag.VERB, passive=True)
        for words, tag in _CLOSED:
            if text in words:
                return Word(text, "no" if tag is Tag.NEGATION else text, tag)
        return self._listed(text, at) or self._open(text, at)

    def _having(self, text: str, at: int) -> Word | None:
        """What "wearing", "holding", "that has": what works as the preposition "with"."""
        following = self._next(at)
        named = following in lists.DETERMINERS or following in lists.COUNTS
        named = named or following in lists.COLOURS or following in lists.SIZES
        named = named or following in lists.NEGATIONS
        if not named and following[:1].isalpha():
            named = self._lexicon.weight(self._lexicon.lemma(following, NOUN) or "", NOUN) > 0
        return Word(text, lists.HAVING[text], Tag.PREPOSITION) if named else None

    def _listed(self, text: str, at: int) -> Word | None:
        """A word of the lists of colours, sizes, counts, places, prepositions."""
        following = self._next(at)
        if text in lists.COLOURS and not (text in _FRUITS and self._is_fruit(at)):
            return Word(text, lists.COLOURS[text], Tag.ADJECTIVE)
        if text in lists.SIZES:
            return Word(text, lists.SIZES[text], Tag.ADJECTIVE)
        if text in lists.COUNTS:
            return Word(text, lists.COUNTS[text], Tag.COUNT)
        if text in lists.OPEN_PLACES:
            return Word(text, lists.OPEN_PLACES[text], Tag.ADJECTIVE)
        if text in lists.PREPOSITIONS:
            return self._preposition(text, following)
        if text in lists.ADVERBS:
            return Word(text, text, Tag.ADVERB)
        if text.isdigit():
            return Word(text, text, Tag.COUNT if following else Tag.NOUN)
        return None

    def _is_fruit(self, at: int) -> bool:
        """Whether a colour's word is a thing: not in "a box in orange", nor in "an orange plus"."""
        if self._next(at) == "plus":
            return False
        return self._ends_name(at) and not (self.tagged and self.tagged[-1].text == "in")

    def _preposition(self, text: str, following: str) -> Word:
        """A preposition, a noun as in "the inside of", or a direction: "seen from below"."""
        if self.tagged and self.tagged[-1].tag is Tag.DETERMINER:
            return Word(text, text, Tag.NOUN)
        if following[:1].isalnum() and following not in lists.CONJUNCTIONS:
            return Word(text, lists.PREPOSITIONS[text], Tag.PREPOSITION)
        return Word(text, text, Tag.ADVERB)

    def _open(self, text: str, at: int) -> Word:
        """A word that only the lexicon knows, or nobody does."""
        weigh = self._lexicon.weight
        noun, verb = self._lexicon.lemma(text, NOUN), self._lexicon.lemma(text, VERB)
        adjective = self._lexicon.lemma(text, ADJECTIVE)
        weights = {
            Tag.NOUN: weigh(noun, NOUN) if noun else 0,
            Tag.VERB: weigh(verb, VERB) if verb else 0,
            Tag.ADJECTIVE: weigh(adjective, ADJECTIVE) if adjective else 0,
        }
        if not any(weights.values()):
            is_adverb = bool(self._lexicon.weight(text, ADVERB))
            return Word(text, text, Tag.ADVERB if is_adverb else Tag.NOUN, known=is_adverb)
        tag = self._choose(text, at, weights, verb)
        if tag is Tag.VERB:
            if verb in lists.TEXT_VERBS and self._next(at).startswith(QUOTE):
                return Word(text, text, Tag.PRONOUN)
            return self._verb(text, verb)
        if tag is Tag.NOUN:
            alive = self._lexicon.file_number(noun) in _ALIVE
            return Word(text, noun, tag, plural=noun != text, alive=alive)
        return Word(text, adjective, tag)

    def _verb(self, text: str, verb: str) -> Word:
        progressive = text.endswith("ing") and verb != text
        passive = verb != text and not progressive and not text.endswith("s")
        return Word(text, verb, Tag.VERB, passive=passive, progressive=progressive)

    def _choose(self, text: str, at: int, weights: dict[Tag, int], verb: str) -> Tag:
        before = self.tagged[-1] if self.tagged else None
        noun, verbal, adjective = weights[Tag.NOUN], weights[Tag.VERB], weights[Tag.ADJECTIVE]
        inflected = bool(verb) and verb != text
        in_name = before is not None and before.tag in _BEFORE_NOUN
        if inflected and not text.endswith("s"):
            # "running", "parked", "sleeping": a name of its own, a quality, or what somebody does.
            if in_name:
                if self._ends_name(at) and noun and not self._object_follows(at):
                    return Tag.NOUN
                return Tag.VERB if not adjective or text.endswith("ing") else Tag.ADJECTIVE
            after = before.tag if before is not None else None
            if noun > verbal or (noun and after is Tag.PREPOSITION):
                return Tag.NOUN
            if text in lists.MEDIA and after is Tag.NOUN and not self._object_follows(at):
                return Tag.NOUN
            return Tag.VERB
        if in_name or before is None or before.tag in (Tag.PREPOSITION, Tag.BREAK, Tag.STOP):
            if adjective and (not self._ends_name(at) or not noun):
                return Tag.ADJECTIVE if adjective >= noun or not self._ends_name(at) else Tag.NOUN
            return Tag.NOUN if noun else Tag.VERB
        if before.tag in (Tag.NOUN, Tag.PRONOUN, Tag.ADVERB) and verbal:
            if inflected or before.plural or before.tag is Tag.PRONOUN:
                return Tag.VERB if verbal * 3 >= noun or self._object_follows(at) else Tag.NOUN
            if not noun:
                return Tag.VERB
        if before.tag is Tag.AUXILIARY and adjective:
            return Tag.ADJECTIVE
        if before.tag is Tag.NOUN and noun:
            return Tag.NOUN
        return max(weights, key=lambda tag: weights[tag])

    def _object_follows(self, at: int) -> bool:
        following = self._next(at)
        return following in lists.DETERMINERS or (
            following in lists.PREPOSITIONS and following != "of"
        )

    def _ends_name(self, at: int) -> bool:
        """Whether no word of a name follows: the word at this place is then its noun."""
        following = self._next(at)
        if not following or not following[0].isalnum():
            return True
        if following in lists.PREPOSITIONS or any(following in words for words, _ in _CLOSED):
            return True
        noun = self._lexicon.lemma(following, NOUN)
        verb = self._lexicon.lemma(following, VERB)
        if following in lists.COLOURS or following in lists.SIZES:
            return False
        if not noun:
            return bool(verb) or following in lists.ADVERBS or following.endswith("ly")
        verbal = bool(verb) and verb != following
        return verbal and self._lexicon.weight(verb, VERB) > self._lexicon.weight(noun, NOUN)

    def _next(self, at: int) -> str:
        return self._words[at + 1] if at + 1 < len(self._words) else ""
