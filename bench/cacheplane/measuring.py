"""The figures of the cache plane over one number of entries."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hnswlib

from cacheplane.cpu import Cost
from cacheplane.entries import MEASURED_STEP, STEPS, Sizes, latents
from cacheplane.figures import print_figure
from cacheplane.limits import Copy, Echo, RawLmdb, run_all, search_graph
from cacheplane.rivals import Rival
from cacheplane.services import TOP_K, CachePlane
from cacheplane.turns import Subject, in_turns
from search.vectors import Matrix, nearest_exactly
from skipstone_shared.index_entries import Vector
from skipstone_shared.latents import LatentRef
from skipstone_shared.tensor_messages import Array

_FIRST_SAVED = 10_000_000
"""Row of the first entry that a measurement saves and removes."""
_OURS, _LMDB, _ECHO, _COPY = "skipstone", "LMDB", "gRPC stream", "memcpy"


@dataclass(frozen=True)
class Bench:
    """What is measured, and beside what.

    Attributes:
        sizes: What is stored.
        vectors: Those of the entries.
        queries: Vectors around the same topics that are no entries.
        plane: The services.
        echo: A bare stream.
        raw: A bare LMDB.
        rivals: What people use.
    """

    sizes: Sizes
    vectors: Matrix
    queries: Matrix
    plane: CachePlane
    echo: Echo
    raw: RawLmdb
    rivals: Sequence[Rival]

    def measure_reads(self, mb: float, rounds: int) -> None:
        """Hits, misses and reads of one size."""
        rows = self.sizes.rows(mb)
        self.plane.check(rows[0], mb, self.vectors)
        refs = [self._reference(row) for row in rows]
        self.raw.put({str(row): latents(row, mb) for row in rows})
        copy = Copy(latents(0, mb))
        size_bytes = refs[0].size_bytes

        def query(number: int) -> Vector:
            found: Vector = self.vectors[rows[number % len(rows)]]
            return found

        def other(number: int) -> Vector:
            found: Vector = self.queries[number % len(self.queries)]
            return found

        pids = list(self.plane.pids.values())
        subjects = [
            Subject("hit", lambda n: self.plane.hit(query(n)), pids),
            Subject("miss", lambda n: self.plane.miss(other(n)), pids),
            Subject("read", lambda n: self.plane.read(refs[n % len(rows)]), pids),
            Subject(_LMDB, lambda n: self.raw.get(str(rows[n % len(rows)]))),
            Subject(_ECHO, lambda n: self.echo.read(size_bytes), self.echo.pids),
            Subject(_COPY, lambda n: copy.run()),
        ]
        for rival in self.rivals:
            hit = functools.partial(_hit, rival, query)
            subjects.append(Subject(rival.name, hit, rival.pids))
        costs = in_turns(subjects, rounds)
        for what in ("hit", "miss", "read"):
            self._print(what, mb, costs[what])
        for limit in (_LMDB, _ECHO, _COPY):
            self._print("read", mb, costs[limit], limit=limit)
        for rival in self.rivals:
            self._print("hit", mb, costs[rival.name], rival=rival.name)
        self._print_ratios(mb, costs["read"], costs[_ECHO])

    def measure_saves(self, mb: float, rounds: int) -> None:
        """Saves of five steps of one size."""
        arrays = [latents(step, mb) for step in STEPS]
        values = {str(step): array for step, array in zip(STEPS, arrays, strict=True)}
        copies = [Copy(array) for array in arrays]

        def row(number: int) -> int:
            return _FIRST_SAVED + number

        def vector(number: int) -> Vector:
            found: Vector = self.queries[number % len(self.queries)]
            return found

        subjects = [
            Subject(
                _OURS,
                lambda n: self.plane.save(row(n), arrays, vector(n)),
                list(self.plane.pids.values()),
                lambda n: self.plane.delete(row(n)),
            ),
            Subject(_LMDB, lambda n: self.raw.put(values)),
            Subject(_COPY, lambda n: run_all(copies)),
        ]
        for rival in self.rivals:
            save = functools.partial(_save, rival, arrays, vector)
            forget = functools.partial(_forget, rival)
            subjects.append(Subject(rival.name, save, rival.pids, forget))
        costs = in_turns(subjects, rounds)
        self._print("save", mb, costs[_OURS])
        for limit in (_LMDB, _COPY):
            self._print("save", mb, costs[limit], limit=limit)
        for rival in self.rivals:
            self._print("save", mb, costs[rival.name], rival=rival.name)

    def measure_searches(self, graph: hnswlib.Index) -> None:
        """Searches beside raw hnswlib, and what both find of what is closest."""
        own_rows: list[list[int]] = []
        raw_rows: list[list[int]] = []

        def search(number: int) -> None:
            hits = self.plane.search(self.queries[number])
            if number >= 0:  # else it warms up
                own_rows.append([hit.entry.seed for hit in hits])

        def search_raw(number: int) -> None:
            rows = search_graph(graph, self.queries[number])
            if number >= 0:
                raw_rows.append(rows)

        costs = in_turns(
            [Subject("ours", search), Subject("raw", search_raw)], rounds=len(self.queries)
        )
        ours, raw = ([cost.wall_ms for cost in costs[name]] for name in ("ours", "raw"))
        exact = nearest_exactly(self.vectors, self.queries, TOP_K).tolist()
        count = self.sizes.entries
        print_figure("search_wall_ms", count, 0, ours)
        print_figure("search_wall_ms", count, 0, raw, limit="hnswlib")
        differences = [a - b for a, b in zip(ours, raw, strict=True)]
        print_figure("search_overhead_ms", count, 0, differences)
        print_figure("recall_at_10", count, 0, _recalls(own_rows, exact))
        print_figure("recall_at_10", count, 0, _recalls(raw_rows, exact), limit="hnswlib")

    def _reference(self, row: int) -> LatentRef:
        snapshots = self.plane.search(self.vectors[row])[0].entry.snapshots
        return next(s for s in snapshots if s.step_index == MEASURED_STEP)

    def _print(self, what: str, mb: float, costs: Sequence[Cost], **more: object) -> None:
        count = self.sizes.entries
        print_figure(f"{what}_cpu_ms", count, mb, [cost.cpu_ms for cost in costs], **more)
        print_figure(f"{what}_wall_ms", count, mb, [cost.wall_ms for cost in costs], **more)

    def _print_ratios(self, mb: float, reads: Sequence[Cost], echoes: Sequence[Cost]) -> None:
        pairs = list(zip(reads, echoes, strict=True))
        count = self.sizes.entries
        wall = [read.wall_ms / echo.wall_ms for read, echo in pairs]
        print_figure("read_ratio_to_echo", count, mb, wall)
        cpu = [read.cpu_ms / echo.cpu_ms for read, echo in pairs]
        print_figure("read_cpu_ratio_to_echo", count, mb, cpu)


def measure_starts(directory: Path, sizes: Sizes, vectors: Matrix, starts: int) -> None:
    """From the start of killed services, both at once, to their first right hit."""
    mb = sizes.mbs[0]
    seconds = []
    for number in range(starts + 1):
        plane = CachePlane(directory)
        try:
            plane.check(sizes.rows(mb)[number], mb, vectors)
            seconds.append(time.perf_counter() - plane.started)
        finally:
            plane.close(kill=True)
    # The first began with what an orderly end had left.
    print_figure("startup_s", sizes.entries, 0, seconds[1:])


def _save(
    rival: Rival, arrays: Sequence[Array], vector: Callable[[int], Vector], number: int
) -> None:
    rival.save(_FIRST_SAVED + number, arrays, vector(number))


def _forget(rival: Rival, number: int) -> None:
    rival.delete(_FIRST_SAVED + number)


def _hit(rival: Rival, query: Callable[[int], Vector], number: int) -> None:
    rival.hit(query(number))


def _recalls(found: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> list[float]:
    pairs = zip(found, exact, strict=True)
    return [len(set(mine) & set(true)) / TOP_K for mine, true in pairs]
