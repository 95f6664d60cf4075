"""Every difference between two prompts, named.

First the words: each is paired with one of the other prompt that means the same, and what is left
over was replaced (on both sides) or added (on one). Then what belongs to what: prompts with the
same words may still bind colours, places and roles to other things.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Sequence

from skipstone_embedding.gate.bindings import DIRECTED, Bindings, bindings, repeated_heads
from skipstone_embedding.gate.lexicon import ADJECTIVE, Lexicon, Likeness
from skipstone_embedding.gate.pairing import Pair, Pairing, pair_words
from skipstone_embedding.gate.readings import Content, Reading
from skipstone_embedding.gate.roles import Role


class Kind(enum.Enum):
    """Kinds of difference. The first seven forbid reuse, the others lower the score."""

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
    NEAR = "near"
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


_LIKENESS_KINDS = {Likeness.SYNONYM: Kind.SYNONYM, Likeness.NEAR: Kind.NEAR}
_ANYBODY = frozenset({"person", "human", "people", "individual", "somebody", "figure"})
"""Words for people of whom nothing more is said."""

_VAGUE = ({"several", "many"}, {"several", "few"})
"""Numbers that do not contradict each other."""

_REWRITE_FACTOR = 2.0
_REWRITE_WORDS = 4
"""A prompt is a rewrite of another when it has so many times its words and so many more. An edit
adds a word or two and means each; a rewriter fills in what nobody asked for."""

_REWRITE_LABELS = 2
"""Labels behind a prompt that the other one lacks ("realistic, indoor lighting") by which a
rewriter is told as well."""


def compare(left: Reading, right: Reading, lexicon: Lexicon) -> Comparison:
    """Compares two prompts; the order does not matter."""
    left, right = sorted((left, right), key=_order)
    labels = abs(left.labels - right.labels)
    longer = right.weight >= _REWRITE_FACTOR * left.weight + _REWRITE_WORDS
    rewritten = longer or labels >= _REWRITE_LABELS
    pairing = pair_words(left, right, lexicon)
    names = pairing.names()
    apart = repeated_heads(left.scene, {})
    if not rewritten:
        apart |= repeated_heads(right.scene, names)
    mine, others = bindings(left.scene, {}, apart), bindings(right.scene, names, apart)
    checks = _rewrite_findings if rewritten else _edit_findings
    findings = [
        *_opposite_findings(pairing, lexicon),
        *_pair_findings(pairing, lexicon, rewritten),
        *checks(pairing, mine, others),
    ]
    shared = sum(pair.left.role is not Role.FREE for pair in pairing.pairs)
    if not shared:
        findings.append(Finding(Kind.NOTHING_SHARED, ""))
    return Comparison(tuple(findings), shared, len(_weighty(pairing.right)))


def _order(reading: Reading) -> tuple[int, list[str]]:
    return reading.weight, [word.text for word in reading.scene.words]


def _pair_findings(pairing: Pairing, lexicon: Lexicon, rewritten: bool) -> Iterator[Finding]:
    for pair in pairing.pairs:
        words = f"{pair.left.word.text} ~ {pair.right.word.text}"
        if pair.likeness is Likeness.KIND:
            yield Finding(_kind_finding(pair, lexicon, rewritten), words)
        elif pair.likeness in _LIKENESS_KINDS:
            yield Finding(_LIKENESS_KINDS[pair.likeness], words)
    for content in (*pairing.left, *pairing.right):
        if content.role is Role.FREE:
            yield Finding(Kind.SOFT, content.word.text)


def _opposite_findings(pairing: Pairing, lexicon: Lexicon) -> Iterator[Finding]:
    """A calm sea is no stormy sea, though calm may come and go."""
    for left in pairing.left:
        for right in pairing.right:
            words = left.word.base, right.word.base
            if lexicon.likeness(*words, ADJECTIVE) is Likeness.OPPOSITE:
                yield Finding(Kind.REPLACED, " / ".join(words))


def _kind_finding(pair: Pair, lexicon: Lexicon, rewritten: bool) -> Kind:
    """What it means that one word names a kind of what the other names.

    A rewrite may make a dog a retriever. Who edits a dog into a retriever means it.
    """
    left, right = pair.left.word.base, pair.right.word.base
    if {left, right} & _ANYBODY:
        return Kind.SPECIAL
    if rewritten and lexicon.is_kind_of(right, left):
        return Kind.SPECIAL
    return Kind.REPLACED


def _weighty(words: Iterable[Content]) -> list[Content]:
    return [content for content in words if content.role is not Role.FREE and not content.repeats]


def _edit_findings(pairing: Pairing, mine: Bindings, others: Bindings) -> Iterator[Finding]:
    """Two prompts of like length: whatever one has and the other lacks was meant."""
    left, right = _weighty(pairing.left), _weighty(pairing.right)
    if left and right:
        yield Finding(Kind.REPLACED, f"{_told(left)} / {_told(right)}")
    for content in [*left, *right]:
        detail = content.role.is_detail
        yield Finding(Kind.DETAIL if detail else Kind.ADDED, content.word.text)
    lost = {content.word.base for content in [*left, *right]}
    yield from _number_findings(mine, others)
    yield from _binding_findings(mine, others, lost)
    for ours, theirs in ((mine, others), (others, mine)):
        for edge in ours.edges:
            if not theirs.links(edge):
                yield Finding(Kind.RELATION, f"{edge.subject} {edge.name} {edge.target}")


def _told(words: Sequence[Content]) -> str:
    return " ".join(content.word.text for content in words)


def _number_findings(mine: Bindings, others: Bindings) -> Iterator[Finding]:
    for name in mine.numbers.keys() & others.numbers.keys():
        pair = mine.numbers[name] | others.numbers[name]
        if mine.numbers[name] != others.numbers[name] and pair not in _VAGUE:
            yield Finding(Kind.NUMBER, name)


def _binding_findings(mine: Bindings, others: Bindings, lost: set[str]) -> Iterator[Finding]:
    for ours, theirs in ((mine, others), (others, mine)):
        for quality in sorted(ours.qualities - theirs.qualities, key=str):
            if quality[0] not in lost and not theirs.says(quality):
                yield Finding(Kind.BINDING, f"{quality[0]} {quality[2]}")


def _rewrite_findings(pairing: Pairing, mine: Bindings, others: Bindings) -> Iterator[Finding]:
    """A short prompt and a long one that says it in detail: the long one must say all of it."""
    yield Finding(Kind.REWRITTEN, "")
    lost = _weighty(pairing.left)
    for content in lost:
        yield Finding(_loss(content, mine, others), content.word.text)
    for name in mine.numbers.keys() & others.numbers.keys():
        if not mine.numbers[name] & others.numbers[name]:
            yield Finding(Kind.NUMBER, name)
    yield from _rewritten_bindings(mine, others, {content.word.base for content in lost})
    for edge in mine.edges:
        if others.links(edge):
            continue
        hard = edge.name in DIRECTED and edge.name not in ("on", "in_")
        if hard or any(edge.contradicts(other) for other in others.edges):
            yield Finding(Kind.RELATION, f"{edge.subject} {edge.name} {edge.target}")
        else:
            yield Finding(Kind.UNVERIFIED, f"{edge.subject} {edge.name} {edge.target}")


def _loss(content: Content, mine: Bindings, others: Bindings) -> Kind:
    """What it means that a rewrite lacks a word: little where it says nothing in its place."""
    if not content.role.is_detail or content.role.is_bound:
        return Kind.LOST
    base = content.word.base
    things = {name for quality, _, name in mine.qualities if quality == base}
    said = any(_says_instead(name, mine, others) for name in things)
    return Kind.LOST if said or not things else Kind.PARTLY_LOST


def _says_instead(name: str, mine: Bindings, others: Bindings) -> bool:
    """Whether a rewrite says of a thing what the short prompt does not."""
    return any(key[2] == name for key in others.qualities - mine.qualities)


def _rewritten_bindings(mine: Bindings, others: Bindings, lost: set[str]) -> Iterator[Finding]:
    for quality, role, name in sorted(mine.qualities - others.qualities, key=str):
        if quality in lost or others.says((quality, role, name)):
            continue
        owners = {owner for said, _, owner in others.qualities if said == quality}
        # What somebody does is read less surely than what stands before a noun.
        elsewhere = owners if role is Role.QUALITY else owners & mine.numbers.keys()
        kind = Kind.BINDING if role.is_bound or elsewhere else Kind.UNVERIFIED
        yield Finding(kind, f"{quality} {name}")
