"""What an entry costs, out of the lines of `bench_entry_cost.py`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from capacity.figures import Line


@dataclasses.dataclass(frozen=True)
class Costs:
    """What was measured, per entry.

    Attributes:
        kv_memory: Bytes of latent_kv.
        kv_disk: Bytes on its disk beside latents, by snapshots per entry.
        index_memory: Bytes of vector_index.
        index_disk: Bytes of its log and graph.
        overheads: Bytes on the disk over bytes of latents, by bytes of a snapshot.
        kv_start: CPU seconds of a start: without entries, and per entry.
        index_start: The same of vector_index, to its first right answer.
        rebuild_s: CPU seconds to build the graph of `rebuild_entries` anew.
        rebuild_entries: See `rebuild_s`.
    """

    kv_memory: float
    kv_disk: dict[int, float]
    index_memory: float
    index_disk: float
    overheads: dict[int, float]
    kv_start: tuple[float, float]
    index_start: tuple[float, float]
    rebuild_s: float
    rebuild_entries: int

    def latents_on_disk(self, snapshot_bytes: int, snapshots: int) -> float:
        """Bytes on the disk of an entry's latents, as measured at the nearest size not above."""
        size = max(size for size in self.overheads if size <= snapshot_bytes)
        return snapshots * snapshot_bytes * self.overheads[size] + self.kv_disk[snapshots]

    def rebuild(self, entries: float) -> float:
        """CPU seconds to build a graph: HNSW inserts cost the logarithm of what is there."""
        measured = self.rebuild_entries * math.log(self.rebuild_entries)
        return self.rebuild_s * entries * math.log(entries) / measured


def costs_of(lines: Sequence[Line]) -> Costs:
    """The costs in a run's lines."""
    memory = [line for line in lines if line["figure"] == "entry_bytes"]
    rebuilds = [line for line in lines if line["figure"] == "rebuild_cpu_s"]
    largest = max(rebuilds, key=lambda line: int(line["entries"]))
    kv = [line for line in memory if line["service"] == "latent_kv"]
    index = {line["where"]: line["p50"] for line in memory if line["service"] == "vector_index"}
    return Costs(
        kv_memory=max(line["p50"] for line in kv if line["where"] == "memory"),
        kv_disk={line["snapshots"]: line["p50"] for line in kv if line["where"] == "disk"},
        index_memory=index["memory"],
        index_disk=index["log on disk"] + index["graph on disk"],
        overheads={
            x["latent_bytes"]: x["p50"] for x in lines if x["figure"] == "disk_over_latents"
        },
        kv_start=_line_through(lines, service="latent_kv", snapshots=1),
        index_start=_line_through(lines, service="vector_index"),
        rebuild_s=largest["p50"],
        rebuild_entries=largest["entries"],
    )


def _line_through(lines: Sequence[Line], **told: object) -> tuple[float, float]:
    """Start without entries, and per entry, through the two numbers measured."""
    found = [
        (int(line["entries"]), float(line["p50"]))
        for line in lines
        if line["figure"] == "startup_cpu_s" and all(line.get(key) == told[key] for key in told)
    ]
    (few, short), (many, long) = sorted(found)
    slope = (long - short) / (many - few)
    return short - slope * few, slope
