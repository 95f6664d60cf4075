"""What an entry of latent_kv takes."""

from __future__ import annotations

import hashlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cacheplane.entries import KEY, USUAL_MB, latents
from capacity.figures import Figures
from capacity.measured_service import MeasuredService, disk_bytes
from skipstone_client import LatentKVClient
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.latents import LATENTS_PART, LatentRef, SnapshotMetadata, checksum
from skipstone_shared.tensor_messages import array_bytes, parts_of

STEPS: Final = {1: (50,), 5: (5, 10, 15, 20, 25)}
"""Steps that an entry has snapshots of, by their number: a clean latent, or five depths."""

_RUN_STEPS = 50
_WRITERS = 16
_SIZED_MB = 400.0
"""Snapshots of a size are written until this much lies on the disk."""


def measure_store(figures: Figures, counts: tuple[int, int], starts: int) -> None:
    """Memory, disk and start per entry, between two numbers of entries with tiny snapshots."""
    for snapshots, steps in STEPS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            memory, disk, filled = [], [], 0
            for count in counts:
                refs = _fill(folder / "latent_kv", range(filled, count), steps, None)
                filled = count
                disk.append(disk_bytes(folder / "latent_kv"))
                memory.append(_measure_starts(figures, folder, refs, count, snapshots, starts))
            apart = counts[1] - counts[0]
            latent_bytes = len(steps) * latents(0, None).nbytes
            told = {"service": "latent_kv", "snapshots": snapshots, "entries": list(counts)}
            figures.add("entry_bytes", [(memory[1] - memory[0]) / apart], where="memory", **told)
            on_disk = (disk[1] - disk[0]) / apart - latent_bytes
            figures.add("entry_bytes", [on_disk], where="disk", latent_bytes=latent_bytes, **told)


def measure_sizes(figures: Figures) -> None:
    """Bytes on the disk over bytes of latents, for snapshots of real sizes."""
    for mb in USUAL_MB:
        size_bytes = latents(0, mb).nbytes
        count = max(8, round(_SIZED_MB * 1e6 / size_bytes))
        with tempfile.TemporaryDirectory() as name:
            _fill(Path(name) / "latent_kv", range(count), (_RUN_STEPS,), mb)
            taken = disk_bytes(Path(name))
        figures.add(
            "disk_over_latents",
            [taken / (count * size_bytes)],
            service="latent_kv",
            latent_bytes=size_bytes,
            entries=count,
        )


def _fill(folder: Path, rows: range, steps: tuple[int, ...], mb: float | None) -> list[LatentRef]:
    """Writes entries with the store itself: a service would only add calls and fsyncs."""
    store = LmdbStore(folder, durability="none")

    def write(row: int) -> LatentRef:
        refs = [_write(store, row, step, mb) for step in steps]
        store.commit_entry("", _entry_id(row))
        return refs[-1]

    try:
        with ThreadPoolExecutor(_WRITERS) as writers:
            return list(writers.map(write, rows))
    finally:
        store.close()


def _write(store: LmdbStore, row: int, step: int, mb: float | None) -> LatentRef:
    array = latents(row, mb)
    data = array_bytes(array)
    parts = parts_of({LATENTS_PART: array})
    metadata = SnapshotMetadata(_entry_id(row), step, _RUN_STEPS, 1 - step / _RUN_STEPS, KEY, parts)
    return store.write_latent("", metadata, [data], size_bytes=len(data), xxh3_64=checksum(data))


def _entry_id(row: int) -> str:
    """As long as the orchestrator's."""
    return hashlib.sha256(str(row).encode()).hexdigest()[:32]


def _measure_starts(
    figures: Figures, folder: Path, refs: list[LatentRef], count: int, snapshots: int, starts: int
) -> int:
    """Starts the service anew, each time killed; returns its memory after the last start."""
    seconds, cpu_seconds = [], []
    for number in range(starts):
        service = MeasuredService("latent_kv", folder, "--quota-bytes", "0")
        try:
            with LatentKVClient(service.address) as client:
                client.read_latent("", refs[number])
                seconds.append(time.perf_counter() - service.started)
                cpu_seconds.append(service.cpu_s())
                if client.get_stats().entry_count != count:
                    raise SystemExit("entries are missing after a start")
            memory = service.memory_bytes()
        finally:
            service.kill()
    told = {"service": "latent_kv", "entries": count, "snapshots": snapshots}
    figures.add("startup_s", seconds, **told)
    figures.add("startup_cpu_s", cpu_seconds, **told)
    return memory
