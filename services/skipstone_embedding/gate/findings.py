"""Differences between two prompts: their kinds, and what they come to."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from skipstone_embedding.gate.readings import Content
from skipstone_embedding.gate.roles import Role


class Kind(enum.Enum):
    """Kinds of difference. The first seven forbid reuse, the others lower the score."""

    # Members are looked up in sets for every word: their identity is enough, and quick.
    __hash__ = object.__hash__

    REPLACED = "replaced"
    ADDED = "added"
    NUMBER = "number"
    BINDING = "binding"
    RELATION = "relation"
    LOST = "lost"
    NOTHING_SHARED = "nothing shared"
    DETAIL = "detail"
    SYNONYM = "synonym"
    SPECIAL = "special"
    SOFT = "soft"
    REWRITTEN = "rewritten"
    UNVERIFIED = "unverified"
    PARTLY_LOST = "partly lost"

    @property
    def forbids(self) -> bool:
        """Whether a pair with such a difference is never a hit."""
        return self in _FORBIDDING


_FORBIDDING = frozenset(
    {
        Kind.REPLACED, Kind.ADDED, Kind.NUMBER, Kind.BINDING, Kind.RELATION, Kind.LOST,
        Kind.NOTHING_SHARED,
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One difference: its kind, and the words it is about."""

    kind: Kind
    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """What two prompts have in common and what not.

    Attributes:
        findings: Every difference.
        shared: Words that were paired and add something to the picture.
        added: Words of the longer prompt that the shorter one lacks.
    """

    findings: tuple[Finding, ...]
    shared: int
    added: int

    @property
    def forbids(self) -> bool:
        """Whether any difference forbids reuse."""
        return any(finding.kind.forbids for finding in self.findings)

    def count(self, kind: Kind) -> int:
        """How many differences of a kind there are."""
        return sum(finding.kind is kind for finding in self.findings)


def weighty(words: Iterable[Content]) -> list[Content]:
    """Those that say something of their own."""
    return [content for content in words if content.role is not Role.FREE and not content.repeats]


def told(words: Iterable[Content]) -> str:
    """Words for a finding."""
    return " ".join(content.word.text for content in words)
