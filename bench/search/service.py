"""vector_index as a process that can be filled, asked, killed and started again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from search.vectors import Matrix
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
        self._log = (self._directory / "log").open("w+", encoding="utf-8")
        flags = ["--port", "0", "--data-dir", str(self._directory / "data"), "--log-format", "json"]
        flags += self._flags
        self._process = subprocess.Popen(
            [sys.executable, "-m", "skipstone_vector_index", *flags], stderr=self._log
        )
        wait_until(lambda: bool(self._serving()), "the service serves")
        self._client = VectorIndexClient(json.loads(self._serving())["address"])

    def _serving(self) -> str:
        text = (self._directory / "log").read_text(encoding="utf-8")
        if self._process.poll() is not None:
            raise SystemExit(f"the service did not start: {text}")
        lines = text.splitlines(keepends=True)
        return next((x for x in lines if '"serving"' in x and x.endswith("\n")), "")

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
        self._process.kill()
        self._process.wait()
        self._log.close()


def wait_until(reached: Callable[[], bool], what: str) -> None:
    """Waits for a state, looking often enough not to add to what is measured."""
    end = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > end:
            raise SystemExit(f"not reached in {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.002)


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
