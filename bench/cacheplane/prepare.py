"""Fills the services' directories once, so that a run can be repeated and measured in pieces."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import faiss
import hnswlib
import numpy as np

from cacheplane.entries import (
    DIMENSION,
    MEASURED_STEP,
    STEPS,
    Sizes,
    entry_id,
    index_entry,
    latents,
    metadata,
)
from cacheplane.services import CachePlane, running
from search.vectors import Matrix
from server_process import wait_until
from skipstone_latent_kv.lmdb_store import LmdbStore
from skipstone_shared.index_entries import VectorEntry
from skipstone_shared.latents import LatentRef, checksum
from skipstone_shared.tensor_messages import array_bytes
from skipstone_vector_index.config import VectorIndexSettings

_BATCH = 500
_WRITERS = 16
_READY = "ready.json"
_SEED = 100


def prepare(directory: Path, sizes: Sizes, vectors: Matrix) -> None:
    """Fills a directory unless it holds the same already."""
    described = json.dumps([sizes.entries, sizes.measured, *sizes.mbs])
    ready = directory / _READY
    if ready.exists():
        if ready.read_text(encoding="utf-8") != described:
            raise SystemExit(f"{directory} holds other entries; remove it or name another")
        return
    directory.mkdir(parents=True)
    refs = fill_store(directory / "latent_kv", sizes)
    with running(directory) as plane:
        fill_index(plane, refs, vectors)
        # While the service builds its own in the background.
        build_graph(vectors).save_index(str(directory / "hnswlib"))
        faiss.write_index(build_faiss(vectors), str(directory / "faiss"))
        if len(vectors) > VectorIndexSettings().exact_search_limit:
            graphs = directory / "vector_index" / "graphs"
            wait_until(lambda: any(graphs.glob("*.graph")), "the graph is saved")
    ready.write_text(described, encoding="utf-8")


def fill_store(directory: Path, sizes: Sizes) -> list[tuple[LatentRef, ...]]:
    """Writes all entries with the store itself, which spares 600,000 calls and fsyncs."""
    store = LmdbStore(directory, durability="none")
    measured = sizes.by_row()

    def write(row: int) -> tuple[LatentRef, ...]:
        refs = tuple(
            _write(store, row, step, measured.get(row) if step == MEASURED_STEP else None)
            for step in STEPS
        )
        store.commit_entry("", entry_id(row))
        return refs

    try:
        with ThreadPoolExecutor(_WRITERS) as writers:
            return list(writers.map(write, range(sizes.entries)))
    finally:
        store.close()


def _write(store: LmdbStore, row: int, step: int, mb: float | None) -> LatentRef:
    array = latents(row, mb)
    data = array_bytes(array)
    told = metadata(row, step, array)
    return store.write_latent("", told, [data], size_bytes=len(data), xxh3_64=checksum(data))


def fill_index(plane: CachePlane, refs: list[tuple[LatentRef, ...]], vectors: Matrix) -> None:
    """Stores all vectors through the service."""
    for start in range(0, len(vectors), _BATCH):
        rows = range(start, min(start + _BATCH, len(vectors)))
        plane.upsert([VectorEntry(index_entry(row, refs[row]), vectors[row]) for row in rows])


def build_graph(vectors: Matrix) -> hnswlib.Index:
    """A graph of hnswlib, built as the service builds it."""
    settings = VectorIndexSettings()
    graph = hnswlib.Index(space="ip", dim=DIMENSION)
    graph.init_index(
        len(vectors),
        M=settings.hnsw_m,
        ef_construction=settings.hnsw_ef_construction,
        random_seed=_SEED,
    )
    graph.add_items(vectors, num_threads=1)
    return graph


def load_graph(directory: Path) -> hnswlib.Index:
    """The graph of ``build_graph``."""
    graph = hnswlib.Index(space="ip", dim=DIMENSION)
    graph.load_index(str(directory / "hnswlib"))
    graph.set_ef(VectorIndexSettings().hnsw_ef_search)
    return graph


def build_faiss(vectors: Matrix) -> faiss.IndexHNSWFlat:
    """FAISS's HNSW with the same parameters."""
    settings = VectorIndexSettings()
    faiss.omp_set_num_threads(1)
    index = faiss.IndexHNSWFlat(DIMENSION, settings.hnsw_m, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = settings.hnsw_ef_construction
    index.add(np.ascontiguousarray(vectors))
    return index


def load_faiss(directory: Path) -> Any:
    """The index of ``build_faiss``, which looks at as many candidates as the service does."""
    index: Any = faiss.read_index(str(directory / "faiss"))
    index.hnsw.efSearch = VectorIndexSettings().hnsw_ef_search
    return index
