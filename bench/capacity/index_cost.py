"""What an entry of vector_index takes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cacheplane.entries import DIMENSION, KEY, MODEL
from capacity.figures import Figures
from capacity.measured_service import MeasuredService, disk_bytes
from replay.request_log import read_prompts
from search.vectors import Matrix, clustered
from server_process import PATIENCE_S, wait_until
from skipstone_client import VectorIndexClient
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import DType, LatentRef, TensorSpec

_BATCH = 500
_TOPIC_SIZE = 100
_SPEC: Final = TensorSpec(DType.BFLOAT16, (1, 16, 128, 256))
_FAST_S = 0.010
"""Above a search of a graph (1 to 3 ms), below an exact one of 100,000 vectors."""


def measure_index(figures: Figures, counts: tuple[int, int], starts: int) -> None:
    """Memory, disk and start per entry between two numbers of entries, with prompts of the log."""
    vectors = clustered(counts[1], DIMENSION, counts[1] // _TOPIC_SIZE, 0)
    sizes: dict[str, list[int]] = {"memory": [], "log on disk": [], "graph on disk": []}
    with tempfile.TemporaryDirectory() as name:
        folder, filled = Path(name), 0
        for count in counts:
            _fill(folder, vectors, range(filled, count))
            _measure_rebuild(figures, folder, count)
            filled = count
            sizes["memory"].append(_measure_starts(figures, folder, vectors[:count], starts))
            graphs = disk_bytes(folder / "vector_index" / "graphs")
            sizes["graph on disk"].append(graphs)
            sizes["log on disk"].append(disk_bytes(folder / "vector_index") - graphs)
    for where, (first, last) in sizes.items():
        per_entry = (last - first) / (counts[1] - counts[0])
        figures.add(
            "entry_bytes", [per_entry], service="vector_index", where=where, entries=list(counts)
        )


def _fill(folder: Path, vectors: Matrix, rows: Sequence[int]) -> None:
    """Adds entries to the log, without a graph."""
    service = MeasuredService("vector_index", folder, "--exact-search-limit", str(10**9))
    prompts = read_prompts()
    try:
        with VectorIndexClient(service.address, timeout_s=PATIENCE_S) as client:
            for first in range(0, len(rows), _BATCH):
                batch = rows[first : first + _BATCH]
                entries = [VectorEntry(_entry(row, prompts), vectors[row]) for row in batch]
                if any(client.upsert_entries("", KEY, entries)):
                    raise SystemExit("an entry was refused")
    finally:
        service.kill()


def _measure_rebuild(figures: Figures, folder: Path, count: int) -> None:
    """From a start without a saved graph to the graph built and saved."""
    graphs = folder / "vector_index" / "graphs"
    shutil.rmtree(graphs, ignore_errors=True)
    service = MeasuredService("vector_index", folder)
    try:
        wait_until(lambda: any(graphs.glob("*.graph")), "the graph is saved")
        seconds, cpu_seconds = time.perf_counter() - service.started, service.cpu_s()
    finally:
        service.kill()
    figures.add("rebuild_s", [seconds], service="vector_index", entries=count)
    figures.add("rebuild_cpu_s", [cpu_seconds], service="vector_index", entries=count)


def _measure_starts(figures: Figures, folder: Path, vectors: Matrix, starts: int) -> int:
    """Starts the service anew, each time killed; returns its memory once it searches the graph."""
    right, cpu_seconds, fast = [], [], []
    for number in range(starts):
        service = MeasuredService("vector_index", folder)
        try:
            with VectorIndexClient(service.address, timeout_s=PATIENCE_S) as client:
                _search(client, vectors, number)
                right.append(time.perf_counter() - service.started)
                cpu_seconds.append(service.cpu_s())
                while _search(client, vectors, number) > _FAST_S:
                    pass
                fast.append(time.perf_counter() - service.started)
            memory = service.memory_bytes()
        finally:
            service.kill()
    told = {"service": "vector_index", "entries": len(vectors)}
    figures.add("startup_s", right, **told)
    figures.add("startup_cpu_s", cpu_seconds, **told)
    figures.add("startup_fast_s", fast, **told)
    return memory


def _search(client: VectorIndexClient, vectors: Matrix, row: int) -> float:
    """Searches for an entry by its own vector; returns the seconds."""
    start = time.perf_counter()
    ((hit,),) = client.search_entries("", KEY, [vectors[row]], 1, embedding_model_id=MODEL)
    if hit.entry.entry_id != str(row):
        raise SystemExit(f"a wrong answer after a start: {hit.entry.entry_id} for {row}")
    return time.perf_counter() - start


def _entry(row: int, prompts: Sequence[str]) -> IndexEntry:
    """As a full run leaves it: its prompt and the reference of its clean latent."""
    ref = LatentRef(
        "default",
        str(row),
        50,
        spec=_SPEC,
        xxh3_64=row,
        size_bytes=_SPEC.size_bytes,
        compatibility_key=KEY,
    )
    prompt = prompts[row % len(prompts)]
    return IndexEntry(str(row), prompt, row, (ref,), embedding_model_id=MODEL)
