"""What differs between two prompts of like length.

Whatever one has and the other lacks was meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.bindings import Bindings
from skipstone_embedding.gate.findings import Finding, Kind, told, weighty
from skipstone_embedding.gate.pairing import Pairing
from skipstone_embedding.gate.readings import Content

_VAGUE = ({"several", "many"}, {"several", "few"})
"""Numbers that do not contradict each other."""


def replaced_words(pairing: Pairing) -> Iterator[Finding]:
    """Words of both that the other one lacks: one was put in the place of the other."""
    left = [*weighty(pairing.left), *_moods(pairing.left)]
    right = [*weighty(pairing.right), *_moods(pairing.right)]
    if left and right:
        yield Finding(Kind.REPLACED, f"{told(left)} / {told(right)}")


def edit_findings(
    pairing: Pairing, mine: Bindings, others: Bindings, *, strictly: bool
) -> Iterator[Finding]:
    """Compares words that only one has, and bindings.

    Args:
        pairing: Words of the two prompts.
        mine: What belongs to what in the first one.
        others: In the second one.
        strictly: Whether only the likeliest reading of both counts.
    """
    left, right = weighty(pairing.left), weighty(pairing.right)
    for content in left:
        yield Finding(_addition(content, mine), content.word.text)
    for content in right:
        yield Finding(_addition(content, others), content.word.text)
    lost = {content.word.base for content in [*left, *right]}
    yield from _number_findings(mine, others)
    yield from _binding_findings(mine, others, lost)
    for ours, theirs in ((mine, others), (others, mine)):
        for edge in ours.edges:
            if not ours.says_more(edge) and not theirs.links(edge, strictly=strictly):
                yield Finding(Kind.RELATION, f"{edge.subject} {edge.name} {edge.target}")


def _moods(words: tuple[Content, ...]) -> list[Content]:
    return [content for content in words if content.word.text in lists.MOODS]


def _addition(content: Content, said: Bindings) -> Kind:
    """What it means that only one prompt has a word: what is alive is not made of wood."""
    if not content.role.is_detail and content.word.text not in lists.MATERIALS:
        return Kind.ADDED
    base = content.word.base
    owners = {name for quality, _, name in said.qualities if quality == base}
    if content.word.text in lists.MATERIALS and (not owners or owners & said.alive):
        return Kind.ADDED
    return Kind.DETAIL if content.role.is_detail else Kind.ADDED


def _number_findings(mine: Bindings, others: Bindings) -> Iterator[Finding]:
    for name in mine.numbers.keys() & others.numbers.keys():
        pair = mine.numbers[name] | others.numbers[name]
        if mine.numbers[name] != others.numbers[name] and pair not in _VAGUE and "" not in pair:
            yield Finding(Kind.NUMBER, name)


def _binding_findings(mine: Bindings, others: Bindings, lost: set[str]) -> Iterator[Finding]:
    for ours, theirs in ((mine, others), (others, mine)):
        for quality in sorted(ours.qualities - theirs.qualities, key=str):
            if quality[0] not in lost and not theirs.says(quality):
                yield Finding(Kind.BINDING, f"{quality[0]} {quality[2]}")
