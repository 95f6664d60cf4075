"""What belongs to what in a prompt, in a form that can be compared."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.edges import Edge, edge_of
from skipstone_embedding.gate.roles import Role, role_of
from skipstone_embedding.gate.scenes import Scene, Thing
from skipstone_embedding.gate.tagging import Tag

_DESCRIBING = frozenset({"of", "in_", "on", "with_", "from_", "wearing", "holding", "full_of"})
"""Prepositions whose target tells a thing from another one of its name."""

_MEANT_BY_NOUN = frozenset({"of", "made_of", "for_", "from_", "with_"})
_MEANT_BY_SITE = frozenset({"in_", "on", "at"})

_COUNT_WORDS = frozenset(lists.COUNTS.values())
_UNBOUND = frozenset({Role.FREE, Role.FRAMING, Role.STYLE, Role.NUMBER})


Quality = tuple[str, Role, str]
"""A quality, its role, and the name of the thing it is said of."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bindings:
    """What belongs to what.

    Attributes:
        qualities: What is said of what.
        numbers: Per thing how many there are, once per mention; "" where its noun leaves it open.
        edges: What connects things.
        alive: Names of persons and animals.
        is_ambiguous: Whether two things have one name.
    """

    qualities: frozenset[Quality]
    numbers: dict[str, frozenset[str]]
    edges: tuple[Edge, ...]
    alive: frozenset[str]
    is_ambiguous: bool

    def says(self, quality: Quality) -> bool:
        """Whether a quality is said, or a noun before another one in other words.

        A park bench is a bench in a park, a chocolate cake a cake of chocolate.
        """
        if quality in self.qualities:
            return True
        word, role, thing = quality
        return role is Role.THING and any(
            edge.subject == thing and edge.target == word and _names(edge) for edge in self.edges
        )

    def says_more(self, edge: Edge) -> bool:
        """Whether "with" is only how another edge is told: "a castle with a dragon above it"."""
        return edge.name == "with_" and any(
            not other.is_verb and (other.subject, other.target) == (edge.target, edge.subject)
            for other in self.edges
        )

    def links(self, edge: Edge, *, strictly: bool = False) -> bool:
        """Whether an edge is there, or says what a noun before another one says.

        Args:
            edge: An edge of the other prompt.
            strictly: Whether only the likeliest reading of both counts.
        """
        if any(edge.fits(own, strictly=strictly) for own in self.edges):
            return True
        return _names(edge) and (edge.target, Role.THING, edge.subject) in self.qualities


def _names(edge: Edge) -> bool:
    """Whether a noun before another one says what an edge says.

    A wine glass is no glass of wine, and a fire truck no truck on fire.
    """
    if edge.name in _MEANT_BY_SITE:
        return edge.target in lists.SITES
    return edge.name in _MEANT_BY_NOUN and edge.subject not in lists.VESSELS


def bindings(scene: Scene, names: Mapping[str, str], tell_apart: frozenset[str]) -> Bindings:
    """Reads what belongs to what.

    Args:
        scene: The prompt.
        names: Bases -> the names they go by in the comparison.
        tell_apart: Names of heads that stand for several things, which go by what describes them.
    """
    called = _called(scene, names, tell_apart)
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
        edge_of(link, called, names)
        for link in scene.links
        if Role.FREE not in (role_of(link.subject.head), role_of(link.target.head))
    )
    return Bindings(
        frozenset(qualities),
        {name: frozenset(found) for name, found in numbers.items()},
        edges,
        frozenset(called[id(thing)] for thing in scene.things if thing.head.alive),
        len(set(called.values())) < len(called),
    )


def repeated_heads(scene: Scene, names: Mapping[str, str]) -> frozenset[str]:
    """Names of heads that a prompt uses for more than one thing."""
    counts = Counter(names.get(thing.head.base, thing.head.base) for thing in scene.things)
    return frozenset(name for name, count in counts.items() if count > 1)


def _called(scene: Scene, names: Mapping[str, str], tell_apart: frozenset[str]) -> dict[int, str]:
    """The name of each thing, by its identity.

    One of two men is "blue man shirt" where he is "a blue man in a shirt": what describes them
    tells them apart, whatever it is compared with.
    """
    plain = {id(thing): _name(thing, names, tell_apart) for thing in scene.things}
    marks: dict[int, list[str]] = {}
    for link in scene.links:
        if link.name in _DESCRIBING and link.target.head.base != "background" and not link.is_verb:
            marks.setdefault(id(link.subject), []).append(plain[id(link.target)])
    for thing in scene.things:
        if names.get(thing.head.base, thing.head.base) in tell_apart and id(thing) in marks:
            plain[id(thing)] = " ".join([plain[id(thing)], *sorted(marks[id(thing)])])
    return plain


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
    if thing.head.plural:
        return "several"
    # "scissors" may be one or some.
    return "" if thing.head.base.endswith("s") and not thing.head.base.endswith("ss") else "one"
