"""A store that counts what another store does, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import Counter, Histogram
from prometheus_client.registry import Collector

from skipstone_latent_kv.forwarding_store import ForwardingStore
from skipstone_latent_kv.store import LatentStore
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.latents import LatentRef, SnapshotMetadata
from skipstone_shared.stored_entries import (
    Snapshot,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class MetricsStore(ForwardingStore):
    """A ``LatentStore`` around another one. Closing it closes the other."""

    def __init__(self, store: LatentStore) -> None:
        """Wraps a store.

        Args:
            store: Does the work.
        """
        super().__init__(store)
        self._operations = Counter(
            "skipstone_latent_kv_operations_total",
            "Finished store operations; outcome is OK or the reason of the error.",
            ["operation", "outcome"],
            registry=None,
        )
        self._seconds = Histogram(
            "skipstone_latent_kv_operation_seconds",
            "Time of a store operation, in seconds.",
            ["operation"],
            buckets=_BUCKETS_S,
            registry=None,
        )
        self._bytes = Counter(
            "skipstone_latent_kv_data_bytes_total",
            "Bytes of snapshots that were written and read.",
            ["operation"],
            registry=None,
        )

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metrics, to be registered by the server."""
        return self._operations, self._seconds, self._bytes

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
        with self._measured("write_latent"):
            ref = self._store.write_latent(
                namespace, metadata, data, size_bytes=size_bytes, xxh3_64=xxh3_64, lease_s=lease_s
            )
        self._bytes.labels("write_latent").inc(size_bytes)
        return ref

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``."""
        with self._measured("read_latent"):
            snapshot = self._store.read_latent(namespace, ref)
        self._bytes.labels("read_latent").inc(snapshot.ref.size_bytes)
        return snapshot

    def touch_latent(self, namespace: str, ref: LatentRef) -> StoredSnapshot:
        """See ``LatentStore``."""
        with self._measured("touch_latent"):
            return self._store.touch_latent(namespace, ref)

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        with self._measured("commit_entry"):
            return self._store.commit_entry(namespace, entry_id)

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        with self._measured("renew_lease"):
            return self._store.renew_lease(namespace, entry_id, lease_s)

    def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        with self._measured("get_entry"):
            return self._store.get_entry(namespace, entry_id)

    def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        """See ``LatentStore``."""
        with self._measured("list_entries"):
            return self._store.list_entries(namespace, page_size, page_token, include_uncommitted)

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        with self._measured("pin_entries"):
            return self._store.pin_entries(namespace, entry_ids, pinned)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``."""
        with self._measured("delete_entries"):
            return self._store.delete_entries(namespace, entry_ids)

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``."""
        with self._measured("delete_namespace"):
            return self._store.delete_namespace(namespace)

    def get_stats(self, namespace: str) -> StoreStats:
        """See ``LatentStore``."""
        with self._measured("get_stats"):
            return self._store.get_stats(namespace)

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        started = time.perf_counter()
        outcome = "INTERNAL"
        try:
            yield
            outcome = "OK"
        except SkipstoneError as error:
            outcome = error.reason
            raise
        finally:
            self._operations.labels(operation, outcome).inc()
            self._seconds.labels(operation).observe(time.perf_counter() - started)
