"""Reads the database files of WordNet 3.0 as Debian's package wordnet-base ships them.

Format: wndb(5WN). Only what the lexicon needs is read: senses in order of frequency, how often each
was tagged, the file a sense belongs to, and four kinds of pointers.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from pathlib import Path

PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_SENSE_PARTS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
_PARENTS = frozenset({"@", "@i"})
_SIMILAR = "&"
_ANTONYM = "!"


@dataclasses.dataclass(frozen=True, slots=True)
class Synset:
    """One sense that its words share.

    Attributes:
        key: Part of speech and offset, for example `n02084071`.
        file_number: Lexicographer file, 0 to 44; 5 is animals, 6 artefacts, 18 persons.
        words: Lower case, with spaces.
        parents: Keys of what it is a kind of.
        similar: Keys of adjectives of the same cluster.
        opposites: Pairs of a word of this synset and a word that means its opposite.
    """

    key: str
    file_number: int
    words: tuple[str, ...]
    parents: tuple[str, ...]
    similar: tuple[str, ...]
    opposites: tuple[tuple[int, str, int], ...]


def read_synsets(folder: Path) -> dict[str, Synset]:
    """All synsets of a database folder by key."""
    synsets: dict[str, Synset] = {}
    for part, name in PARTS.items():
        with (folder / f"data.{name}").open(encoding="latin-1") as file:
            for line in file:
                if not line.startswith(" "):
                    synset = _read_line(part, line)
                    synsets[synset.key] = synset
    return synsets


def _read_line(part: str, line: str) -> Synset:
    fields = line.split(" | ")[0].split()
    count = int(fields[3], 16)
    words = tuple(_plain(fields[4 + 2 * i]) for i in range(count))
    at = 4 + 2 * count
    pointers = [fields[at + 1 + 4 * i : at + 5 + 4 * i] for i in range(int(fields[at]))]
    keys = [
        (symbol, kind.replace("s", "a") + offset, ends) for symbol, offset, kind, ends in pointers
    ]
    return Synset(
        part + fields[0],
        int(fields[1]),
        words,
        tuple(key for symbol, key, _ in keys if symbol in _PARENTS),
        tuple(key for symbol, key, _ in keys if symbol == _SIMILAR),
        tuple(
            (int(ends[:2], 16), key, int(ends[2:], 16))
            for symbol, key, ends in keys
            if symbol == _ANTONYM
        ),
    )


def read_senses(folder: Path) -> dict[tuple[str, str], list[str]]:
    """Keys of the synsets of each (word, part of speech), the most frequent first."""
    senses: dict[tuple[str, str], list[str]] = {}
    for part, name in PARTS.items():
        with (folder / f"index.{name}").open(encoding="latin-1") as file:
            for line in file:
                if not line.startswith(" "):
                    fields = line.split()
                    offsets = fields[-int(fields[2]) :]
                    senses[_plain(fields[0]), part] = [part + offset for offset in offsets]
    return senses


def read_counts(folder: Path) -> dict[tuple[str, str], dict[int, int]]:
    """How often each sense, numbered from 1, of a (word, part of speech) was tagged in texts."""
    counts: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    with (folder / "cntlist.rev").open(encoding="latin-1") as file:
        for line in file:
            sense, number, count = line.split()
            word, _, rest = sense.partition("%")
            counts[_plain(word), _SENSE_PARTS[rest[0]]][int(number)] = int(count)
    return counts


def read_exceptions(folder: Path) -> dict[tuple[str, str], str]:
    """Base form of each irregular (form, part of speech)."""
    forms: dict[tuple[str, str], str] = {}
    for part, name in PARTS.items():
        with (folder / f"{name}.exc").open(encoding="latin-1") as file:
            for line in file:
                form, *bases = line.split()
                if bases:
                    forms[_plain(form), part] = _plain(bases[0])
    return forms


def _plain(word: str) -> str:
    """A word as texts have it: lower case, spaces, without an adjective's position marker."""
    return word.partition("(")[0].replace("_", " ").lower()
