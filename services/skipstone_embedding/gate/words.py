"""A prompt -> its words, with phrases that work as one word joined."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from skipstone_embedding.gate.word_lists import PHRASES

QUOTE = '"'
"""First character of a word that is a text in quotes: what a sign says, letter by letter."""

STOPS = frozenset(".;!?")
BREAKS = frozenset(",:()[]|")

_FOLD = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014", "''\"\"--")
_TOKEN = re.compile(r"\"[^\"]+\"|(?<![\w'])'[^']+'(?!\w)|[^\W_]+(?:\.\d+)?|'s\b|[.,;:!?()\[\]|]")
_SPACED_NUMBER = re.compile(r"\b(\d) (?=\d\b)|\b(\d+) (?=k\b)")
_LONGEST_PHRASE = max(len(phrase.split()) for phrase in PHRASES)
_ALIASES = {"backdrop": "background"}
_CONTRACTIONS = (("n't", " not"), ("'re", " are"), ("'ll", " will"), ("'m", " am"))


def split_words(prompt: str) -> list[str]:
    """The words and punctuation of a prompt, lower case."""
    text = prompt.replace("&", " and ").replace("+", " and ")
    text = unicodedata.normalize("NFKC", text).translate(_FOLD).casefold()
    for short, full in _CONTRACTIONS:
        text = text.replace(short, full)
    text = _SPACED_NUMBER.sub(lambda found: found[1] or found[2], text)
    words = [_ALIASES.get(word, _quoted(word)) for word in _TOKEN.findall(text)]
    return _joined_phrases(words)


def _quoted(word: str) -> str:
    if len(word) > 2 and word[0] in "\"'" and word[-1] == word[0]:
        return QUOTE + " ".join(re.findall(r"\w+", word))
    return word


def _joined_phrases(words: Sequence[str]) -> list[str]:
    joined: list[str] = []
    at = 0
    while at < len(words):
        for length in range(min(_LONGEST_PHRASE, len(words) - at), 1, -1):
            instead = PHRASES.get(" ".join(words[at : at + length]))
            if instead is not None:
                joined.extend(instead.split())
                at += length
                break
        else:
            joined.append(words[at])
            at += 1
    return joined
