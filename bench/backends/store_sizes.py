"""What a store of latent_kv takes by the number of its entries: a start, memory, looking one up.

The store itself is measured, without a service around it. Entries have one snapshot of 1 kB. They
are saved through the store, into LMDB without fsyncs; those of S3, where each save is three puts,
are written by the encoder of the store as one checkpoint, such as a sweep puts, without the bytes
of their snapshots. Then the store is opened, each time in a fresh process that has imported all:

    store_open_ms  until it answers for an entry: time, and CPU of that process alone. With it
                   memory of the process without mapped files (median), and what each server of
                   Redis uses.
    entry_get_ms   what an entry is (`get_entry`), the entries spread over all; CPU is that of the
                   process and the servers of the store together.

From the second number of entries on, the first line also tells what each further entry takes of
these: `entry_bytes` of the process, `entry_server_bytes` of the servers, latents included. Redis
keeps nothing on disk, S3 is SeaweedFS.
Prints one JSON line per figure, store and number of entries:

    {"figure": ..., "backend": ..., "size": entries, "p50": ..., "p99": ..., "cpu_ms": median,
     "n": ...}
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import redis

# These two for what they import, or it would be imported while it is measured.
import skipstone_latent_kv.redis_store
import skipstone_latent_kv.s3_store  # noqa: F401
from backends.figures import print_figure
from backends.latent_stores import BACKENDS, installed
from cacheplane.cpu import Cost, measured
from cacheplane.entries import MEASURED_STEP, latents, metadata
from server_process import end_in_order_on_sigterm
from skipstone_latent_kv.__main__ import open_store
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_latent_kv.entry_table import EntryState
from skipstone_latent_kv.heap import use_few_heaps
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_latent_kv.s3_connection import S3Address
from skipstone_latent_kv.s3_log import S3Log, time_since_boot
from skipstone_latent_kv.s3_records import Checkpoint, Rows, encode_checkpoint, packed_snapshot
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.config import load_settings
from skipstone_shared.latents import DEFAULT_NAMESPACE, SnapshotMetadata, checksum
from skipstone_shared.tensor_messages import array_bytes

STORES: Final = ("lmdb", "redis", "redis-cluster", "valkey", "s3")
"""Those of BACKENDS that differ in where entries are."""

_USUAL: Final = ("lmdb", "redis", "redis-cluster", "s3")
_WRITERS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Opened:
    """What one process took that opened a store.

    Attributes:
        start: Until the store answered for an entry; CPU of the process.
        memory_bytes: Memory of the process then, without mapped files.
        gets: Of each entry that was looked up after it.
    """

    start: Cost
    memory_bytes: int
    gets: Sequence[Cost]


class Filled:
    """A store with entries."""

    def __init__(self, settings: LatentKVSettings, servers: Sequence[int]) -> None:
        """Begins without entries.

        Args:
            settings: Those of a latent_kv over it.
            servers: Process ids of what it needs.
        """
        self._settings = settings
        self._servers = servers
        self._count = 0

    def fill(self, count: int) -> None:
        """Adds entries up to a number."""
        store = open_store(self._settings.model_copy(update={"durability": "none"}))
        try:
            if self._settings.store == "s3":
                _put_checkpoint(self._settings, count)
            else:
                with ThreadPoolExecutor(_WRITERS) as writers:
                    list(writers.map(lambda row: _save(store, row), range(self._count, count)))
        finally:
            store.close()
        self._count = count

    def open(self, reads: int) -> Opened:
        """Opens it in a fresh process and looks up so many entries."""
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            rows = range(0, self._count, max(1, self._count // reads))[:reads]
            return process.submit(_open, self._settings, rows, self._servers).result()

    def server_bytes(self) -> list[int]:
        """What each server of Redis uses; empty for other stores."""
        urls = self._settings.redis_urls if self._settings.store == "redis" else ()
        return [redis.Redis.from_url(url).info("memory")["used_memory"] for url in urls]


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--backends", nargs="+", default=_USUAL, choices=STORES)
    parser.add_argument("--entries", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--opens", type=int, default=5, help="processes that open each store")
    parser.add_argument("--reads", type=int, default=100, help="entries that each looks up")
    arguments = parser.parse_args()
    end_in_order_on_sigterm()
    use_few_heaps()
    for name in installed(arguments.backends):
        with tempfile.TemporaryDirectory() as folder:
            with BACKENDS[name].running(Path(folder) / name) as (flags, servers):
                filled = Filled(load_settings(LatentKVSettings, flags), servers)
                measure(name, filled, sorted(arguments.entries), arguments.opens, arguments.reads)


def measure(name: str, filled: Filled, counts: Sequence[int], opens: int, reads: int) -> None:
    """Measures one store at growing numbers of entries."""
    before: tuple[int, int, list[int]] | None = None
    for count in counts:
        filled.fill(count)
        servers = filled.server_bytes()
        opened = [filled.open(reads) for _ in range(opens)]
        memory = round(statistics.median(one.memory_bytes for one in opened))
        more: dict[str, object] = {"memory_bytes": memory}
        if servers:
            more["server_bytes"] = servers
        if before is not None:
            apart = count - before[0]
            more["entry_bytes"] = round((memory - before[1]) / apart)
            if servers:
                growths = [new - old for new, old in zip(servers, before[2], strict=True)]
                more["entry_server_bytes"] = [round(growth / apart) for growth in growths]
        before = count, memory, servers
        _print("store_open_ms", name, count, [one.start for one in opened], more)
        _print("entry_get_ms", name, count, [cost for one in opened for cost in one.gets], {})


def _print(
    figure: str, name: str, count: int, costs: Sequence[Cost], more: dict[str, object]
) -> None:
    wall_ms, cpu_ms = [cost.wall_ms for cost in costs], [cost.cpu_ms for cost in costs]
    print_figure(figure, name, count, wall_ms, cpu_ms, **more)


def _open(settings: LatentKVSettings, rows: Sequence[int], servers: Sequence[int]) -> Opened:
    """Runs in a fresh process."""
    use_few_heaps()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    store = open_store(settings)
    try:
        store.get_entry("", _entry_id(rows[0]))
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        memory = _memory_bytes()
        lookups = [functools.partial(store.get_entry, "", _entry_id(row)) for row in rows]
        gets = [measured(lookup, servers) for lookup in lookups]
        return Opened(Cost(1000 * cpu_s, 1000 * wall_s), memory, gets)
    finally:
        store.close()


def _memory_bytes() -> int:
    """Memory of this process without the files it has mapped, which the system may drop."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def _save(store: LatentStore, row: int) -> None:
    of, data = _snapshot(row)
    store.write_latent("", of, [data], size_bytes=len(data), xxh3_64=checksum(data))
    store.commit_entry("", of.entry_id)


def _put_checkpoint(settings: LatentKVSettings, count: int) -> None:
    """Puts the checkpoint of so many entries, as if each had come with a record of the log."""
    address = S3Address(
        bucket=settings.s3_bucket,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        path_style=settings.s3_path_style,
        credentials_file=settings.s3_credentials_file,
    )
    bucket = S3Bucket(address, settings.s3_prefix)
    try:
        entries = [_s3_entry(row) for row in range(count)]
        body = encode_checkpoint(count, Checkpoint(entries))
        S3Log(bucket, time_since_boot).checkpoint(count, body)
    finally:
        bucket.close()


def _s3_entry(row: int) -> tuple[EntryState, Rows]:
    of, data = _snapshot(row)
    key, now = (DEFAULT_NAMESPACE, of.entry_id), time.time()
    state = EntryState(
        *key,
        create_time=now,
        access_time=now,
        size_bytes=len(data),
        snapshot_count=1,
        committed=True,
        skip_steps=of.step_index,
    )
    record = SnapshotRecord(of, checksum(data), value_id=row + 1)
    return state, {of.step_index: packed_snapshot(key, record)}


def _snapshot(row: int) -> tuple[SnapshotMetadata, memoryview]:
    array = latents(row, None)
    of = dataclasses.replace(metadata(row, MEASURED_STEP, array), entry_id=_entry_id(row))
    return of, array_bytes(array)


def _entry_id(row: int) -> str:
    """As long as the orchestrator's."""
    return f"{row:032x}"


if __name__ == "__main__":
    main()
