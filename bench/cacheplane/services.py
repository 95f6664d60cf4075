"""latent_kv and vector_index as processes over one directory, and what a request asks of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cacheplane.entries import (
    KEY,
    MEASURED_STEP,
    MODEL,
    STEPS,
    entry_id,
    index_entry,
    is_of,
    latents,
    metadata,
)
from search.vectors import Matrix
from server_process import PATIENCE_S, ServerProcess, python
from skipstone_client import LatentKVClient, VectorIndexClient
from skipstone_shared.index_entries import SearchHit, Vector, VectorEntry
from skipstone_shared.latents import LATENTS_PART, LatentRef
from skipstone_shared.tensor_messages import Array

TOP_K = 10
_SIMILAR = 0.99


class CachePlane:
    """The two services and their clients."""

    def __init__(self, directory: Path) -> None:
        """Starts both; returns once they listen."""
        self.started = time.perf_counter()
        self._processes = {
            "latent_kv": _start("latent_kv", directory, "--quota-bytes", "0"),
            "vector_index": _start("vector_index", directory),
        }
        addresses = {name: process.address() for name, process in self._processes.items()}
        self.store = LatentKVClient(addresses["latent_kv"], timeout_s=PATIENCE_S)
        self.index = VectorIndexClient(addresses["vector_index"], timeout_s=PATIENCE_S)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by service."""
        return {name: process.pid for name, process in self._processes.items()}

    def search(self, query: Vector) -> list[SearchHit]:
        """The entries closest to a query."""
        return self.index.search_entries("", KEY, [query], TOP_K, embedding_model_id=MODEL)[0]

    def read(self, ref: LatentRef) -> Array:
        """The latents behind a reference."""
        return self.store.read_arrays("", ref)[1][LATENTS_PART]

    def hit(self, query: Vector) -> Array:
        """A search, then a read of the donor's first snapshot."""
        donor = self.search(query)[0].entry
        return self.read(next(s for s in donor.snapshots if s.step_index == MEASURED_STEP))

    def miss(self, query: Vector) -> None:
        """A search for what nothing is similar enough to."""
        found = self.index.search_entries("", KEY, [query], TOP_K, _SIMILAR, MODEL)[0]
        if found:
            raise SystemExit(f"a hit where none should be: {found[0]}")

    def save(self, row: int, arrays: Sequence[Array], vector: Vector) -> None:
        """What a run leaves: its snapshots one by one, a commit, and its vector."""
        refs = [
            self.store.write_arrays("", metadata(row, step, array), {LATENTS_PART: array})
            for step, array in zip(STEPS, arrays, strict=True)
        ]
        self.store.commit_entry("", entry_id(row))
        self.upsert([VectorEntry(index_entry(row, tuple(refs)), vector)])

    def upsert(self, entries: Sequence[VectorEntry]) -> None:
        """Stores vectors."""
        refused = [error for error in self.index.upsert_entries("", KEY, entries) if error]
        if refused:
            raise SystemExit(f"an entry was refused: {refused[0]}")

    def delete(self, row: int) -> None:
        """Removes an entry from both."""
        self.store.delete_entries("", [entry_id(row)])
        self.index.delete_entries("", [entry_id(row)])

    def check(self, row: int, mb: float, vectors: Matrix) -> None:
        """Whether a hit gives the entry's own latents."""
        found = self.hit(vectors[row])
        if found.tobytes() != latents(row, mb).tobytes() or not is_of(row, found):
            raise SystemExit(f"a hit gave other latents than those of entry {row}")

    def close(self, *, kill: bool = False) -> None:
        """Ends both services, as a crash would or in order."""
        self.store.close()
        self.index.close()
        for process in self._processes.values():
            process.end(kill=kill)


@contextmanager
def running(directory: Path) -> Iterator[CachePlane]:
    """Runs both services over a directory."""
    plane = CachePlane(directory)
    try:
        yield plane
    finally:
        plane.close()


def _start(service: str, directory: Path, *flags: str) -> ServerProcess:
    data = str(directory / service)
    settings = ["--port", "0", "--data-dir", data, "--log-format", "json", *flags]
    return ServerProcess(
        python("-m", f"skipstone_{service}", *settings), directory / f"{service}.log"
    )
