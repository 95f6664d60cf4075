"""Snapshots in S3, or in any server that speaks its API, shared by any number of processes."""

from __future__ import annotations

import dataclasses
import heapq
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from skipstone_latent_kv import incoming
from skipstone_latent_kv.entry_table import EntryKey, EntryState
from skipstone_latent_kv.eviction import Quotas, make_room
from skipstone_latent_kv.eviction_log import LogWatch
from skipstone_latent_kv.eviction_policies import EvictionPolicy, LeastRecentlyUsed
from skipstone_latent_kv.latent_codec import CodecName, decode, encode
from skipstone_latent_kv.record_format import EncodedValue, SnapshotRecord
from skipstone_latent_kv.references import reference
from skipstone_latent_kv.s3_bucket import S3Bucket
from skipstone_latent_kv.s3_checks import check_bucket
from skipstone_latent_kv.s3_connection import S3Address
from skipstone_latent_kv.s3_entries import S3Entries
from skipstone_latent_kv.s3_log import S3Log, time_since_boot
from skipstone_latent_kv.s3_reader import S3Reader
from skipstone_latent_kv.s3_replica import S3Replica
from skipstone_latent_kv.s3_transaction import S3Transaction
from skipstone_latent_kv.s3_upkeep import S3Upkeep
from skipstone_latent_kv.s3_values import S3Values, ValueName
from skipstone_latent_kv.store_metrics import StoreTotals
from skipstone_shared.errors import DeadlineExceeded, SkipstoneError, Unavailable
from skipstone_shared.latents import (
    LatentRef,
    SnapshotMetadata,
    checked_entry_id,
    checked_namespace,
    checksum,
)
from skipstone_shared.stored_entries import (
    EvictionKind,
    Snapshot,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)
from skipstone_shared.structured_logging import get_logger

T = TypeVar("T")

_DELETED_BY_THE_WAY = 1000
"""Values that a call deletes which only looks whether they are gone: one request. Where more are
left, somebody deletes a namespace just now, and calls that all did the same would stand in line."""


class S3Store:
    """A ``LatentStore`` whose whole state is in S3.

    A write puts its bytes under a name that nobody knows, then a record in the log that makes them
    the snapshot and says what is evicted for it; what was replaced or evicted is deleted last.
    Whoever dies in between leaves bytes that a later ``sweep`` of any process deletes.
    """

    def __init__(
        self,
        address: S3Address,
        prefix: str = "skipstone",
        quotas: Quotas = Quotas(),  # noqa: B008 - frozen
        policy: EvictionPolicy = LeastRecentlyUsed(),  # noqa: B008 - stateless
        ttl_s: float = 0.0,
        max_snapshot_bytes: int = 256 << 20,
        event_history: int = 10_000,
        codec: CodecName = "lossless",
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time_since_boot,
    ) -> None:
        """Checks the bucket and reads which entries there are.

        Args:
            address: Where S3 is.
            prefix: Beginning of all keys; stores with other prefixes know nothing of this one.
            quotas: Byte bounds.
            policy: Which entries this process evicts first.
            ttl_s: Time to live of committed entries in seconds; 0 for none.
            max_snapshot_bytes: Largest snapshot.
            event_history: Eviction events kept.
            codec: How new snapshots are written; what is there is read however it was written.
            clock: Seconds since the epoch.
            steady_clock: Seconds that pass, from anywhere.

        Raises:
            FailedPrecondition: S3 cannot be used; the message says why.
            Unavailable: it does not answer.
        """
        self._bucket = S3Bucket(address, prefix)
        self._values = S3Values(self._bucket)
        self._logger = get_logger(store="s3")
        log = S3Log(self._bucket, steady_clock)
        try:
            check_bucket(self._bucket)
            self._replica = S3Replica(log, policy, event_history)
        except BaseException:
            self._bucket.close()
            raise
        self._entries = S3Entries(
            log, self._replica, ttl_s=ttl_s, clock=clock, delete=self._values.delete
        )
        self._reader = S3Reader(self._entries, self._values)
        self._upkeep = S3Upkeep(self._bucket, log, self._entries)
        self._quotas = quotas
        self._codec: CodecName = codec
        self._clock = clock
        self._closed = threading.Event()
        self._capabilities = StoreCapabilities(
            engine="s3",
            max_snapshot_bytes=quotas.largest_snapshot(max_snapshot_bytes),
            durability="power",
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
        name = self._values.write(key, value, encoded.xxh3_64 if encoded else xxh3_64)
        record = SnapshotRecord(metadata, xxh3_64, name.value_id, encoded)
        try:
            self._change(lambda txn: self._put(txn, key, record, lease_s))
        except (Unavailable, DeadlineExceeded):
            raise  # Whether the bytes are in use shows later; a sweep deletes them if not.
        except SkipstoneError:
            self._discard([name])
            raise
        return reference(key[0], metadata, xxh3_64)

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``."""
        snapshot = self.peek_latent(namespace, ref)
        self._entries.uses.count((snapshot.ref.namespace, ref.entry_id), self._clock())
        return snapshot

    def peek_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``MovableStore``."""
        key = incoming.check_ref(namespace, ref), ref.entry_id
        self._check_open()
        return self._reader.snapshot(key, ref)

    def touch_latent(self, namespace: str, ref: LatentRef) -> StoredSnapshot:
        """See ``LatentStore``; it asks the log, so that no process vouches for what another did."""
        key = incoming.check_ref(namespace, ref), ref.entry_id
        self._check_open()
        head = self._reader.head(key, ref)
        self._entries.uses.count(key, self._clock())
        return head

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)

        def commit(txn: S3Transaction) -> StoredEntry:
            state = self._entries.require(key)
            if not state.committed:
                state = state.as_committed()
                txn.put(state)
            return txn.stored_entry(state)

        return self._change(commit)

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)
        lease_s = incoming.check_lease(lease_s, self._capabilities)

        def renew(txn: S3Transaction) -> float | None:
            state = self._entries.require(key)
            if state.committed:
                return None
            end = self._clock() + lease_s
            txn.put(dataclasses.replace(state, lease_expire_time=end))
            return end

        return self._change(renew)

    def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``; an entry that is not there has no bytes in S3 either."""
        key = checked_namespace(namespace), checked_entry_id(entry_id)

        def get(txn: S3Transaction) -> StoredEntry:
            txn.delete_again(*key, at_most=_DELETED_BY_THE_WAY)
            return txn.stored_entry(self._entries.require(key))

        return self._change(get, for_good=True)

    def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        """See ``LatentStore``; of removed entries no bytes are in S3 either."""
        namespace = checked_namespace(namespace)
        incoming.check_page(page_size, page_token)

        def page(txn: S3Transaction) -> StoredEntryPage:
            txn.delete_again(namespace, at_most=_DELETED_BY_THE_WAY)
            after = (
                state
                for state in txn.table.in_namespace(namespace)
                if state.entry_id > page_token
                and (state.committed or include_uncommitted)
                and self._entries.find(state.key)
            )
            states = heapq.nsmallest(page_size + 1, after, key=lambda state: state.entry_id)
            token = states[page_size - 1].entry_id if len(states) > page_size else ""
            return StoredEntryPage(tuple(map(txn.stored_entry, states[:page_size])), token)

        return self._change(page, for_good=True)

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)

        def pin(txn: S3Transaction) -> list[bool]:
            states = [self._entries.live(txn, (namespace, entry_id)) for entry_id in entry_ids]
            for state in states:
                if state is not None and state.pinned != pinned:
                    txn.put(dataclasses.replace(state, pinned=pinned))
            return [state is not None for state in states]

        return self._change(pin)

    def adopt_entries(self, namespace: str, entries: Sequence[StoredEntry]) -> list[bool]:
        """See ``MovableStore``."""
        namespace = checked_namespace(namespace)

        def adopt(txn: S3Transaction) -> list[bool]:
            found = []
            for entry in entries:
                state = self._entries.live(txn, (namespace, entry.entry_id))
                if state is not None:
                    txn.adopt(state.as_adopted(entry))
                found.append(state is not None)
            return found

        return self._change(adopt)

    def namespaces(self) -> list[str]:
        """See ``MovableStore``."""
        return self._change(lambda txn: txn.table.namespaces())

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``; the bytes have gone too when it returns.

        Raises:
            Unavailable: they have not: the entries are removed, and the same call deletes the rest.
        """
        namespace = checked_namespace(namespace)
        incoming.check_batch(entry_ids, self._capabilities)

        def delete(txn: S3Transaction) -> list[bool]:
            found = []
            for entry_id in entry_ids:
                found.append(self._entries.live(txn, (namespace, entry_id)) is not None)
                if found[-1]:
                    txn.remove((namespace, entry_id), EvictionKind.DELETED)
                txn.delete_again(namespace, entry_id)
            return found

        return self._change(delete, for_good=True)

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``; the bytes have gone too when it returns.

        Raises:
            Unavailable: they have not: the entries are removed, and the same call deletes the rest.
        """
        namespace = checked_namespace(namespace)

        def delete(txn: S3Transaction) -> int:
            keys = [state.key for state in txn.table.in_namespace(namespace)]
            live = [key for key in keys if self._entries.live(txn, key) is not None]
            for key in live:
                txn.remove(key, EvictionKind.DELETED)
            txn.delete_again(namespace)
            return len(live)

        return self._change(delete, for_good=True)

    def get_stats(self, namespace: str) -> StoreStats:
        """See ``LatentStore``; bytes on disk are those of all values."""
        namespace = checked_namespace(namespace)

        def stats(txn: S3Transaction) -> StoreStats:
            return dataclasses.replace(
                txn.table.stats(namespace, self._clock()),
                quota_bytes=self._quotas.namespace_bytes,
                disk_bytes=txn.table.size_bytes(),
                evicted_count=self._replica.evicted_count,
            )

        return self._change(stats)

    def totals(self) -> StoreTotals:
        """What the store holds, all namespaces together, as far as this process knows."""
        known = self._replica
        size = known.table.size_bytes()
        return StoreTotals(
            known.table.entry_count(),
            size,
            size,
            dict(known.events.published),
            unreadable_records=known.damaged_count,
            undeleted_values=len(known.undeleted),
        )

    def get_capabilities(self) -> StoreCapabilities:
        """See ``LatentStore``."""
        self._check_open()
        return self._capabilities

    def watch_evictions(self, namespace: str, after_sequence: int = 0) -> LogWatch:
        """See ``LatentStore``; what other processes remove is seen at the next sweep or change."""
        namespace = checked_namespace(namespace) if namespace else ""
        self._check_open()
        self._entries.refresh()
        return self._entries.events.watch(namespace, after_sequence)

    def sweep(self) -> int:
        """Removes what ended, saves reads, deletes what was left behind, shortens the log.

        Returns:
            How many entries had ended.
        """
        ended = self._change(self._entries.sweep)
        self._upkeep.step()
        return ended

    def close(self) -> None:
        """See ``LatentStore``."""
        if self._closed.is_set():
            return
        try:
            self._change(self._entries.sweep)
        except SkipstoneError as error:
            self._logger.warning("reads not saved", error=error.message)
        self._closed.set()
        self._entries.close()
        self._bucket.close()

    def _put(
        self, txn: S3Transaction, key: EntryKey, record: SnapshotRecord, lease_s: float
    ) -> None:
        """Makes a value that has been written the snapshot of a step."""
        now, step = self._clock(), record.metadata.step_index
        # Ended leases first: they make room without an eviction.
        self._entries.remove_over(txn, ttl_s=0.0)
        state = self._entries.live(txn, key) or EntryState(*key, create_time=now, access_time=now)
        before = txn.record(key, step)
        growth = record.value_bytes - (before.value_bytes if before else 0)
        for victim in make_room(txn.table, self._quotas, key, growth):
            txn.remove(victim.key, EvictionKind.CAPACITY)
        txn.put_snapshot(key, record)
        txn.put(state.with_snapshot(step, growth, before is None, now + lease_s), used=True)

    def _change(self, operation: Callable[[S3Transaction], T], *, for_good: bool = False) -> T:
        self._check_open()
        return self._entries.change(operation, for_good=for_good)

    def _discard(self, names: Sequence[ValueName]) -> None:
        """Deletes values that nothing refers to; what cannot be deleted now, a sweep will."""
        try:
            self._values.delete(names)
        except SkipstoneError as error:
            self._logger.warning("values not deleted yet", count=len(names), error=error.message)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("the store is closed")
