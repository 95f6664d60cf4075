"""What differs between a short prompt and a long one that says it in detail.

The long one may add what it likes, and must say all of the short one.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone_embedding.gate.bindings import Bindings, Quality
from skipstone_embedding.gate.edges import DIRECTED, Edge
from skipstone_embedding.gate.findings import Finding, Kind, weighty
from skipstone_embedding.gate.pairing import Pairing
from skipstone_embedding.gate.readings import Content
from skipstone_embedding.gate.roles import Role

_OWNING = frozenset({"with_", "holding", "wearing"})


def lost_words(pairing: Pairing, *, labelled: bool) -> Iterator[Finding]:
    """Words that a rewrite must say in any case and does not. See `rewrite_findings`."""
    for content in _lost(pairing, labelled):
        if not _may_be_lost(content):
            yield Finding(Kind.LOST, content.word.text)


def rewrite_findings(
    pairing: Pairing, mine: Bindings, others: Bindings, *, labelled: bool, medium: str
) -> Iterator[Finding]:
    """Compares details that only the short one has, and bindings.

    Args:
        pairing: Words of the two prompts.
        mine: What belongs to what in the short one.
        others: In the long one.
        medium: What the short one opens with ("a statue of") and the long one does not.
        labelled: Whether the labels of the short one are what the rewriter has added.
    """
    yield Finding(Kind.REWRITTEN, "")
    lost = _lost(pairing, labelled)
    for content in filter(_may_be_lost, lost):
        yield Finding(_loss(content, mine, others), content.word.text)
    for name in mine.numbers.keys() & others.numbers.keys():
        told = mine.numbers[name], others.numbers[name]
        if told[0].isdisjoint(told[1]) and "" not in told[0] | told[1]:
            yield Finding(Kind.NUMBER, name)
    if medium and not any(
        edge.name == "of" and edge.subject == medium and edge.target in mine.numbers
        for edge in others.edges
    ):
        yield Finding(Kind.LOST, medium)
    gone = {content.word.base for content in lost}
    for quality in sorted(mine.qualities - others.qualities, key=str):
        if quality[0] not in gone and not others.says(quality):
            yield Finding(_unsaid(quality, mine, others), f"{quality[0]} {quality[2]}")
    for edge in mine.edges:
        if not others.links(edge):
            kind = Kind.RELATION if _is_denied(edge, mine, others) else Kind.UNVERIFIED
            yield Finding(kind, f"{edge.subject} {edge.name} {edge.target}")


def _lost(pairing: Pairing, labelled: bool) -> list[Content]:
    """Words of the short prompt that the long one lacks."""
    return [
        content
        for content in weighty(pairing.left)
        if not (labelled and content.role is Role.LABEL)
    ]


def _may_be_lost(content: Content) -> bool:
    return content.role.is_detail and not content.role.is_bound


def _loss(content: Content, mine: Bindings, others: Bindings) -> Kind:
    """What it means that a rewrite lacks a detail: little where it says nothing in its place."""
    base = content.word.base
    things = {name for quality, _, name in mine.qualities if quality == base}
    said = any(_says_instead(name, mine, others) for name in things)
    return Kind.LOST if said or not things else Kind.PARTLY_LOST


def _says_instead(name: str, mine: Bindings, others: Bindings) -> bool:
    """Whether a rewrite says of a thing what the short prompt does not."""
    return any(key[2] == name for key in others.qualities - mine.qualities)


def _unsaid(quality: Quality, mine: Bindings, others: Bindings) -> Kind:
    """What it means that a rewrite has a quality, but not of the thing that shall have it."""
    said, role, name = quality
    owners = {owner for word, _, owner in others.qualities if word == said}
    if role.is_bound or role is Role.STATE:
        return Kind.BINDING
    # What somebody does is read less surely than what stands before a noun.
    surely = role is Role.QUALITY or name not in mine.alive
    elsewhere = owners if surely else owners & (mine.numbers.keys() | others.alive)
    return Kind.BINDING if elsewhere else Kind.UNVERIFIED


def _is_denied(edge: Edge, mine: Bindings, others: Bindings) -> bool:
    """Whether a link that a rewrite seems to lack is more than one that was not found in it."""
    if edge.name in DIRECTED and edge.name not in ("on", "in_"):
        return True
    if edge.name == "of":
        return edge.target in mine.alive  # a statue of a man
    if edge.name in _OWNING and edge.subject in mine.alive:
        return True
    return any(
        edge.contradicts(other) or _does_otherwise(edge, other, others) for other in others.edges
    )


def _does_otherwise(edge: Edge, other: Edge, others: Bindings) -> bool:
    """Whether another one does it or has it."""
    if other.subject == edge.subject or other.subject not in others.alive:
        return False
    if edge.is_verb:
        return other.is_verb and other.name == edge.name
    return edge.name in _OWNING and other.name in _OWNING and other.target == edge.target
