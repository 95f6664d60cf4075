"""Snapshots in Redis, Valkey or a Redis Cluster, shared by any number of processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from skipstone_latent_kv import incoming
from skipstone_latent_kv.eviction import Quotas
from skipstone_latent_kv.eviction_policies import EvictionPolicy, LeastRecentlyUsed
from skipstone_latent_kv.latent_codec import CodecName, decode, encode
from skipstone_latent_kv.record_format import EncodedValue, SnapshotRecord
from skipstone_latent_kv.redis_catalog import RedisCatalog
from skipstone_latent_kv.redis_catalog_rows import StoredValue
from skipstone_latent_kv.redis_checks import check_servers
from skipstone_latent_kv.redis_connection import RedisAddress, connect
from skipstone_latent_kv.redis_reader import RedisReader, no_entry
from skipstone_latent_kv.redis_scrub import RedisScrub
from skipstone_latent_kv.redis_values import RedisValues, ValueName
from skipstone_latent_kv.redis_watch import RedisWatch
from skipstone_latent_kv.references import reference
from skipstone_latent_kv.store_metrics import StoreTotals
from skipstone_shared.errors import (
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.latents import (
    LatentRef,
    SnapshotMetadata,
    checked_entry_id,
    checked_namespace,
    checksum,
)
from skipstone_shared.stored_entries import (
    Snapshot,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)
from skipstone_shared.structured_logging import get_logger


class RedisStore:
    """A ``LatentStore`` whose whole state is in Redis.

    A write puts its bytes under a name that nobody knows, then makes them the snapshot in one call
    of the catalog, which also evicts; what was replaced or evicted is deleted last. Whoever dies in
    between leaves bytes that the next ``sweep`` of any process deletes.
    """

    def __init__(
        self,
        address: RedisAddress,
        prefix: str = "skipstone",
        quotas: Quotas = Quotas(),  # noqa: B008 - frozen
        policy: EvictionPolicy = LeastRecentlyUsed(),  # noqa: B008 - stateless
        ttl_s: float = 0.0,
        max_snapshot_bytes: int = 256 << 20,
        event_history: int = 10_000,
        codec: CodecName = "lossless",
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Connects, and warns of settings of Redis that do not go with a store.

        Args:
            address: Where Redis is.
            prefix: Beginning of all keys; stores with other prefixes know nothing of this one.
            quotas: Byte bounds.
            policy: Which entries go first; it holds for all processes that share the store.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            max_snapshot_bytes: Largest snapshot.
            event_history: Eviction events kept.
            codec: How new snapshots are written; what is there is read however it was written.
            clock: Seconds since the epoch; None for the clock of Redis, one for all processes.

        Raises:
            FailedPrecondition: Redis cannot be used; the message says why.
            Unavailable: it does not answer.
        """
        self._servers = connect(address)
        try:
            durability = check_servers(self._servers, quotas)
            self._values = RedisValues(self._servers, prefix)
            self._catalog = RedisCatalog(
                self._servers,
                prefix,
                quotas=quotas,
                policy=policy,
                ttl_s=ttl_s,
                event_history=event_history,
                clock=clock,
                discard=self._discard,
            )
        except BaseException:
            self._servers.close()
            raise
        self._reader = RedisReader(self._catalog, self._values)
        self._scrub = RedisScrub(self._servers, self._catalog, self._values, prefix)
        self._quotas = quotas
        self._codec: CodecName = codec
        self._closed = threading.Event()
        self._totals = StoreTotals(0, 0, 0, {})
        self._logger = get_logger(store="redis")
        self._capabilities = StoreCapabilities(
            engine=self._servers.engine,
            max_snapshot_bytes=quotas.largest_snapshot(max_snapshot_bytes),
            durability=durability,
        )

    def write_latent(
        self,
        namespace: str,
        metadata: SnapshotMetadata,
        data: Iterable[bytes | memoryview],
        *,
        size_bytes: int,
        xxh3_64: int,
        lease_s: float | None = None,
    ) -> LatentRef:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), metadata.entry_id
        self._check_open()
        self._quotas.check_fits(size_bytes)
        lease_s = incoming.check_header(metadata, size_bytes, lease_s, self._capabilities)
        received = incoming.receive(metadata, data, size_bytes, xxh3_64)
        value, encoded = received, None
        if self._codec != "lossless":
            narrow = encode(received, metadata.parts, self._codec)
            value, encoded = memoryview(narrow), EncodedValue(len(narrow), checksum(narrow))
            # Of what readers get, since the reference that is returned names that.
            xxh3_64 = checksum(decode(narrow, metadata.parts))
        name = self._catalog.begin(key)
        record = SnapshotRecord(metadata, xxh3_64, int(name.value_id, 16), encoded)
        try:
            self._values.write(name, record, value)
        except ResourceExhausted:
            self._discard([name])  # At once, since Redis is full; else the next sweep does it.
            raise
        self._catalog.put(metadata.step_index, StoredValue(name, len(value), xxh3_64), lease_s)
        return reference(key[0], metadata, xxh3_64)

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``."""
        namespace = incoming.check_ref(namespace, ref)
        self._check_open()
        return self._reader.snapshot((namespace, ref.entry_id), ref)

    def peek_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``MovableStore``."""
        namespace = incoming.check_ref(namespace, ref)
        self._check_open()
        return self._reader.peek((namespace, ref.entry_id), ref)

    def touch_latent(self, namespace: str, ref: LatentRef) -> StoredSnapshot:
        """See ``LatentStore``."""
        namespace = incoming.check_ref(namespace, ref)
        self._check_open()
        return self._reader.head((namespace, ref.entry_id), ref)

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)
        self._check_open()
        return self._reader.commit(key)

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)
        self._check_open()
        found, end = self._catalog.renew(key, incoming.check_lease(lease_s, self._capabilities))
        if not found:
            raise no_entry(key)
        return end

    def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)
        self._check_open()
        return self._reader.entry(key)

    def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_page(page_size, page_token)
        self._check_open()
        rows, more = self._catalog.page(namespace, page_token, page_size, include_uncommitted)
        entries = self._reader.entries(rows)
        # One may have gone and come back, uncommitted, since its row was read.
        wanted = (entry for entry in entries if entry.committed or include_uncommitted)
        return StoredEntryPage(tuple(wanted), more)

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)
        self._check_open()
        return self._catalog.pin(namespace, entry_ids, pinned)

    def adopt_entries(self, namespace: str, entries: Sequence[StoredEntry]) -> list[bool]:
        """See ``MovableStore``."""
        namespace = checked_namespace(namespace)
        self._check_open()
        return self._catalog.adopt(namespace, entries)

    def namespaces(self) -> list[str]:
        """See ``MovableStore``."""
        self._check_open()
        return self._catalog.namespaces()

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)
        self._check_open()
        return self._catalog.delete(namespace, entry_ids)

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``; some hundred at a time, since Redis does nothing else then."""
        namespace = checked_namespace(namespace)
        self._check_open()
        return self._catalog.clear(namespace)

    def get_stats(self, namespace: str) -> StoreStats:
        """See ``LatentStore``; bytes on disk are those of all values, wherever Redis has them."""
        namespace = checked_namespace(namespace)
        self._check_open()
        return self._catalog.stats(namespace)

    def totals(self) -> StoreTotals:
        """What the store holds; the last that was known where Redis does not answer."""
        try:
            self._check_open()
            entries, size, removals = self._catalog.totals()
            self._totals = StoreTotals(entries, size, size, removals)
        except SkipstoneError as error:
            self._logger.warning("totals not known", error=error.message)
        return self._totals

    def get_capabilities(self) -> StoreCapabilities:
        """See ``LatentStore``."""
        self._check_open()
        return self._capabilities

    def watch_evictions(self, namespace: str, after_sequence: int = 0) -> RedisWatch:
        """See ``LatentStore``; removals by all processes that share the store."""
        self._check_open()
        namespace = checked_namespace(namespace) if namespace else ""
        return RedisWatch(self._catalog, namespace, after_sequence, self._closed)

    def sweep(self) -> int:
        """Removes what ended, deletes what was left behind, looks for what Redis has dropped.

        Returns:
            How many entries had ended.
        """
        self._check_open()
        ended = self._catalog.sweep()
        self._scrub.step()
        return ended

    def close(self) -> None:
        """See ``LatentStore``."""
        if not self._closed.is_set():
            self._closed.set()
            self._servers.close()

    def _discard(self, names: Sequence[ValueName]) -> None:
        """Deletes values that nothing refers to; what cannot be deleted now, a sweep will."""
        try:
            self._values.delete(names)
            self._catalog.forget(names)
        except SkipstoneError as error:
            self._logger.warning("values not deleted yet", count=len(names), error=error.message)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("the store is closed")
