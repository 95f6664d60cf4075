"""How many executors a rate of requests needs: a simulation of queues behind round robin.

Requests come at random (Poisson). Each goes to an executor by the turn of its orchestrator, as the
clients of Skipstone do; an executor runs `slots` at once and the others wait in order. No formula
tells the waits of that: the one for a single queue (Erlang) promises less of them.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SEEDS = (1, 2, 3)
"""Of the runs that are taken together."""

MOST_BUSY = 0.95
"""A fuller fleet has waits that grow for hours, which no simulation of minutes shows."""


@dataclass(frozen=True, slots=True)
class Load:
    """What comes in, and what the cache takes off it.

    Attributes:
        rate: Requests per second.
        run_s: Seconds of a full run on an executor that runs `slots` of them at once.
        exact_share: Share of the requests that are answered from a stored result, 0 to 1.
        exact_s: Seconds of an executor for one of those: it decodes.
        approximate_share: Share of the requests that skip steps, 0 to 1.
        skipped_share: Share of its steps that such a request skips, 0 to 1.
        spread: How far runs are off their mean at most, as a share of it: executors whose runs all
            take equally long fall into step with the turns.
    """

    rate: float
    run_s: float
    exact_share: float = 0.0
    exact_s: float = 0.0
    approximate_share: float = 0.0
    skipped_share: float = 0.0
    spread: float = 0.2

    def busy_s(self) -> float:
        """Mean seconds of an executor per request."""
        full = 1.0 - self.exact_share - self.approximate_share
        approximate = self.approximate_share * (1.0 - self.skipped_share)
        return self.exact_share * self.exact_s + (full + approximate) * self.run_s

    def draw_kind(self, dice: random.Random) -> str:
        """How one request is served: `exact`, `approximate`, or run in full and `saved`."""
        drawn = dice.random()
        if drawn < self.exact_share:
            return "exact"
        return "approximate" if drawn < self.exact_share + self.approximate_share else "saved"

    def takes_s(self, kind: str, dice: random.Random) -> float:
        """Seconds of an executor for a request of a kind."""
        if kind == "exact":
            return self.exact_s
        run_s = self.run_s * dice.uniform(1.0 - self.spread, 1.0 + self.spread)
        return run_s * (1.0 - self.skipped_share) if kind == "approximate" else run_s

    def draw_s(self, dice: random.Random) -> float:
        """Seconds of an executor for one request."""
        return self.takes_s(self.draw_kind(dice), dice)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Executors and those who share the requests among them.

    Attributes:
        executors: Their number.
        slots: Runs that each makes at once.
        orchestrators: Each takes the executors in turn, beginning anywhere; 0: one queue for all,
            which no dispatch can beat.
    """

    executors: int
    slots: int = 1
    orchestrators: int = 2


def waits_s(load: Load, fleet: Fleet, requests: int, seed: int = 1) -> list[float]:
    """Seconds that requests wait for an executor, in order of their arrival.

    The first tenth, in which the queues fill, is left out.
    """
    dice = random.Random(seed)
    queues = 1 if fleet.orchestrators == 0 else fleet.executors
    slots = fleet.slots * fleet.executors // queues
    free = [[0.0] * slots for _ in range(queues)]
    orders = [turns(dice.random(), queues) for _ in range(max(1, fleet.orchestrators))]
    now, waits = 0.0, []
    for _ in range(requests):
        now += dice.expovariate(load.rate)
        queue = free[next(dice.choice(orders))]
        start = max(now, queue[0])
        heapq.heapreplace(queue, start + load.draw_s(dice))
        waits.append(start - now)
    return waits[requests // 10 :]


def executors_needed(
    load: Load, wait_s: float, *, slots: int = 1, orchestrators: int = 2, requests: int = 60_000
) -> int:
    """Fewest executors with which 95 % of the requests wait at most `wait_s` seconds."""
    least = max(1, math.ceil(load.rate * load.busy_s() / (slots * MOST_BUSY)))

    def is_enough(executors: int) -> bool:
        return p95_wait_s(load, Fleet(executors, slots, orchestrators), requests) <= wait_s

    low, high = least, least
    while not is_enough(high):
        low, high = high + 1, math.ceil(high * 1.25) + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return high


def p95_wait_s(load: Load, fleet: Fleet, requests: int = 60_000) -> float:
    """The wait that 95 % of the requests do not exceed, over several runs.

    Where orchestrators begin their turns relative to each other matters for long in a large fleet.
    """
    # Queues behind many executors take many requests to fill.
    each = max(requests // len(SEEDS), 40 * fleet.executors)
    waits = [wait for seed in SEEDS for wait in waits_s(load, fleet, each, seed)]
    return quantile(waits, 0.95)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def turns(begin: float, count: int) -> Iterator[int]:
    """The places that a client takes in turn.

    Args:
        begin: Where it begins, as a share of them, 0 to 1: so that fleets of other sizes meet with
            the same chance, and a larger one is not worse by bad luck.
        count: How many there are.
    """
    first = int(begin * count)
    return itertools.chain(range(first, count), itertools.cycle(range(count)))
