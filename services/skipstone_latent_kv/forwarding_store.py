"""A store that passes every call on to another: the base of stores that change a few of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skipstone_latent_kv.store import EvictionWatch, LatentStore
from skipstone_shared.latents import LatentRef, SnapshotMetadata
from skipstone_shared.stored_entries import (
    Snapshot,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)


class ForwardingStore:
    """A ``LatentStore`` around another one. Closing it closes the other."""

    def __init__(self, store: LatentStore) -> None:
        """Wraps a store.

        Args:
            store: Does the work.
        """
        self._store = store

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
        return self._store.write_latent(
            namespace, metadata, data, size_bytes=size_bytes, xxh3_64=xxh3_64, lease_s=lease_s
        )

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """See ``LatentStore``."""
        return self._store.read_latent(namespace, ref)

    def touch_latent(self, namespace: str, ref: LatentRef) -> StoredSnapshot:
        """See ``LatentStore``."""
        return self._store.touch_latent(namespace, ref)

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        return self._store.commit_entry(namespace, entry_id)

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        return self._store.renew_lease(namespace, entry_id, lease_s)

    def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        return self._store.get_entry(namespace, entry_id)

    def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        """See ``LatentStore``."""
        return self._store.list_entries(namespace, page_size, page_token, include_uncommitted)

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        return self._store.pin_entries(namespace, entry_ids, pinned)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``."""
        return self._store.delete_entries(namespace, entry_ids)

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``."""
        return self._store.delete_namespace(namespace)

    def get_stats(self, namespace: str) -> StoreStats:
        """See ``LatentStore``."""
        return self._store.get_stats(namespace)

    def get_capabilities(self) -> StoreCapabilities:
        """See ``LatentStore``."""
        return self._store.get_capabilities()

    def watch_evictions(self, namespace: str, after_sequence: int = 0) -> EvictionWatch:
        """See ``LatentStore``."""
        return self._store.watch_evictions(namespace, after_sequence)

    def close(self) -> None:
        """See ``LatentStore``."""
        self._store.close()
