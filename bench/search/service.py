"""vector_index as a process that can be filled, asked, killed and started again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from search.vectors import Matrix
from server_process import ServerProcess, python, wait_until
from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.index_entries import IndexEntry, PackedHit, SearchHit, Vector, VectorEntry
from skipstone_shared.index_entry_messages import pack_entry, packed_hits_to_message
from skipstone_shared.latents import DType, LatentRef, TensorSpec

KEY = "c0ffee00" * 4
PATIENCE_S = 3600.0
_BATCH = 500
_STEPS = (5, 10, 15, 20, 50)
_PROMPT = "a red fox in the snow at dawn, photograph, soft light, shallow depth of field"


class IndexProcess:
    """One vector_index over one directory."""

    def __init__(self, directory: Path, flags: Sequence[str] = ()) -> None:
        """Starts it with flags; what it writes goes to a log beside its data."""
        self._directory = directory
        self._flags = flags
        self._start()

    def _start(self) -> None:
        self.started = time.perf_counter()
        flags = ["--port", "0", "--data-dir", str(self._directory / "data"), "--log-format", "json"]
        command = python("-m", "skipstone_vector_index", *flags, *self._flags)
        self._process = ServerProcess(command, self._directory / "log")
        self._client = VectorIndexClient(self._process.address())

    def fill(self, vectors: Matrix) -> None:
        """Stores vectors under ids that are their row numbers, with the payload of an entry."""
        for start in range(0, len(vectors), _BATCH):
            rows = range(start, min(start + _BATCH, len(vectors)))
            entries = [VectorEntry(_entry(row), vectors[row]) for row in rows]
            refused = self._client.upsert_entries("", KEY, entries, timeout_s=PATIENCE_S)
            if any(refused):
                raise SystemExit(f"an entry was refused: {refused}")

    def wait_for_graph(self) -> None:
        """Waits until the graph of what was filled is built and saved."""
        graphs = self._directory / "data" / "graphs"
        wait_until(lambda: any(graphs.glob("*.graph")), "the graph is saved")

    def search(self, query: Vector, top_k: int) -> list[SearchHit]:
        """One search through the service."""
        (hits,) = self._client.search_entries("", KEY, [query], top_k, timeout_s=PATIENCE_S)
        return hits

    @property
    def pid(self) -> int:
        """Process id of the service."""
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU seconds of the service so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def kill_and_restart(self) -> None:
        """Kills it as a crash would, and starts it again; returns once it serves."""
        self.kill()
        self._start()

    def kill(self) -> None:
        """Kills it."""
        self._client.close()
        self._process.end(kill=True)


def rows_of(hits: list[SearchHit]) -> list[int]:
    """The row numbers of hits."""
    return [int(hit.entry.entry_id) for hit in hits]


def answer_bytes(hits: list[SearchHit]) -> int:
    """Bytes of the answer that has these hits."""
    packed = [PackedHit(pack_entry(hit.entry), hit.similarity) for hit in hits]
    return packed_hits_to_message(packed).ByteSize()


def _entry(row: int) -> IndexEntry:
    spec = TensorSpec(DType.BFLOAT16, (1, 16, 64, 64))
    refs = [
        LatentRef(
            "default",
            str(row),
            step,
            spec=spec,
            xxh3_64=row,
            size_bytes=spec.size_bytes,
            sigma=1 - step / 50,
            compatibility_key=KEY,
        )
        for step in _STEPS
    ]
    return IndexEntry(str(row), _PROMPT, row, tuple(refs), embedding_model_id="minilm")
