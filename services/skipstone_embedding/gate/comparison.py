"""Every difference between two prompts, named.

First the words: each is paired with one of the other prompt that means the same, and what is left
over was replaced (on both sides) or added (on one). Then what belongs to what: prompts with the
same words may still bind colours, places and roles to other things.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone_embedding.gate.bindings import bindings, repeated_heads
from skipstone_embedding.gate.edits import edit_findings, replaced_words
from skipstone_embedding.gate.findings import Comparison, Finding, Kind, weighty
from skipstone_embedding.gate.lexicon import ADJECTIVE, Lexicon, Likeness
from skipstone_embedding.gate.pairing import Pair, Pairing, pair_words
from skipstone_embedding.gate.readings import Reading
from skipstone_embedding.gate.rewrites import lost_words, rewrite_findings
from skipstone_embedding.gate.roles import Role
from skipstone_embedding.gate.word_order import is_reordered, order_findings, wording_findings

_ANYBODY = frozenset({"person", "human", "people", "individual", "somebody", "figure"})
"""Words for people of whom nothing more is said."""

_WORKERS = frozenset({"athlete", "musician", "rider", "dancer", "artist", "player", "performer"})
_PEOPLE = _ANYBODY | _WORKERS | {"man", "woman", "adult"}
"""What a rewrite may make of anybody, by what is done."""

_REWRITE_FACTOR = 2.0
_REWRITE_WORDS = 4
"""A prompt is a rewrite of another when it has so many times its words and so many more. An edit
adds a word or two and means each; a rewriter fills in what nobody asked for."""

_REWRITE_LABELS = 2
"""Labels behind a prompt that the other one lacks ("realistic, indoor lighting") by which a
rewriter is told as well."""


def compare(
    left: Reading, right: Reading, lexicon: Lexicon, *, until_forbidden: bool = False
) -> Comparison:
    """Compares two prompts; the order does not matter.

    Args:
        left: One.
        right: The other.
        lexicon: Knows which words mean the same.
        until_forbidden: Whether to stop at the first difference that forbids reuse: most prompts
            differ in their first words, and a score of 0 needs no second reason.
    """
    left, right = sorted((left, right), key=_order)
    pairing = pair_words(left, right, lexicon)
    shared = sum(_counts(pair.left.role) for pair in pairing.pairs)
    findings: list[Finding] = []
    if not shared:
        findings.append(Finding(Kind.NOTHING_SHARED, ""))
    if shared or not until_forbidden:
        for finding in _findings(left, right, pairing, lexicon):
            findings.append(finding)
            if until_forbidden and finding.kind.forbids:
                break
    added = sum(_counts(content.role) for content in weighty(pairing.right))
    return Comparison(tuple(findings), shared, added)


def _findings(
    left: Reading, right: Reading, pairing: Pairing, lexicon: Lexicon
) -> Iterator[Finding]:
    """Every difference, those first that are found soonest."""
    rewritten = _is_rewritten(left, right)
    labelled = left.labels - right.labels >= _REWRITE_LABELS
    if rewritten:
        yield from lost_words(pairing, labelled=labelled)
    else:
        yield from replaced_words(pairing)
    yield from _pair_findings(pairing, lexicon, rewritten)
    yield from wording_findings(left, right, rewritten=rewritten)
    yield from _opposite_findings(pairing, lexicon)
    names = pairing.names()
    apart = repeated_heads(left.scene, {})
    if not rewritten:
        apart |= repeated_heads(right.scene, names)
    mine, others = bindings(left.scene, {}, apart), bindings(right.scene, names, apart)
    moved = is_reordered(pairing, left, right)
    if rewritten:
        medium = "" if left.medium == right.medium else left.medium
        yield from rewrite_findings(pairing, mine, others, labelled=labelled, medium=medium)
    else:
        yield from edit_findings(pairing, mine, others, strictly=moved)
    if moved:
        yield from order_findings(pairing, left, right, rewritten=rewritten)
        if mine.is_ambiguous or (others.is_ambiguous and not rewritten):
            yield Finding(Kind.RELATION, "two things of one name")


def _order(reading: Reading) -> tuple[int, list[str]]:
    return reading.weight, [word.text for word in reading.scene.words]


def _is_rewritten(left: Reading, right: Reading) -> bool:
    longer = right.weight >= _REWRITE_FACTOR * left.weight + _REWRITE_WORDS
    return longer or abs(left.labels - right.labels) >= _REWRITE_LABELS


def _counts(role: Role) -> bool:
    return role not in (Role.FREE, Role.LABEL)


def _pair_findings(pairing: Pairing, lexicon: Lexicon, rewritten: bool) -> Iterator[Finding]:
    for pair in pairing.pairs:
        words = f"{pair.left.word.text} ~ {pair.right.word.text}"
        if pair.likeness is Likeness.KIND:
            yield Finding(_kind_finding(pair, lexicon, rewritten), words)
        elif pair.likeness is Likeness.SYNONYM:
            yield Finding(Kind.SYNONYM, words)
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

    A rewrite may make a dog a retriever, and anybody a man. Who edits a dog into a retriever means
    it, and so does who makes anybody a nun.
    """
    left, right = pair.left.word.base, pair.right.word.base
    if {left, right} <= _ANYBODY:
        return Kind.SPECIAL
    if not rewritten:
        return Kind.REPLACED
    if left in _ANYBODY:
        return Kind.SPECIAL if right in _PEOPLE else Kind.REPLACED
    return Kind.SPECIAL if lexicon.is_kind_of(right, left) else Kind.REPLACED
