"""What reading and writing a snapshot costs through latent_kv, by the store beneath it.

Each store is served by a latent_kv of its own and asked over gRPC on loopback from this process;
the stores take turns. CPU is that of this process, the service and the servers of the store
together. Redis keeps nothing on disk here; LMDB acknowledges after an fsync (durability group); S3
is SeaweedFS, which leaves flushing to the system.
Prints one JSON line per figure, store and size:

    {"figure": "kv_get_ms" | "kv_put_ms", "backend": ..., "size": MB, "p50": ..., "p99": ...,
     "cpu_ms": median, "n": ...}
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np

from backends.redis_processes import running_cluster, running_redis
from backends.seaweedfs_process import running_seaweedfs, seaweedfs_program
from cacheplane.cpu import Cost, measured
from cacheplane.entries import MEASURED_STEP, SHAPES, entry_id, latents, metadata
from server_process import PATIENCE_S, ServerProcess, python
from skipstone_client import LatentKVClient
from skipstone_shared.latents import LATENTS_PART, LatentRef

_ENTRIES = 8
"""Entries of each size that are written again and again: a store is measured, not its growth."""
_WARM_UP = 3

Beneath = Callable[[Path], AbstractContextManager[tuple[Sequence[str], Sequence[int]]]]
"""Starts what a store needs in a directory; gives flags of latent_kv and process ids."""


@contextmanager
def _lmdb(directory: Path) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    yield ["--data-dir", str(directory / "data")], []


BACKENDS: Mapping[str, Beneath] = {
    "lmdb": _lmdb,
    "redis": running_redis,
    "redis-cluster": running_cluster,
    "s3": running_seaweedfs,
}


class Served:
    """One store behind its latent_kv."""

    def __init__(self, name: str, directory: Path, stack: ExitStack) -> None:
        """Starts both.

        Args:
            name: Which of BACKENDS.
            directory: For their data and logs.
            stack: Ends them.
        """
        self.name = name
        directory.mkdir(parents=True)
        flags, beneath = stack.enter_context(BACKENDS[name](directory))
        command = python("-m", "skipstone_latent_kv", "--port", "0", "--log-format", "json", *flags)
        service = ServerProcess(command, directory / "latent_kv.log")
        stack.callback(service.end)
        self._pids = [service.pid, *beneath]
        self._client = stack.enter_context(LatentKVClient(service.address(), timeout_s=PATIENCE_S))

    def put(self, row: int, mb: float) -> Cost:
        """Writes a snapshot."""
        array = latents(row, mb)
        of = metadata(row, MEASURED_STEP, array)
        return measured(
            lambda: self._client.write_arrays("", of, {LATENTS_PART: array}), self._pids
        )

    def get(self, row: int, mb: float) -> Cost:
        """Reads it; what came is compared with what was written."""
        ref = LatentRef(namespace="", entry_id=entry_id(row), step_index=MEASURED_STEP)
        found = []
        cost = measured(lambda: found.append(self._client.read_arrays("", ref)), self._pids)
        if found[0][1][LATENTS_PART].tobytes() != latents(row, mb).tobytes():
            raise SystemExit(f"{self.name} gave other latents than those of entry {row}")
        return cost


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=list(BACKENDS))
    parser.add_argument("--mb", nargs="+", type=float, default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    missing = []
    if not shutil.which("redis-server"):
        missing += ["redis", "redis-cluster"]
    if not seaweedfs_program():
        missing += ["s3"]
    if missing:
        print(f"no server is installed for: {', '.join(missing)}", file=sys.stderr)
    arguments.backends = [name for name in arguments.backends if name not in missing]
    # Else the servers would outlive a run that is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = [Served(name, root / name, stack) for name in arguments.backends]
        for mb in arguments.mb:
            measure(stores, mb, arguments.rounds)


def measure(stores: Sequence[Served], mb: float, rounds: int) -> None:
    """Measures one size in all stores."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    for turn in range(_WARM_UP + rounds):
        row = turn % _ENTRIES
        for store in stores:
            found = {"kv_put_ms": store.put(row, mb), "kv_get_ms": store.get(row, mb)}
            for figure, cost in found.items() if turn >= _WARM_UP else ():
                costs.setdefault((figure, store.name), []).append(cost)
    for (figure, name), of in costs.items():
        p50, p99 = np.percentile([cost.wall_ms for cost in of], [50, 99])
        line = {
            "figure": figure,
            "backend": name,
            "size": mb,
            "p50": round(float(p50), 2),
            "p99": round(float(p99), 2),
            "cpu_ms": round(float(np.median([cost.cpu_ms for cost in of])), 2),
            "n": len(of),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
