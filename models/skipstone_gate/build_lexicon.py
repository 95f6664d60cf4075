"""Writes the gate's lexicon from WordNet 3.0: parts of speech, synonyms, kinds and opposites.

    PYTHONPATH=models:services:shared python -m skipstone_gate.build_lexicon WORDNET_FOLDER
    OUT_FOLDER

`WORDNET_FOLDER` is `/usr/share/wordnet` where Debian's package wordnet-base is installed. It is
needed for this only, never at run time. Reading takes seconds and gives the same bytes every time.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterable
from pathlib import Path

from skipstone_gate.wordnet_files import (
    Synset,
    read_counts,
    read_exceptions,
    read_senses,
    read_synsets,
)

_MOST_SENSES = 3
_LEAST_SHARE = 0.2
"""A sense that is rarer than this among all uses of the word is not what a prompt means."""

_COMPOUND_FILES = frozenset({5, 6, 8, 13, 15, 17, 18, 20})
"""Two-word names are kept for animals, artefacts, body parts, food, places, objects, persons and
plants: the rest is mostly jargon whose parts read better as two words."""


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wordnet", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    lines = list(lexicon_lines(arguments.wordnet))
    target = arguments.out / "lexicon.txt.gz"
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write("\n".join(lines).encode())
    print(f"{target}: {len(lines)} lines, {target.stat().st_size / 1e6:.2f} MB")
    return 0


def lexicon_lines(folder: Path) -> Iterable[str]:
    """The lexicon as text, one fact a line; `skipstone_embedding.gate.lexicon` reads it."""
    synsets = read_synsets(folder)
    senses = read_senses(folder)
    counts = read_counts(folder)
    kept: dict[str, dict[str, tuple[int, list[str]]]] = {}
    for (word, part), keys in sorted(senses.items()):
        if _wanted(word, synsets[keys[0]]):
            count = counts.get((word, part), {})
            kept.setdefault(word, {})[part] = (sum(count.values()), _common(keys, count))
    numbers = {key: i for i, key in enumerate(sorted(_reachable(kept, synsets)))}
    for word, parts in kept.items():
        facts = []
        for part, (weight, keys) in parts.items():
            ids = ",".join(str(numbers[key]) for key in keys)
            facts.append(f"{part}{weight}:{synsets[keys[0]].file_number}:{ids}")
        yield f"w\t{word}\t{';'.join(facts)}"
    for key, number in numbers.items():
        synset = synsets[key]
        related = [numbers[k] for k in (*synset.parents, *synset.similar) if k in numbers]
        if related:
            yield f"s\t{number}\t{','.join(map(str, related))}"
    for (form, part), base in sorted(read_exceptions(folder).items()):
        if base in kept and form != base:
            yield f"x\t{form}\t{part}{base}"
    for left, right in sorted(_opposites(kept, synsets)):
        yield f"o\t{left}\t{right}"


def _wanted(word: str, first: Synset) -> bool:
    parts = word.replace("-", " ").split()
    if not all(part.isalpha() and part.isascii() for part in parts):
        return False
    if " " not in word:
        return len(word) > 1
    return len(parts) == 2 and first.key[0] == "n" and first.file_number in _COMPOUND_FILES


def _common(keys: list[str], count: dict[int, int]) -> list[str]:
    """The senses a prompt may mean: the first, and others that are not rare."""
    total = sum(count.values())
    common = [
        key
        for number, key in enumerate(keys, 1)
        if number == 1 or (total and count.get(number, 0) / total >= _LEAST_SHARE)
    ]
    return common[:_MOST_SENSES]


def _reachable(
    kept: dict[str, dict[str, tuple[int, list[str]]]], synsets: dict[str, Synset]
) -> set[str]:
    """Synsets of the kept words and everything these are kinds of."""
    found: set[str] = set()
    waiting = [key for parts in kept.values() for _, keys in parts.values() for key in keys]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting.extend(synsets[key].parents)
    return found


def _opposites(
    kept: dict[str, dict[str, tuple[int, list[str]]]], synsets: dict[str, Synset]
) -> set[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    for synset in synsets.values():
        for own, key, other in synset.opposites:
            words = synsets[key].words
            # 0 stands for the whole synset; antonyms are always between words.
            left, right = synset.words[own - 1], words[other - 1]
            if left in kept and right in kept and left < right:
                pairs.add((left, right))
    return pairs


if __name__ == "__main__":
    raise SystemExit(main())
