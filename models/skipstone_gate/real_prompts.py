"""Prompts of people, reworded without a change of meaning, or with one word exchanged."""

from __future__ import annotations

import csv
import random
import re
from pathlib import Path

from skipstone_gate import vocabulary as words

_EXCHANGED = (
    words.COLOURS, words.ANIMALS, words.PEOPLE, words.OBJECTS, words.PLACES, words.MATERIALS,
    words.COUNTS, words.WEATHER, words.MOODS,
    ("left", "right"), ("above", "below"), ("young", "old"), ("big", "small"),
    ("day", "night"), ("inside", "outside"), ("with", "without"), ("morning", "evening"),
    ("summer", "winter"), ("open", "closed"), ("standing", "sitting"), ("running", "sleeping"),
)  # fmt: skip
_MOST_WORDS = 40


def read_parti(path: Path) -> list[str]:
    """Prompts of PartiPrompts with at least four words (Apache-2.0)."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return _usable(row["Prompt"] for row in rows)


def read_log(path: Path) -> list[str]:
    """Distinct prompts of a request log with the column `prompt`."""
    with path.open(encoding="utf-8", newline="") as file:
        return _usable(row["prompt"] for row in csv.DictReader(file))


def _usable(prompts: object) -> list[str]:
    assert hasattr(prompts, "__iter__")
    return [p for p in dict.fromkeys(prompts) if 4 <= len(p.split()) <= _MOST_WORDS]


def reworded_prompt(prompt: str, rng: random.Random) -> str:
    """The same prompt with what people change and no picture shows."""
    text = prompt.strip().rstrip(".")
    choice = rng.randrange(4)
    if choice == 0:
        opening = rng.choice(words.OPENINGS[:3])
        return f"{opening} {text}" if text[:2].lower() in ("a ", "an") else text.lower() + " ."
    if choice == 1:
        return ", ".join([text, *rng.sample(words.ENDINGS, rng.randint(1, 3))])
    if choice == 2:
        return re.sub(
            r"^(a|an|the)\s+(?:photo|picture|image|photograph) of\s+", "", text, flags=re.I
        )
    return text.replace(" and ", " & ") if " and " in text else text.upper()


def edited_prompt(prompt: str, rng: random.Random) -> str:
    """The same prompt with one word exchanged for another of its group; empty where none can be."""
    found = [
        (word, group)
        for group in _EXCHANGED
        for word in group
        if re.search(rf"\b{re.escape(word)}\b", prompt, re.I)
    ]
    if not found:
        return ""
    word, group = rng.choice(found)
    other = rng.choice([candidate for candidate in group if candidate != word])
    return re.sub(rf"\b{re.escape(word)}\b", other, prompt, flags=re.I)
