"""What every store of snapshots promises: the Protocol that services and clients work with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self

from skipstone_shared.latents import LatentRef, SnapshotMetadata
from skipstone_shared.stored_entries import (
    EvictionEvent,
    Snapshot,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)


class EvictionWatch(Iterator[EvictionEvent], Protocol):
    """Removals as they happen. ``next`` waits; it raises StopIteration once the watch is closed."""

    def __iter__(self) -> Self:
        """The watch itself."""
        ...

    def close(self) -> None:
        """Ends the watch; may be called from any thread, also while another waits in ``next``."""
        ...


class LatentStore(Protocol):
    """Snapshots of entries, by namespace, entry id and step index.

    Contract, tested by ``tests/contract/test_latent_store.py`` for every implementation:

    Visibility. A snapshot can be read only when all its bytes have arrived, match their checksum
    and are finite. Writing a step again replaces it atomically: a reader gets the old snapshot or
    the new one, whole. A write that fails leaves what was there before. When ``write_latent`` has
    returned, every later read sees the snapshot, also after a kill of the process (stores that keep
    nothing on disk excepted).

    Entries. The first write creates an entry, uncommitted, under a lease. It can be read by id at
    once but is not listed by default; when the lease ends before ``commit_entry`` it is gone,
    whether or not a sweep has already freed its space. Snapshots live and die with their entry: an
    eviction never leaves part of one.

    Removal. To stay within a quota the store removes committed entries, in the order of its
    eviction policy (reads and writes count as use); never pinned ones, uncommitted ones, or the
    entry that is being written. It refuses a write only when no such removal makes room. Committed
    entries may have a time to live, counted from their creation, that does not bind pinned ones. An
    entry whose bytes turn out to be corrupt is removed and reads as not there. Every removal is one
    eviction event.

    Reading. ``access_time`` and ``read_count`` may lag on disk: a crash can lose the last seconds
    of them, nothing else.

    Threads. Every method may be called from any thread. Data that a read returned stays valid and
    unchanged whatever happens to the entry. After ``close`` every method raises ``Unavailable``.

    Codecs. A store may be told to keep floating tensors in fewer bits. What is read then differs
    from what was written, in the same dtype and shape; the reference that ``write_latent`` returned
    carries the checksum of what is read. By default nothing differs.

    Arguments. An empty namespace means ``default``. A bad namespace, entry id, lease, page size,
    page token or batch size raises ``InvalidArgument`` and changes nothing.
    """

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
        """Stores one snapshot, replacing the one at the same step.

        Args:
            namespace: Namespace of the entry.
            metadata: What is written.
            data: The bytes of all parts, concatenated and cut anywhere. An error that it raises
                passes through, and nothing is stored.
            size_bytes: Number of bytes of all parts together.
            xxh3_64: Their checksum (XXH3, 64 bit, seed 0).
            lease_s: Lease of an entry that is new or uncommitted, in seconds from now; None for
                DEFAULT_LEASE_S. A committed entry stays committed.

        Returns:
            The reference, with an empty ``store``.

        Raises:
            InvalidArgument: bad metadata, more or fewer bytes than the parts need, or a value that
                is NaN or infinite.
            DataCorrupt: the bytes do not match the checksum.
            QuotaExceeded: the snapshot does not fit into a quota even when all that may be removed
                is removed.
            ResourceExhausted: the disk is full.
        """
        ...

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """Reads one snapshot; its checksum has been verified.

        Args:
            namespace: Namespace of the entry; must equal ``ref.namespace`` where that is set.
            ref: What to read. ``spec``, ``size_bytes`` and ``xxh3_64`` are compared when set.

        Raises:
            LatentNotFound: no such snapshot, or it was corrupt and has been removed. Normal.
            FingerprintMismatch: another spec or checksum is stored than the reference names.
            InvalidArgument: a bad reference.
        """
        ...

    def touch_latent(self, namespace: str, ref: LatentRef) -> StoredSnapshot:
        """A read without the bytes, for a caller that holds them and asks whether they still count.

        It counts as a read. The bytes are not looked at: that they are sound is not said.

        Args:
            namespace: As for ``read_latent``.
            ref: As for ``read_latent``.

        Raises:
            LatentNotFound: no such snapshot. Normal.
            FingerprintMismatch: another spec or checksum is stored than the reference names.
            InvalidArgument: a bad reference.
        """
        ...

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """Makes an entry permanent. Idempotent.

        Raises:
            EntryNotFound: no such entry, or its lease ended.
        """
        ...

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """Sets the lease of an uncommitted entry, in seconds from now.

        Returns:
            When the lease ends (seconds since the epoch); None when the entry is committed.

        Raises:
            EntryNotFound: no such entry, or its lease ended.
        """
        ...

    def get_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """An entry, committed or not, with its snapshots by ascending step but without bytes.

        Raises:
            EntryNotFound: no such entry. Normal.
        """
        ...

    def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
    ) -> StoredEntryPage:
        """Entries by ascending id, from after ``page_token``.

        Entries that exist during the whole listing appear exactly once.

        Args:
            namespace: Namespace to list.
            page_size: Entries wanted, 1 to 1000; a store may return fewer although more follow.
            page_token: ``next_page_token`` of the page before; empty for the first.
            include_uncommitted: List uncommitted entries too.
        """
        ...

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """Protects entries from eviction and time to live, or ends that.

        A pin survives restarts. It does not extend the lease of an uncommitted entry.

        Returns:
            One per id, in order: False when there is no such entry.
        """
        ...

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries with all their snapshots, pinned or not.

        Returns:
            One per id, in order: whether the entry was there.
        """
        ...

    def delete_namespace(self, namespace: str) -> int:
        """Removes every entry of a namespace and returns how many there were."""
        ...

    def get_stats(self, namespace: str) -> StoreStats:
        """Counts and bytes of a namespace."""
        ...

    def get_capabilities(self) -> StoreCapabilities:
        """Engine and limits."""
        ...

    def watch_evictions(self, namespace: str, after_sequence: int = 0) -> EvictionWatch:
        """Removals after a sequence number, as they happen.

        When events after ``after_sequence`` are no longer kept, the first event is a GAP: the
        watcher must reconcile by listing. Its sequence number is that of the last event lost.

        Args:
            namespace: Namespace to watch; empty for all.
            after_sequence: Number of the last event seen; 0 for only what happens from now on.

        Raises:
            InvalidArgument: a negative number, or one that no event has had yet.
        """
        ...

    def close(self) -> None:
        """Flushes, ends all watches and frees the storage. Idempotent."""
        ...
