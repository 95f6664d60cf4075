"""Links between two things, told so that two ways to say one relation are one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from skipstone_embedding.gate import word_lists as lists
from skipstone_embedding.gate.scenes import Link

DIRECTED = frozenset(
    {"left_of", "above", "in_front_of", "on", "on_top", "in_", "inside", "away_from", "middle",
     "between"}
)  # fmt: skip
"""Relations that a picture must show as they are said."""

_PATHS = frozenset({"street", "road", "path", "river", "trail", "hallway"})
_OPEN_LAND = frozenset({"field", "meadow", "grass", "desert", "snow"})
_ALIKE: tuple[tuple[frozenset[str], frozenset[str] | None], ...] = (
    (frozenset({"in_", "inside"}), None),
    (frozenset({"in_", "on"}), lists.EITHER_SIDE),
    (frozenset({"in_", "at"}), lists.PLACES_AT),
    (frozenset({"in_", "wearing"}), lists.CLOTHES),
    (frozenset({"with_", "wearing"}), lists.CLOTHES),
    (frozenset({"with_", "in_"}), lists.CLOTHES),
    (frozenset({"down", "along"}), _PATHS),
    (frozenset({"across", "through"}), _OPEN_LAND),
    (frozenset({"of", "full_of"}), None),
    (frozenset({"of", "made_of"}), None),
)
"""Prepositions that say one thing of the same two, with the targets of which this holds (None: of
all)."""

_NOT_ON_TOP = frozenset(
    {"bus", "train", "plane", "airplane", "boat", "ship", "tree", "car", "truck", "wall"}
)
"""What one may be "on" without being on top of it."""

_LIES = frozenset({"in_", "on"})
_HOLDS = {
    "with_": lists.HOLDERS | lists.VESSELS,
    "of": lists.VESSELS,
    "full_of": lists.VESSELS,
}
"""What holds what lies in it or on it, by how that is said."""


@dataclasses.dataclass(frozen=True, slots=True)
class Edge:
    """A link.

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

    def fits(self, other: Edge, *, strictly: bool = False) -> bool:
        """Whether both say the same, as far as the order of words tells.

        Args:
            other: An edge of the other prompt.
            strictly: Whether only the likeliest reading of both counts.
        """
        if _same_name(self, other) and self._lies_as(other, strictly):
            return True
        pair = {self.name, other.name}
        if self.is_verb or other.is_verb:
            return False
        if pair == {"near"}:
            return self.turned()._lies_as(other, strictly)
        if not pair & _LIES or not pair & _HOLDS.keys():
            return False
        # A plate with an apple: what is with something holds it.
        held, lies = (self, other) if self.name in _HOLDS else (other, self)
        holds = _is_one_of(held.subject, _HOLDS[held.name]) and lies.name in _LIES
        return holds and self.turned()._lies_as(other, strictly)

    def contradicts(self, other: Edge) -> bool:
        """Whether both connect the same two things, in another way."""
        ends = {self.subject, self.target}
        return len(ends) == 2 and ends == {other.subject, other.target} and not self.fits(other)

    def turned(self) -> Edge:
        """The same from the other side."""
        return Edge(self.name, self.target, self.targets, self.subject, self.subjects, self.is_verb)

    def _lies_as(self, other: Edge, strictly: bool) -> bool:
        if strictly and not (_is_setting(self) or _is_setting(other)):
            return self.subject == other.subject and self.target == other.target
        return (self.subject in other.subjects or other.subject in self.subjects) and (
            self.target in other.targets or other.target in self.targets
        )


def edge_of(link: Link, called: Mapping[int, str], names: Mapping[str, str]) -> Edge:
    """Tells a link.

    Args:
        link: Of a scene.
        called: Names of its things by identity.
        names: Bases -> the names they go by in the comparison.
    """
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


def _same_name(left: Edge, right: Edge) -> bool:
    if left.is_verb is not right.is_verb:
        return False
    pair = {left.name, right.name}
    if len(pair) == 1:
        return True
    if left.is_verb:
        return False
    if pair == {"on", "on_top"}:
        return not _is_one_of(left.target, _NOT_ON_TOP | lists.EITHER_SIDE)
    return any(
        pair == group and (targets is None or _is_one_of(left.target, targets))
        for group, targets in _ALIKE
    )


def _is_setting(edge: Edge) -> bool:
    """Whether it says when or where all of the picture is."""
    return not edge.is_verb and _is_one_of(f"{edge.subject} {edge.target}", lists.SETTINGS)


def _is_one_of(name: str, heads: frozenset[str]) -> bool:
    """Whether a thing is one of a list, whatever tells it from another one."""
    return not heads.isdisjoint(name.split())
