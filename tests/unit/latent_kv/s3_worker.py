"""A process that works on a shared store in S3: run by ``test_shared_store`` with a seed.

Prints ``working`` once it has begun. Exits with 0 when every answer was right.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests.unit.latent_kv.redis_worker import QUOTA_BYTES, work

from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.s3_connection import S3Address
from skipstone_latent_kv.s3_store import S3Store


def main() -> None:
    endpoint, bucket, credentials_file, prefix, seed, rounds = sys.argv[1:]
    address = S3Address(bucket, endpoint, "us-east-1", True, Path(credentials_file))
    store = S3Store(address, prefix, quotas=Quotas(QUOTA_BYTES))
    sys.stdout.write("working\n")
    sys.stdout.flush()
    rng = random.Random(int(seed))
    for i in range(int(rounds)):
        work(store, rng)
        if i % 10 == 9:
            store.sweep()
    store.close()


if __name__ == "__main__":
    main()
