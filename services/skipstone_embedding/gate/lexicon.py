"""Synonyms, kinds and opposites of words, from a file made of WordNet."""

from __future__ import annotations

import enum
import functools
import gzip
from collections.abc import Iterator
from pathlib import Path

NOUN, VERB, ADJECTIVE, ADVERB = "n", "v", "a", "r"

_KIND_DEPTH = 3
"""Steps up from a word to what it is a kind of: a retriever is a dog, a dog no entity."""

_ENDINGS = {
    NOUN: (("ies", "y"), ("ves", "f"), ("ves", "fe"), ("men", "man"), ("es", ""), ("s", "")),
    VERB: (
        ("ies", "y"),
        ("ied", "y"),
        ("es", "e"),
        ("es", ""),
        ("s", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    ADJECTIVE: (("ier", "y"), ("iest", "y"), ("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    ADVERB: (),
}


class Likeness(enum.Enum):
    """How two words of one part of speech go together, the closest first."""

    SAME = "same"
    SYNONYM = "synonym"
    KIND = "kind"
    NONE = "none"
    OPPOSITE = "opposite"


class Lexicon:
    """Facts about words. Immutable; methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        """Reads the file, in about a tenth of a second.

        Args:
            path: As `skipstone_gate.build_lexicon` writes it.
        """
        self._words: dict[str, str] = {}
        self._related: dict[str, tuple[str, ...]] = {}
        self._irregular: dict[tuple[str, str], str] = {}
        self._opposites: set[tuple[str, str]] = set()
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                kind, left, right = line.rstrip("\n").split("\t")
                if kind == "w":
                    self._words[left] = right
                elif kind == "s":
                    self._related[left] = tuple(right.split(","))
                elif kind == "x":
                    self._irregular[left, right[0]] = right[1:]
                else:
                    self._opposites |= {(left, right), (right, left)}
        # Words repeat from prompt to prompt, pairs of words too.
        self.lemma = functools.lru_cache(65_536)(self._lemma)
        self.weight = functools.lru_cache(65_536)(self._weight)
        self.likeness = functools.lru_cache(262_144)(self._likeness)

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def file_number(self, noun: str) -> int:
        """Lexicographer file of a noun's first sense (5 animals, 18 persons); -1: not known."""
        fact = self._fact(noun, NOUN)
        return int(fact[1]) if fact else -1

    def is_kind_of(self, special: str, general: str) -> bool:
        """Whether one noun names a kind of what the other one names: a retriever is a dog."""
        return bool(
            self._above(self._first_sense(special, NOUN)) & self._first_sense(general, NOUN)
        )

    def _weight(self, word: str, part: str) -> int:
        """How often a base form is used as a part of speech: at least 1 unless it never is."""
        fact = self._fact(word, part)
        return int(fact[0]) + 1 if fact else 0

    def _lemma(self, word: str, part: str) -> str:
        """Base form of a word as a part of speech; empty when it is none."""
        irregular = self._irregular.get((word, part))
        if irregular is not None:
            return irregular
        if self._fact(word, part):
            return word
        return next(self._bases(word, part), "")

    def _bases(self, word: str, part: str) -> Iterator[str]:
        for ending, instead in _ENDINGS[part]:
            if word.endswith(ending) and len(word) > len(ending) + 1:
                base = word[: -len(ending)] + instead
                if self._fact(base, part):
                    yield base
                # "running", "bigger"
                if not instead and base[-1] == base[-2] and self._fact(base[:-1], part):
                    yield base[:-1]

    def _likeness(self, left: str, right: str, part: str) -> Likeness:
        """How two base forms of one part of speech go together, in what they mean most often."""
        if left == right:
            return Likeness.SAME
        if (left, right) in self._opposites:
            return Likeness.OPPOSITE
        mine, others = self._first_sense(left, part), self._first_sense(right, part)
        if mine & others:
            return Likeness.SYNONYM
        if part == NOUN and (mine & self._above(others) or others & self._above(mine)):
            return Likeness.KIND
        return Likeness.NONE

    def _above(self, senses: set[str]) -> set[str]:
        found: set[str] = set()
        level = senses
        for _ in range(_KIND_DEPTH):
            level = self._next(level)
            found |= level
        return found

    def _next(self, senses: set[str]) -> set[str]:
        return {parent for sense in senses for parent in self._related.get(sense, ())}

    def _first_sense(self, word: str, part: str) -> set[str]:
        """What a word means more often than anything else; empty for a word nobody knows."""
        fact = self._fact(word, part)
        return {fact[2].split(",")[0]} if fact else set()

    def _fact(self, word: str, part: str) -> tuple[str, str, str] | None:
        """Weight, file and senses of a base form as a part of speech."""
        for fact in self._words.get(word, "").split(";"):
            if fact.startswith(part):
                weight, file, senses = fact[1:].split(":")
                return weight, file, senses
        return None
