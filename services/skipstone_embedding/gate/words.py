"""A prompt -> its words, with phrases that work as one word joined.

No character but white space is passed over without a rule: what is neither part of a word nor
punctuation that only divides becomes a word of its own, so that an arrow, an emoji or a percent
sign counts like any word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from skipstone_embedding.gate.word_lists import PHRASES

QUOTE = '"'
"""First character of a word that is a text in quotes: what a sign says, letter by letter."""

STOPS = frozenset(".;!?")
BREAKS = frozenset(",:()")
EMPHASIS = frozenset("[]{}|")
"""Marks by which some programs weigh words. They divide too, and must be the same in both."""

_FOLD = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u02bc\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u300c\u300d\u300e\u300f", '"'),
        **dict.fromkeys("\u2010\u2011\u2013\u2212", "-"),
        "\u2014": " , ",
        "\u2026": ". ",
        **dict(
            zip("\uff0c\u3001\uff1a\uff1b\u3002\uff01\uff1f\uff08\uff09", ",,:;.!?()", strict=True)
        ),
        "\ufe0e": None,
        "\ufe0f": None,
    }
)
"""One form of quotes, dashes and wide punctuation; how an emoji is drawn is passed over."""

_QUOTED = re.compile(r"\"([^\"]+)\"|(?<![\w'])'([^']+)'(?!\w)")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_MINUS = "\u2212"
_DOING = re.compile(r"\b([^\W\d_]+)-([^\W\d_]+ing)\b")
"""A horse-riding man is no horse riding a man: without articles only the hyphen tells."""

_MANNERS = frozenset(
    {
        "good", "well", "long", "fast", "slow", "hard", "free", "never", "ever", "easy", "far",
        "high", "low", "deep", "odd", "strange", "sweet", "self", "quick", "close", "out", "up",
    }
)  # fmt: skip
"""What says how something is done, and not to whom."""

_REWRITES = (
    (re.compile(r"(?<=[^\W\d_])\s*\+\s*(?=[^\W\d_])|(?<=\s)\+(?=\s)|&"), " and "),
    (re.compile(r"(?<=[^\W\d_])-(?=\w)|(?<=\w)-(?=[^\W\d_])|_"), " "),
    (re.compile(r"(?<=\d)-(?=\d)|(?<![\w-])-(?=\.?\d)"), f" {_MINUS} "),
    (re.compile(r"-+"), " , "),
    (re.compile(r"(?<=s)'(?=\s|$)"), " 's "),
    (re.compile(r"(?<=\w)'(?!s\b)(?=\w)"), " "),
    (re.compile(r"\b(\d) (\d) (\d) (\d)\b"), r"\1\2\3\4"),
    (re.compile(r"\b(\d+) (?=k\b)"), r"\1"),
)
"""What joins words or stands for one: "cat + dog", "long-bearded", "-5", "dogs'", "o'clock"."""

_TOKEN = re.compile(r"\d+(?:[.,:/]\d+)+(?!\w)|(?:[^\W_]|[^\x00-\x7f\s])+(?:\.\d+)?|'s\b|[^\w\s]")
_LONGEST_PHRASE = {
    first: max(len(phrase.split()) for phrase in PHRASES if phrase.split()[0] == first)
    for first in {phrase.split()[0] for phrase in PHRASES}
}
"""Words that open a phrase -> the length of the longest one."""

_ALIASES = {"backdrop": "background", "colour": "color", "colours": "colors"}
_CONTRACTIONS = (
    ("can't", "can not"), ("cannot", "can not"), ("won't", "will not"), ("n't", " not"),
    ("'re ", " are "), ("'ll ", " will "), ("'m ", " am "), ("'ve ", " have "), ("'d ", " would "),
)  # fmt: skip


def split_words(prompt: str) -> list[str]:
    """The words and punctuation of a prompt, lower case; texts in quotes as they stand."""
    text = unicodedata.normalize("NFC", prompt).translate(_FOLD)
    words: list[str] = []
    start = 0
    for quoted in _QUOTED.finditer(text):
        words.extend(_plain_words(text[start : quoted.start()]))
        words.append(QUOTE + " ".join((quoted[1] or quoted[2]).split()))
        start = quoted.end()
    words.extend(_plain_words(text[start:]))
    return _joined_phrases(words)


def _plain_words(text: str) -> list[str]:
    """Words of a text without quotes."""
    text = text.lower()
    for short, full in _CONTRACTIONS:
        text = text.replace(short, full)
    text = _DOING.sub(_one_word, text)
    for pattern, instead in _REWRITES:
        text = pattern.sub(instead, text)
    if not text.isascii():
        text = _BEYOND_ASCII.sub(_apart, text)
    return [_ALIASES.get(word, word) for word in _TOKEN.findall(text)]


def _one_word(found: re.Match[str]) -> str:
    """The two words as one that no other wording gives, or apart where none can be an object."""
    first, second = found.groups()
    return f"{first} {second}" if first in _MANNERS else f"{first}{second}"


def _apart(found: re.Match[str]) -> str:
    """A symbol is a word of its own; letters, and marks upon letters, belong to their word."""
    character = found[0]
    return f" {character} " if unicodedata.category(character)[0] in "PS" else character


def _joined_phrases(words: Sequence[str]) -> list[str]:
    joined: list[str] = []
    at = 0
    while at < len(words):
        longest = _LONGEST_PHRASE.get(words[at], 0)
        for length in range(min(longest, len(words) - at), 1, -1):
            instead = PHRASES.get(" ".join(words[at : at + length]))
            if instead is not None:
                joined.extend(instead.split())
                at += length
                break
        else:
            joined.append(words[at])
            at += 1
    return joined
