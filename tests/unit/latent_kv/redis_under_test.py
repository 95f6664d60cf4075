"""A place for stores in a real Redis, and what must be true of everything in it."""

from __future__ import annotations

import dataclasses
import uuid
from contextlib import ExitStack
from typing import Any

from tests.contract.latent_store_cases import Clock
from tests.servers.redis_server import RedisClusterServers, RedisServer

from skipstone_latent_kv.redis_connection import connect
from skipstone_latent_kv.redis_store import RedisStore
from skipstone_latent_kv.redis_values import RedisValues, ValueName


class Place:
    """A prefix of its own; every store opened here shares it, as processes would."""

    real_clock = None
    """That of Redis."""

    def __init__(self, servers: RedisServer | RedisClusterServers, stack: ExitStack) -> None:
        self.servers = servers
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.clock = Clock()
        self._stack = stack
        self.raw = connect(servers.address)
        stack.callback(self.raw.close)
        self.values = RedisValues(self.raw, self.prefix)

    def open(self, **options: Any) -> RedisStore:
        """Another store."""
        address = dataclasses.replace(self.servers.address, **options.pop("address", {}))
        options = {"prefix": self.prefix, "clock": self.clock} | options
        store = RedisStore(address, **options)
        self._stack.callback(store.close)
        return store

    def worker(self, seed: int, rounds: int) -> list[str]:
        """The module and arguments of a process that works here."""
        assert isinstance(self.servers, RedisServer)
        place = [self.servers.url, self.prefix]
        return ["tests.unit.latent_kv.redis_worker", *place, str(seed), str(rounds)]

    def pass_time(self) -> None:
        """What dead processes left may be deleted from now on."""
        seconds, _ = self.raw.execute("TIME")
        self.clock.now = float(seconds) + 901.0

    def key(self, name: str) -> str:
        """A key of the catalog."""
        return f"{self.prefix}:{{{self.prefix}}}:{name}"

    def value_keys(self) -> list[str]:
        """The keys of all values that Redis has."""
        found = [
            key.decode()
            for client in self.raw.masters().values()
            for key in client.scan_iter(match=f"{self.prefix}:*", count=1000)
        ]
        return sorted(key for key in found if self.values.name(key))

    def names(self) -> list[ValueName]:
        """The names of all values that Redis has."""
        return [name for key in self.value_keys() if (name := self.values.name(key))]

    def audit(self, store: RedisStore) -> None:
        """Asserts that totals, entries and values say the same, and that nothing is left over."""
        totals = store.totals()
        entries = [
            (namespace, entry)
            for namespace in store._catalog.namespaces()
            for entry in store.list_entries(namespace, 1000, "", True).entries
        ]
        sizes = [s.ref.size_bytes for _, entry in entries for s in entry.snapshots]
        assert (totals.entry_count, totals.size_bytes) == (len(entries), sum(sizes))
        assert len(self.value_keys()) == len(sizes)
        for namespace in {namespace for namespace, _ in entries}:
            mine = [entry for name, entry in entries if name == namespace]
            stats = store.get_stats(namespace)
            assert stats.size_bytes == sum(entry.size_bytes for entry in mine)
            assert stats.snapshot_count == sum(len(entry.snapshots) for entry in mine)
            assert stats.entry_count == sum(entry.committed for entry in mine)
        evictable = [e for _, e in entries if e.committed and not e.pinned]
        assert self.raw.execute("ZCARD", self.key("order")) == len(evictable)
        assert self.raw.execute("ZCARD", self.key("created")) == len(evictable)
        assert self.raw.execute("ZCARD", self.key("leases")) == sum(
            not e.committed for _, e in entries
        )
        for kept in ("pending", "trash"):
            assert self.raw.execute("EXISTS", self.key(kept)) == 0
