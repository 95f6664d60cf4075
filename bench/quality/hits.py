"""Pictures of resumed requests: few in a sample of all requests, so they get one of their own.

What a method loses on the whole trace is what it loses on a resumed request, times their share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from quality import measures
from quality.decisions import Decision
from quality.measures import Floats, Pictures
from quality.methods import Method, Reuse, alone, compared, shows_resumed


@dataclasses.dataclass(frozen=True, slots=True)
class Hits:
    """Resumed requests with pictures.

    Attributes:
        indices: Of the requests; empty where none was resumed.
        pictures: Name of a method -> its pictures of these requests.
    """

    indices: tuple[int, ...] = ()
    pictures: Mapping[str, Pictures] = dataclasses.field(default_factory=dict)

    def lost(self, method: Method) -> Floats:
        """Share of attributes that each loses against the same run from noise, `(hits,)`."""
        own = measures.attribute_accuracy(self.pictures[method.name])
        return measures.attribute_accuracy(self.pictures[alone(method).name]) - own

    def distance(self, method: Method) -> Floats:
        """Distance of each from the same run from noise, in grey levels, `(hits,)`."""
        return measures.distances(self.pictures[method.name], self.pictures[alone(method).name])


def resumed_indices(order: Sequence[int], decisions: Sequence[Decision], most: int) -> list[int]:
    """The first requests in an order whose pictures come from resumed runs."""
    return [index for index in order if shows_resumed(index, decisions)][:most]


def resumed_share(decisions: Sequence[Decision], weights: Floats) -> Floats:
    """Share of requests that show a resumed picture under each row of weights, `(draws,)`."""
    there = [float(shows_resumed(index, decisions)) for index in range(len(decisions))]
    return measures.weighted_mean(np.array(there), weights)


def methods_of_hits(steps: int, reuse: Reuse) -> list[Method]:
    """Methods that resume by the same decisions, and what each is compared with."""
    resuming = [method for method in compared(steps) if method.reuse is reuse]
    return [*resuming, *map(alone, resuming)]
