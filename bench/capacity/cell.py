"""A whole cell, request by request: what arrives at each process, waits for it and leaves it.

A discrete-event simulation. Requests come at random (Poisson) to any of the orchestrators. Each
visits the services in the order of the product, once each with all the CPU that a request of its
kind was measured to take there, and an executor: before it the store is read where something is
found, after it what was run is stored. Every process serves one request after the other; of several
processes an orchestrator takes one after the other, as clients do. Times of services are
exponential around the measured mean, which makes waits longer than those of steady ones.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from capacity.fleet import Load, quantile, turns

EXECUTOR: Final = "executor"
PLANE: Final = ("orchestrator", "embedding", "vector_index", "latent_kv")
_FRONT: Final = ("orchestrator", "embedding", "vector_index")
PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "saved": (*_FRONT, EXECUTOR, "latent_kv"),
    "exact": (*_FRONT, "latent_kv", EXECUTOR),
    "approximate": (*_FRONT, "latent_kv", EXECUTOR),
}

CpuMs = Mapping[tuple[str, str], float]
"""CPU milliseconds of a request, by service and kind."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out, the first fifth of the requests left out.

    Attributes:
        busy: Share of its time that a process of each kind works.
        wait_s: 95th percentile of the wait for one, by kind.
        plane_s: 95th percentile of what a request spends before an executor has it in its queue.
    """

    busy: Mapping[str, float]
    wait_s: Mapping[str, float]
    plane_s: float


class _Station:
    """Processes of one kind, each with a queue of its own."""

    def __init__(self, count: int, orchestrators: int, dice: random.Random) -> None:
        self._free = [0.0] * count
        self._turns = [turns(dice.random(), count) for _ in range(orchestrators)]
        self.worked_s = 0.0
        self.waits: list[float] = []

    def next_for(self, orchestrator: int) -> int:
        """The process whose turn it is with an orchestrator."""
        return next(self._turns[orchestrator])

    def serve(self, process: int, now: float, takes_s: float) -> float:
        """Lets a process serve a request after those that it has; returns when it is done."""
        start = max(now, self._free[process])
        self._free[process] = start + takes_s
        self.worked_s += takes_s
        self.waits.append(start - now)
        return start + takes_s

    def forget(self) -> None:
        """Counts from now on only."""
        self.worked_s, self.waits = 0.0, []


@dataclass(order=True, slots=True)
class _Visit:
    """A request that comes to a place on its path."""

    due: float
    number: int
    kind: str
    front: int
    place: int
    came: float


@dataclass(frozen=True, slots=True)
class Cell:
    """Processes by kind, those of `PLANE` and executors."""

    processes: Mapping[str, int]

    def simulate(self, load: Load, cpu_ms: CpuMs, requests: int, seed: int = 1) -> Outcome:
        """Lets requests come.

        Args:
            load: Their rate, their kinds, and what each takes of an executor.
            cpu_ms: What each takes of the services.
            requests: How many.
            seed: Of chance.
        """
        dice = random.Random(seed)
        fronts = self.processes["orchestrator"]
        stations = {name: _Station(n, fronts, dice) for name, n in self.processes.items()}
        skipped = requests // 5
        delays: list[float] = []
        arrivals = _arrivals(load, fronts, requests, dice)
        due = [next(arrivals)]
        began = ended = 0.0
        while due:
            visit = heapq.heappop(due)
            name = PATHS[visit.kind][visit.place]
            if visit.place == 0:
                ended = visit.due
                if visit.number == skipped:
                    began = visit.due
                    for station in stations.values():
                        station.forget()
                for arrival in itertools.islice(arrivals, 1):
                    heapq.heappush(due, arrival)
            if name == EXECUTOR:
                takes_s = load.takes_s(visit.kind, dice)
                if visit.number >= skipped:
                    delays.append(visit.due - visit.came)
            else:
                takes_s = dice.expovariate(1.0) * cpu_ms[name, visit.kind] / 1000.0
            station = stations[name]
            process = visit.front if visit.place == 0 else station.next_for(visit.front)
            visit.due, visit.place = station.serve(process, visit.due, takes_s), visit.place + 1
            if visit.place < len(PATHS[visit.kind]):
                heapq.heappush(due, visit)
        return Outcome(
            {
                name: station.worked_s / (self.processes[name] * (ended - began))
                for name, station in stations.items()
            },
            {name: quantile(station.waits, 0.95) for name, station in stations.items()},
            quantile(delays, 0.95),
        )


def _arrivals(load: Load, fronts: int, requests: int, dice: random.Random) -> Iterator[_Visit]:
    now = 0.0
    for number in range(requests):
        now += dice.expovariate(load.rate)
        yield _Visit(now, number, load.draw_kind(dice), dice.randrange(fronts), 0, now)
