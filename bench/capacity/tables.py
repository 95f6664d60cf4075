"""The tables of docs/capacity.md, computed from the lines of `bench_entry_cost.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from capacity.costs import Costs, costs_of
from capacity.figures import Line

MILLIONS: Final = (1, 10, 100)

FAMILIES: Final = {
    "512 px picture, 16 channels, bfloat16": (131_072, 1),
    "1024 px picture, 16 channels, float32": (1_048_576, 1),
    "2048 px picture, 16 channels, float32": (4_194_304, 1),
    "Wan 720p, 81 frames, bfloat16": (9_676_800, 1),
    "the same, five depths": (9_676_800, 5),
}
"""Bytes of a snapshot, and snapshots per entry: one clean latent unless it says otherwise."""

_NAMES: Final = {
    "startup_cpu_s": "CPU from a start to the first right answer",
    "rebuild_cpu_s": "CPU from a start without a saved graph to the graph saved",
    "disk_over_latents": "bytes on the disk over bytes of latents",
}

DISK_BYTES: Final = 4e12
MEMORY_BYTES: Final = 64e9
START_S: Final = 60.0
REBUILD_S: Final = 3600.0
LINE_BYTES_S: Final = 10e9 / 8
"""What one machine of the page has: disk, memory, patience and a line of 10 Gbit/s."""


def capacity_parts(lines: Sequence[Line]) -> dict[str, str]:
    """The parts of the page by the names of their markers."""
    costs = costs_of(lines)
    return {
        "entry cost": cost_table(lines),
        "index": index_table(costs),
        "latents": latents_table(costs),
        "traffic": traffic_table(),
        "limits": limit_table(costs),
    }


def cost_table(lines: Sequence[Line]) -> str:
    """What was measured, line by line; not wall times, to which other work on the machine adds."""
    rows = ["| measured | entries | value | lowest to highest, n |", "|---|---|---|---|"]
    for line in lines:
        if line["figure"] not in _NAMES and line["figure"] != "entry_bytes":
            continue
        told = [line["service"]]
        told += [f"snapshots per entry {line['snapshots']}"] if "snapshots" in line else []
        told += [f"{line['latent_bytes']:,} bytes of latents"] if "latent_bytes" in line else []
        name, value = _told(line)
        count = line["entries"]
        entries = " to ".join(f"{n:,}" for n in (count if isinstance(count, list) else [count]))
        spread = f"{line['min']:g} to {line['max']:g}, {line['n']}" if "min" in line else "1"
        rows.append(f"| {name}: {', '.join(told)} | {entries} | {value} | {spread} |")
    return "\n".join(rows)


def _told(line: Line) -> tuple[str, str]:
    """Name and value of a line, with its unit."""
    value = line["p50"]
    if line["figure"] == "entry_bytes":
        return f"per entry, {line['where']}", f"{value:,.0f} bytes"
    unit = "" if line["figure"] == "disk_over_latents" else " s"
    return _NAMES[line["figure"]], f"{value:g}{unit}"


def index_table(costs: Costs) -> str:
    """What the index and the tables of latent_kv need, by millions of entries."""
    rows = [
        "| entries | vector_index: memory | disk | start | rebuild of the graph "
        "| machines of 64 GB | latent_kv: memory | start |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for million in MILLIONS:
        n = million * 1e6
        machines = math.ceil(n * costs.index_memory / MEMORY_BYTES)
        cells = [
            _bytes(n * costs.index_memory),
            _bytes(n * costs.index_disk),
            _time(costs.index_start[0] + n * costs.index_start[1]),
            _time(costs.rebuild(n)),
            str(machines),
            _bytes(n * costs.kv_memory),
            _time(costs.kv_start[0] + n * costs.kv_start[1]),
        ]
        rows.append(f"| {million} million | {' | '.join(cells)} |")
    return "\n".join(rows)


def latents_table(costs: Costs) -> str:
    """What the latents need on disk, by millions of entries and family."""
    head = " | ".join(f"{million} million: disk | machines of 4 TB" for million in MILLIONS)
    rows = [f"| latents | bytes | {head} |", "|---|---|" + "---|" * (2 * len(MILLIONS))]
    for family, (size_bytes, snapshots) in FAMILIES.items():
        cells = []
        for million in MILLIONS:
            needed = million * 1e6 * costs.latents_on_disk(size_bytes, snapshots)
            cells += [_bytes(needed), f"{math.ceil(needed / DISK_BYTES):,}"]
        rows.append(f"| {family} | {snapshots * size_bytes:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


def traffic_table() -> str:
    """What a hit or a save moves."""
    rows = [
        "| latents | a hit reads, a save writes | 100 hits a second | most hits a second |",
        "|---|---|---|---|",
    ]
    for family, (size_bytes, snapshots) in FAMILIES.items():
        moved = _bytes(size_bytes)
        if snapshots > 1:
            moved += f", {_bytes(snapshots * size_bytes)}"
        rate, most = 100 * size_bytes * 8 / 1e9, LINE_BYTES_S / size_bytes
        rows.append(f"| {family} | {moved} | {rate:.2g} Gbit/s | {_count(most)} |")
    return "\n".join(rows)


def limit_table(costs: Costs) -> str:
    """Entries at which one process has enough."""
    starts = (START_S - costs.kv_start[0]) / costs.kv_start[1]
    index_starts = (START_S - costs.index_start[0]) / costs.index_start[1]
    rows = ["| one process of | holds | reached at entries |", "|---|---|---|"]
    for family, shape in FAMILIES.items():
        most = DISK_BYTES / costs.latents_on_disk(*shape)
        rows.append(f"| latent_kv, {family} | 4 TB on the disk | {_count(most)} |")
    rows += [
        f"| latent_kv | a start of 60 s | {_count(starts)} |",
        f"| latent_kv | 64 GB of memory | {_count(MEMORY_BYTES / costs.kv_memory)} |",
        f"| vector_index | a start of 60 s | {_count(index_starts)} |",
        f"| vector_index | 64 GB of memory | {_count(MEMORY_BYTES / costs.index_memory)} |",
        f"| vector_index | a rebuild of an hour | {_count(_most_rebuilt(costs))} |",
    ]
    return "\n".join(rows)


def _most_rebuilt(costs: Costs) -> float:
    """Entries whose graph is built in an hour, by bisection."""
    low, high = 1e3, 1e10
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if costs.rebuild(middle) < REBUILD_S else (low, middle)
    return low


def _count(value: float) -> str:
    """A number to two digits."""
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.0f}"


def _bytes(value: float) -> str:
    """Bytes to two digits, in powers of 1,000."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{float(f'{value / size:.2g}'):g} {unit}"
    return f"{value:.0f} bytes"


def _time(seconds: float) -> str:
    """Seconds to two digits, in a unit that reads well."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"
