"""Measuring several things in turns, so that noise of the machine hits all of them alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cacheplane.cpu import Cost, measured

_WARM_UP = 5


def _nothing(number: int) -> None:
    """Clears nothing up."""


@dataclass(frozen=True)
class Subject:
    """Something that is measured.

    Attributes:
        name: What it is.
        run: Does it once, for the round with this number.
        pids: Its processes beside this one.
        after: Clears up behind a round, unmeasured.
    """

    name: str
    run: Callable[[int], object]
    pids: Sequence[int] = ()
    after: Callable[[int], object] = _nothing


def in_turns(subjects: Sequence[Subject], rounds: int) -> Mapping[str, list[Cost]]:
    """Runs all subjects in every round, each round beginning with the next one.

    Rounds with negative numbers come first and warm up.
    """
    costs: dict[str, list[Cost]] = {subject.name: [] for subject in subjects}
    for number in range(-min(_WARM_UP, rounds), rounds):
        first = number % len(subjects)
        for subject in [*subjects[first:], *subjects[:first]]:
            cost = measured(functools.partial(subject.run, number), subject.pids)
            subject.after(number)
            if number >= 0:
                costs[subject.name].append(cost)
    return costs
