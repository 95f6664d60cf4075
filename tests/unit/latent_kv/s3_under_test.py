"""A place for stores in a real S3, and what must be true of everything in it."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from tests.contract.latent_store_cases import Clock
from tests.servers.seaweedfs import SeaweedFS

from skipstone_latent_kv import s3_upkeep
from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_latent_kv.s3_store import S3Store


class Place:
    """A prefix of its own; every store opened here shares it, as processes would."""

    real_clock = staticmethod(time.time)

    def __init__(self, server: SeaweedFS, stack: ExitStack) -> None:
        self.server = server
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.clock = Clock()
        self._stack = stack
        self.client = server.client
        self.bucket = S3Bucket(server.address, self.prefix)
        stack.callback(self.bucket.close)

    def open(self, **options: Any) -> S3Store:
        """Another store."""
        address = dataclasses.replace(self.server.address, **options.pop("address", {}))
        store = S3Store(address, **{"prefix": self.prefix, "clock": self.clock} | options)
        self._stack.callback(store.close)
        return store

    def worker(self, seed: int, rounds: int) -> list[str]:
        """The module and arguments of a process that works here."""
        address = self.server.address
        place = [address.endpoint, address.bucket, str(address.credentials_file), self.prefix]
        return ["tests.unit.latent_kv.s3_worker", *place, str(seed), str(rounds)]

    def pass_time(self) -> None:
        """What dead processes left may be deleted from now on."""
        self._stack.enter_context(patch.object(s3_upkeep, "LEFTOVER_S", -60.0))
        self.clock.now = 5e9

    def keys(self, below: str) -> list[str]:
        """The keys of all objects whose keys begin so."""
        return sorted(self.bucket.keys(below))

    def value_keys(self) -> list[str]:
        """The keys of all values."""
        return self.keys("values/")

    def put(self, key: str, body: bytes) -> None:
        """Replaces an object behind the back of all stores."""
        name = self.server.address.bucket
        self.client.put_object(Bucket=name, Key=f"{self.prefix}/{key}", Body=body)

    def audit(self, store: S3Store) -> None:
        """Asserts that totals, entries and values say the same, and that nothing is left over."""
        entries = [
            (namespace, entry)
            for namespace in store.namespaces()
            for entry in store.list_entries(namespace, 1000, "", True).entries
        ]
        totals = store.totals()
        sizes = [s.ref.size_bytes for _, entry in entries for s in entry.snapshots]
        assert (totals.entry_count, totals.size_bytes) == (len(entries), sum(sizes))
        assert len(self.value_keys()) == len(sizes)
        for namespace in {namespace for namespace, _ in entries}:
            mine = [entry for name, entry in entries if name == namespace]
            stats = store.get_stats(namespace)
            assert stats.size_bytes == sum(entry.size_bytes for entry in mine)
            assert stats.snapshot_count == sum(len(entry.snapshots) for entry in mine)
            assert stats.entry_count == sum(entry.committed for entry in mine)


def contents(store: S3Store) -> Iterator[object]:
    """All that a store says of what is in it."""
    for namespace in store.namespaces():
        yield namespace, store.list_entries(namespace, 1000, "", True), store.get_stats(namespace)
