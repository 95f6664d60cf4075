"""The tables of docs/capacity.md, computed from the lines of `bench_entry_cost.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from capacity.costs import Costs, costs_of
from capacity.figures import Line

MILLIONS: Final = (1, 10, 100)

FAMILIES: Final = {
    "bundled model, 64 px, 4 channels, float32": 16_384,
    "512 px picture, 16 channels, bfloat16": 131_072,
    "1024 px picture, 16 channels, float32": 1_048_576,
    "2048 px picture, 16 channels, float32": 4_194_304,
    "Wan 720p, 81 frames, bfloat16, clean latent": 9_676_800,
    "the same, five depths": 48_384_000,
}
"""Bytes of latents per entry."""

FIVE: Final = "the same, five depths"

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
    """What was measured, line by line."""
    rows = ["| measured | entries | value | lowest to highest, n |", "|---|---|---|---|"]
    for line in lines:
        told = [line["service"]]
        told += [f"{line['snapshots']} snapshots per entry"] if "snapshots" in line else []
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
    names = {
        "startup_s": "start to the first right answer",
        "startup_cpu_s": "CPU of that start",
        "startup_fast_s": "start to searches of the graph",
        "rebuild_s": "start without a saved graph to the graph saved",
        "disk_over_latents": "bytes on the disk over bytes of latents",
    }
    unit = "" if line["figure"] == "disk_over_latents" else " s"
    return names[line["figure"]], f"{value:g}{unit}"


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


def entry_disk(costs: Costs, family: str) -> float:
    """Bytes on the disk of one entry of a family."""
    return FAMILIES[family] * costs.overhead + costs.kv_disk[5 if family == FIVE else 1]


def latents_table(costs: Costs) -> str:
    """What the latents need on disk, by millions of entries and family."""
    head = " | ".join(f"{million} million: disk | machines of 4 TB" for million in MILLIONS)
    rows = [f"| latents | bytes | {head} |", "|---|---|" + "---|" * (2 * len(MILLIONS))]
    for family, size_bytes in FAMILIES.items():
        cells = []
        for million in MILLIONS:
            needed = million * 1e6 * entry_disk(costs, family)
            cells += [_bytes(needed), f"{math.ceil(needed / DISK_BYTES):,}"]
        rows.append(f"| {family} | {size_bytes:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


def traffic_table() -> str:
    """What a hit or a save moves."""
    rows = [
        "| latents | a hit reads and a save writes | 100 a second | most a second on 10 Gbit/s |",
        "|---|---|---|---|",
    ]
    for family, size_bytes in FAMILIES.items():
        read = size_bytes // 5 if family == FIVE else size_bytes
        moved = f"{_bytes(read)}, {_bytes(size_bytes)}" if read < size_bytes else _bytes(read)
        line = f"{100 * read * 8 / 1e9:.2g} Gbit/s | {LINE_BYTES_S / read:,.0f}"
        rows.append(f"| {family} | {moved} | {line} |")
    return "\n".join(rows)


def limit_table(costs: Costs) -> str:
    """Entries at which one process has enough."""
    starts = (START_S - costs.kv_start[0]) / costs.kv_start[1]
    index_starts = (START_S - costs.index_start[0]) / costs.index_start[1]
    rows = ["| one process of | holds | reached at entries |", "|---|---|---|"]
    for family in FAMILIES:
        most = DISK_BYTES / entry_disk(costs, family)
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
