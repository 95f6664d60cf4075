"""A process that works on a shared store: run by ``test_shared_store`` with an address and a seed.

Prints ``working`` once it has begun. Exits with 0 when every answer was right.
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.movable_store import MovableStore
from skipstone_latent_kv.redis_connection import RedisAddress
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_shared.errors import NotFound
from skipstone_shared.latents import (
    DType,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
    checksum,
)

QUOTA_BYTES = 10 << 10
STEP = 5


def data_of(number: int) -> bytes:
    """The bytes of an entry: 1 to 3 KiB of finite numbers that only it has."""
    return bytes([number]) * (1 + number % 3 << 10)


def write(store: MovableStore, number: int) -> None:
    """Writes an entry."""
    data = data_of(number)
    spec = TensorSpec(DType.FLOAT16, (1, len(data) // 2))
    metadata = SnapshotMetadata(
        f"e{number}", STEP, 20, 0.5, "c0ffee00" * 4, (TensorPart("latents", spec),)
    )
    store.write_latent("", metadata, [data], size_bytes=len(data), xxh3_64=checksum(data))


def work(store: MovableStore, rng: random.Random) -> None:
    """Writes, commits, reads and deletes the same few entries as all others do."""
    number = rng.randrange(12)
    with suppress(NotFound):
        write(store, number)
        store.commit_entry("", f"e{number}")
    other = rng.randrange(12)
    with suppress(NotFound):
        ref = LatentRef(namespace="", entry_id=f"e{other}", step_index=STEP)
        assert bytes(store.read_latent("", ref).data) == data_of(other)
    if rng.random() < 0.1:
        store.delete_entries("", [f"e{number}"])
    assert store.totals().size_bytes <= QUOTA_BYTES


def main() -> None:
    url, prefix, seed, rounds = sys.argv[1:]
    store = RedisStore(RedisAddress([url]), prefix, quotas=Quotas(QUOTA_BYTES))
    sys.stdout.write("working\n")
    sys.stdout.flush()
    rng = random.Random(int(seed))
    for _ in range(int(rounds)):
        work(store, rng)
    store.close()


if __name__ == "__main__":
    main()
