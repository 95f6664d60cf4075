"""What belongs to what in a prompt, in a form that can be compared."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.roles import Role, role_of
from skipstone_embedding.gate.scenes import Link, Scene, Thing
from skipstone_embedding.gate.tagging import Tag

DIRECTED = frozenset(
    {"left_of", "above", "in_front_of", "on", "in_", "away_from", "middle", "between"}
)
"""Relations that a picture must show as they are said."""

_ALIKE = (
    frozenset({"in_", "at"}), frozenset({"on", "at"}), frozenset({"of", "with_"}),
    frozenset({"in_", "wearing"}), frozenset({"with_", "wearing"}), frozenset({"with_", "holding"}),
    frozenset({"down", "along"}), frozenset({"across", "through"}),
)  # fmt: skip
"""Prepositions that say one thing of the same two."""

_HOLDS = frozenset({"with_", "of"})
_NAMING = frozenset({"of", "in_", "on", "at", "for_", "from_", "with_"})
_LIES = frozenset({"in_", "on", "at"})
"""What lies in or on a thing is what the thing is with: a plate with an apple."""

_COUNT_WORDS = frozenset(lists.COUNTS.values())
_UNBOUND = frozenset({Role.FREE, Role.FRAMING, Role.STYLE, Role.NUMBER})


@dataclasses.dataclass(frozen=True, slots=True)
class Edge:
    """A link between two things, told so that both ways to say it are one.

    Attributes:
        name: Relation, or base form of a verb.
        subject: Name of the thing it is said of.
        subjects: That and what it may be said of as well.
        target: Name of the other thing.
        targets: That and what may be meant as well.
        is_verb: Whether it is something done.
    """

    name: str
    subject: str
    subjects: frozenset[str]
    target: str
    targets: frozenset[str]
    is_verb: bool

    def fits(self, other: Edge) -> bool:
        """Whether both say the same, as far as the order of words tells."""
        if _same_name(self, other) and self._lies_as(other):
            return True
        pair = {self.name, other.name}
        turns = pair == {"near"} or (pair & _HOLDS and pair & (_LIES | DIRECTED))
        return bool(turns) and self.turned()._lies_as(other)

    def contradicts(self, other: Edge) -> bool:
        """Whether both connect the same two things, in another way."""
        ends = {self.subject, self.target}
        return len(ends) == 2 and ends == {other.subject, other.target} and not self.fits(other)

    def turned(self) -> Edge:
        """The same from the other side."""
        return Edge(self.name, self.target, self.targets, self.subject, self.subjects, self.is_verb)

    def _lies_as(self, other: Edge) -> bool:
        return (self.subject in other.subjects or other.subject in self.subjects) and (
            self.target in other.targets or other.target in self.targets
        )


def _same_name(left: Edge, right: Edge) -> bool:
    if left.is_verb is not right.is_verb:
        return False
    pair = {left.name, right.name}
    if len(pair) == 1:
        return True
    if pair == {"in_", "on"}:
        return left.target.split()[-1] in lists.EITHER_SIDE
    return not left.is_verb and any(pair <= group for group in _ALIKE)


Quality = tuple[str, Role, str]
"""A quality, its role, and the name of the thing it is said of."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bindings:
    """What belongs to what.

    Attributes:
        qualities: What is said of what.
        numbers: Per thing how many there are, once per mention.
        edges: What connects things.
    """

    qualities: frozenset[Quality]
    numbers: dict[str, frozenset[str]]
    edges: tuple[Edge, ...]

    def says(self, quality: Quality) -> bool:
        """Whether a quality is said, or a noun before another one in other words.

        A coffee cup is a cup of coffee, a park bench a bench in a park.
        """
        if quality in self.qualities:
            return True
        word, role, thing = quality
        return role is Role.THING and any(
            edge.name in _NAMING and edge.subject == thing and edge.target == word
            for edge in self.edges
        )

    def links(self, edge: Edge) -> bool:
        """Whether an edge is there, or says what a noun before another one says."""
        if any(edge.fits(own) for own in self.edges):
            return True
        named = (edge.target, Role.THING, edge.subject)
        return edge.name in _NAMING and named in self.qualities


def bindings(scene: Scene, names: Mapping[str, str], tell_apart: frozenset[str]) -> Bindings:
    """Reads what belongs to what.

    Args:
        scene: The prompt.
        names: Bases -> the names they go by in the comparison.
        tell_apart: Names of heads that stand for several things, which go by their qualities too.
    """
    called = {id(thing): _name(thing, names, tell_apart) for thing in scene.things}
    qualities: set[Quality] = set()
    numbers: dict[str, set[str]] = {}
    for thing in scene.things:
        name = called[id(thing)]
        numbers.setdefault(name, set()).add(_number(thing))
        for word in thing.qualities:
            role = role_of(word)
            if role is not None and role not in _UNBOUND:
                qualities.add((names.get(word.base, word.base), role, name))
    edges = tuple(
        _edge(link, called, names)
        for link in scene.links
        if Role.FREE not in (role_of(link.subject.head), role_of(link.target.head))
    )
    return Bindings(frozenset(qualities), {k: frozenset(v) for k, v in numbers.items()}, edges)


def repeated_heads(scene: Scene, names: Mapping[str, str]) -> frozenset[str]:
    """Names of heads that a prompt uses for more than one thing."""
    counts = Counter(names.get(thing.head.base, thing.head.base) for thing in scene.things)
    return frozenset(name for name, count in counts.items() if count > 1)


def _name(thing: Thing, names: Mapping[str, str], tell_apart: frozenset[str]) -> str:
    head = names.get(thing.head.base, thing.head.base)
    if head not in tell_apart:
        return head
    said = sorted(
        names.get(word.base, word.base)
        for word in thing.qualities
        if role_of(word) not in (None, *_UNBOUND)
    )
    return " ".join([*said, head])


def _number(thing: Thing) -> str:
    counts = [w.base for w in thing.qualities if w.tag is Tag.COUNT and w.base != "all"]
    if counts:
        return counts[-1]
    return "several" if thing.head.plural else "one"


def _edge(link: Link, called: Mapping[int, str], names: Mapping[str, str]) -> Edge:
    subject, target = called[id(link.subject)], called[id(link.target)]
    subjects = frozenset({subject, *(called[id(thing)] for thing in link.others)})
    # "Carried by a man" says what "a man carrying" does, which is read as a preposition.
    is_verb = link.is_verb and link.name not in lists.HAVING
    if is_verb:
        name = names.get(link.name, link.name)
    else:
        name = lists.CONVERSE.get(link.name, lists.HAVING.get(link.name, link.name))
    edge = Edge(name, subject, subjects, target, frozenset({target}), is_verb)
    return edge.turned() if not link.is_verb and link.name in lists.CONVERSE else edge
