"""How many of what serve a rate of requests of a model, by costs and simulation."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from capacity.cell import EXECUTOR, PLANE, Cell, CpuMs, Outcome
from capacity.figures import Line
from capacity.fleet import SEEDS, Load, executors_needed
from capacity.models import Model
from capacity.traffic import NO_CACHE, Traffic

USED: Final = 0.6
"""Share of a core that is planned for: a service that is busier makes others wait."""

ORCHESTRATORS: Final = 2
"""Of a cell, so that one may fail; more waste executors, since each takes them in its own turn."""

FEWEST_EMBEDDING: Final = 2
"""Of a cell, so that one may fail."""

MOST_EXECUTORS: Final = 2000
"""That the requests of a cell keep busy: the largest fleet that is simulated here."""

SINGLE: Final = ("vector_index", "latent_kv")
"""What a cell has one process of: those with engines of their own share nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Cells for a rate, all alike.

    Attributes:
        model: What they run.
        traffic: What requests find.
        cells: How many.
        rate: Requests per second of one.
        cell: The processes of one.
    """

    model: Model
    traffic: Traffic
    cells: int
    rate: float
    cell: Cell

    @property
    def executors(self) -> int:
        """In all cells."""
        return self.cells * self.cell.processes[EXECUTOR]

    @property
    def load(self) -> Load:
        """What comes to one cell."""
        return self.traffic.load(self.model, self.rate)

    def simulate(self, cpu_ms: CpuMs) -> Outcome:
        """Lets requests come to one cell, several times; what came out on average."""
        requests = max(20_000, 40 * self.cell.processes[EXECUTOR])
        found = [self.cell.simulate(self.load, cpu_ms, requests, seed) for seed in SEEDS]
        names = self.cell.processes
        return Outcome(
            {name: fmean(outcome.busy[name] for outcome in found) for name in names},
            {name: fmean(outcome.wait_s[name] for outcome in found) for name in names},
            fmean(outcome.plane_s for outcome in found),
        )

    def expected_busy(self, cpu_ms: CpuMs) -> dict[str, float]:
        """What arithmetic says of how busy the processes of a cell are."""
        mean_ms = mean_cpu_ms(self.traffic, cpu_ms)
        busy = {
            name: self.rate * mean_ms[name] / 1000.0 / self.cell.processes[name] for name in PLANE
        }
        load = self.load
        busy[EXECUTOR] = load.rate * load.busy_s() / self.cell.processes[EXECUTOR]
        return busy


def plan_for(model: Model, traffic: Traffic, rate: float, cpu_ms: CpuMs) -> Plan:
    """The fewest cells that can have a rate of requests, and what each needs."""
    mean_ms = mean_cpu_ms(traffic, cpu_ms)
    bounds = [1000.0 * USED / mean_ms[name] for name in SINGLE if traffic is not NO_CACHE]
    bounds.append(1000.0 * USED * ORCHESTRATORS / mean_ms["orchestrator"])
    bounds.append(MOST_EXECUTORS / traffic.load(model, 1.0).busy_s())
    cells = math.ceil(rate / min(bounds))
    each = rate / cells
    processes = {"orchestrator": ORCHESTRATORS, **dict.fromkeys(SINGLE, 1)}
    needed = math.ceil(each * mean_ms["embedding"] / (1000.0 * USED))
    processes["embedding"] = max(FEWEST_EMBEDDING, needed)
    processes[EXECUTOR] = _executors(traffic.load(model, each), model.run_s)
    return Plan(model, traffic, cells, each, Cell(processes))


def mean_cpu_ms(traffic: Traffic, cpu_ms: CpuMs) -> dict[str, float]:
    """CPU milliseconds of each service per request."""
    shares: Mapping[str, float] = {"off": 1.0} if traffic is NO_CACHE else traffic.shares()
    return {
        name: sum(share * cpu_ms[name, kind] for kind, share in shares.items()) for name in PLANE
    }


def measured_cpu_ms(lines: Sequence[Line], mb: float) -> CpuMs:
    """What was measured with latents of the nearest size."""
    nearest = min({line["mb"] for line in lines}, key=lambda size: abs(size - mb))
    return {(line["service"], line["kind"]): line["p50"] for line in lines if line["mb"] == nearest}


@functools.cache
def _executors(load: Load, wait_s: float) -> int:
    return executors_needed(load, wait_s, orchestrators=ORCHESTRATORS)
