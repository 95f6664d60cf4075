"""What the cache adds to a Generate that finds nothing, by the stores beneath it.

For each pair of a store of latent_kv and an engine of vector_index all five services run as
processes, with default settings but for patient deadlines, so that a busy machine gives longer
times and no fallbacks. The executor's model takes no time (`bench/instant_executor.py`), else steps
would hide what is measured. Prompts are those of a real request log, each with a new seed: every
one is embedded, searched, judged, and saved with latents of a size. In turn with each goes the same
request with the cache off.

    p50, p99   (cache on - cache off) of neighbours, on the wall, to the end of the call: its last
               message tells which latents are stored, so the write of a run's latents is in it, but
               not the save
    picture_ms median of the same to the last byte of the picture, which waits for neither
    cpu_ms     median of the same in CPU of caller, services and the servers of the stores, until
               the save is done
    off_ms     median on the wall of the request with the cache off

Prints one JSON line per pair and size:

    {"figure": "generate_overhead_ms", "backend": "STORE/ENGINE", "size": MB, "p50": ...,
     "p99": ..., "cpu_ms": ..., "n": ..., "picture_ms": ..., "off_ms": ...}
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends import indexes, latent_stores
from backends.deployment import CACHE_OFF, Deployment, frames_of, start_embedding
from backends.figures import print_figure
from cacheplane.cpu import AtRest
from replay.request_log import read_prompts
from skipstone_shared.generation import Artifact, GenerationParams
from skipstone_shared.orchestration import CacheOptions, GenerateFinished, HitTier, Provenance

STORES = ("lmdb", "lmdb+memory", "redis", "redis-cluster", "valkey", "s3")
ENGINES = ("hnswlib", "pgvector", "milvus", "milvus-lite", "qdrant-local")
MB = (0.13, 1.0, 9.7)
_WARM_UP = 3


@dataclass(frozen=True)
class Sample:
    """What the cache added to one request, in milliseconds."""

    wall_ms: float
    picture_ms: float
    cpu_ms: float
    off_ms: float


@dataclass(frozen=True)
class Timed:
    """One request, in milliseconds, and how it was served."""

    wall_ms: float
    picture_ms: float
    cpu_ms: float
    provenance: Provenance


class Pair(Deployment):
    """The services over one store and one engine."""

    def compare(self, prompt: str, seed: int, mb: float) -> Sample | None:
        """The same request without and with the cache; None where that found something."""
        params = GenerationParams(prompt, seed=seed, num_frames=frames_of(mb))
        off, on = self._timed(params, CACHE_OFF), self._timed(params, None)
        told = on.provenance
        if told.fallbacks or told.snapshot_failures:
            raise SystemExit(f"the cache did not work: {told}")
        if told.tier is not HitTier.MISS:
            return None
        return Sample(
            on.wall_ms - off.wall_ms,
            on.picture_ms - off.picture_ms,
            on.cpu_ms - off.cpu_ms,
            off.wall_ms,
        )

    def _timed(self, params: GenerationParams, cache: CacheOptions | None) -> Timed:
        rest = AtRest(self.pids)
        start = time.perf_counter()
        picture_s = 0.0
        provenance = None
        for event in self.client.generate_stream(params, cache):
            if isinstance(event, Artifact):
                picture_s = time.perf_counter() - start
            if isinstance(event, GenerateFinished):
                provenance = event.provenance
        wall_s = time.perf_counter() - start
        # What a save waits for looks like rest; only looks before the last one count.
        cpu_s = rest.cpu_s()
        while self.client.get_stats().queued_saves:
            cpu_s = rest.cpu_s()
        assert provenance is not None
        return Timed(1000 * wall_s, 1000 * picture_s, 1000 * cpu_s, provenance)


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", nargs="+", default=STORES, choices=latent_stores.BACKENDS)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=indexes.BACKENDS)
    parser.add_argument("--mb", nargs="+", type=float, default=MB, help="megabytes of latents")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    # Else the servers would outlive a run that is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    requests = zip(itertools.cycle(dict.fromkeys(read_prompts())), itertools.count(1))
    stores = latent_stores.installed(arguments.stores)
    engines = indexes.installed(arguments.engines)
    with ExitStack() as shared:
        root = Path(shared.enter_context(tempfile.TemporaryDirectory()))
        embedding = start_embedding(root, shared)
        for store, engine in itertools.product(stores, engines):
            with ExitStack() as stack:
                pair = Pair(store, engine, embedding, root / store / engine, stack)
                for mb in arguments.mb:
                    measure(pair, f"{store}/{engine}", requests, mb, arguments.rounds)


def measure(
    pair: Pair, name: str, requests: Iterator[tuple[str, int]], mb: float, rounds: int
) -> None:
    """Measures one size on one pair."""
    samples = []
    for number in itertools.count(-_WARM_UP):
        sample = pair.compare(*next(requests), mb)
        if sample is not None and number >= 0:
            samples.append(sample)
        if len(samples) == rounds:
            break
    print_figure(
        "generate_overhead_ms",
        name,
        mb,
        [sample.wall_ms for sample in samples],
        [sample.cpu_ms for sample in samples],
        picture_ms=round(float(np.median([sample.picture_ms for sample in samples])), 2),
        off_ms=round(float(np.median([sample.off_ms for sample in samples])), 2),
    )


if __name__ == "__main__":
    main()
