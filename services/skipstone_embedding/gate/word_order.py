"""What it means that two prompts have their words in another order, or other little words.

Where the order is the same, a doubtful reading of one prompt is the same doubt in the other. Where
it is not, the readings alone tell whether a wording was turned or the picture: so nothing may be
doubtful then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from skipstone_embedding.gate.findings import Finding, Kind
from skipstone_embedding.gate.pairing import Pair, Pairing
from skipstone_embedding.gate.readings import Content, Reading
from skipstone_embedding.gate.roles import Role
from skipstone_embedding.gate.scenes import Scene, Thing
from skipstone_embedding.gate.tagging import Tag

_ANYWHERE = frozenset({Role.FREE, Role.LABEL, Role.FRAMING, Role.STYLE})
"""Roles of words that belong to the picture as a whole, wherever they stand."""

_MOST_UNKNOWN = 1


def is_reordered(pairing: Pairing, left: Reading, right: Reading) -> bool:
    """Whether the words that two prompts share come in another order."""
    places = [place for _, place in _places(pairing, left, right)]
    return places != sorted(places)


def _places(pairing: Pairing, left: Reading, right: Reading) -> list[tuple[Pair, int]]:
    """Pairs in the order of the first prompt, with their place in the second one."""
    mine = {id(content): at for at, content in enumerate(left.contents)}
    others = {id(content): at for at, content in enumerate(right.contents)}
    pairs = [
        pair for pair in pairing.pairs if _ANYWHERE.isdisjoint((pair.left.role, pair.right.role))
    ]
    pairs.sort(key=lambda pair: mine[id(pair.left)])
    return [(pair, others[id(pair.right)]) for pair in pairs]


def wording_findings(left: Reading, right: Reading, *, rewritten: bool) -> Iterator[Finding]:
    """Differences in what is no word of content, whatever the order."""
    if (left.is_foreign or right.is_foreign) and _texts(left) != _texts(right):
        yield Finding(Kind.REPLACED, "words of another language")
    if left.genders and right.genders:
        same = (
            set(left.genders) <= set(right.genders) if rewritten else left.genders == right.genders
        )
        if not same:
            yield Finding(Kind.REPLACED, " / ".join([*left.genders, *right.genders]))
    loose = Counter(left.scene.loose), Counter(right.scene.loose)
    if not rewritten and loose[0] != loose[1]:
        yield Finding(Kind.RELATION, " / ".join(" ".join(side) for side in loose))
    for one, other in ((left, right), (right, left)):
        if one.medium and not any(content.role is Role.STYLE for content in other.contents):
            yield Finding(Kind.ADDED, one.medium)
    for look, heads in _looks(left).items():
        if look in (others := _looks(right)) and heads.isdisjoint(others[look]):
            yield Finding(Kind.BINDING, f"{look} {' '.join(heads)}")


def _texts(reading: Reading) -> list[str]:
    return [word.text for word in reading.scene.words if word.tag not in (Tag.BREAK, Tag.STOP)]


def _looks(reading: Reading) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for look, head in reading.looks:
        if head:
            found.setdefault(look, set()).add(head)
    return found


def order_findings(
    pairing: Pairing, left: Reading, right: Reading, *, rewritten: bool
) -> Iterator[Finding]:
    """What the order of words says and no reading tells, where the order is another one."""
    readings = (left,) if rewritten else (left, right)
    for reading in readings:
        if any(content.role is Role.LOGIC for content in reading.contents):
            yield Finding(Kind.RELATION, "words of logic in another order")
        if reading.unknown > _MOST_UNKNOWN:
            yield Finding(Kind.RELATION, "unknown words in another order")
        if reading.scene.guesses:
            yield Finding(Kind.RELATION, "a clause that may belong to two things")
        unread = _unread(reading)
        if unread:
            yield Finding(Kind.RELATION, f"{unread} in another order")
    if left.shades != right.shades and not rewritten:
        yield Finding(Kind.BINDING, "shades")
    yield from _turned_findings(pairing, left, right)


def _unread(reading: Reading) -> str:
    """Words of content that the reading has given no place."""
    things = reading.scene.things
    placed = Counter(word.text for thing in things for word in (thing.head, *thing.qualities))
    placed.update(link.verb.text for link in reading.scene.links if link.verb is not None)
    for content in reading.contents:
        if content.role in _ANYWHERE or content.role is Role.LOGIC or content.repeats:
            continue
        if not placed[content.word.text]:
            return content.word.text
        placed[content.word.text] -= 1
    return ""


def _turned_findings(pairing: Pairing, left: Reading, right: Reading) -> Iterator[Finding]:
    """Two nouns of one name, or two deeds of one actor, that have changed places."""
    places = _places(pairing, left, right)
    bound = _together(left.scene)
    for at, (first, place) in enumerate(places):
        for second, other in places[at + 1 :]:
            if other < place and _keep_order(first.left, second.left, bound):
                words = f"{first.left.word.text} {second.left.word.text}"
                yield Finding(Kind.RELATION, f"{words} in another order")


def _keep_order(first: Content, second: Content, bound: dict[int, set[int]]) -> bool:
    tags = {first.word.tag, second.word.tag}
    return tags in ({Tag.NOUN}, {Tag.VERB}) and not bound.get(id(first.word), set()).isdisjoint(
        bound.get(id(second.word), set())
    )


def _together(scene: Scene) -> dict[int, set[int]]:
    """For each word, the things that it is said of."""
    found: dict[int, set[int]] = {}

    def said(word: object, thing: Thing) -> None:
        found.setdefault(id(word), set()).add(id(thing))

    for thing in scene.things:
        for word in (thing.head, *thing.qualities):
            said(word, thing)
    for link in scene.links:
        if link.verb is not None:
            said(link.verb, link.subject)
    return found
