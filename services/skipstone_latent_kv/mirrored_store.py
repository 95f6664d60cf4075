"""A store that is about to be replaced: it serves, and what is written goes to the next one too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter
from prometheus_client.registry import Collector

from skipstone_latent_kv import incoming
from skipstone_latent_kv.entry_locks import EntryLocks
from skipstone_latent_kv.forwarding_store import ForwardingStore
from skipstone_latent_kv.movable_store import MovableStore
from skipstone_latent_kv.store_metrics import StoreTotals
from skipstone_shared.errors import (
    DeadlineExceeded,
    EntryNotFound,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.latents import LatentRef, SnapshotMetadata, checked_namespace
from skipstone_shared.stored_entries import StoredEntry
from skipstone_shared.structured_logging import get_logger

_AWAY_S = 5.0
"""After the target did not answer, for how long no write waits for it again."""


class MirroredStore(ForwardingStore):
    """A ``LatentStore`` around the source; its mutations are repeated on the target.

    The source alone decides and answers: until the switch nobody depends on the target. A write
    that the target does not take is counted as missed, and its entry is copied by a later pass
    (`StoreMover`). A deletion is made in the target first and fails with it, so that what was said
    to be deleted is nowhere. Evictions of the source are not repeated; a pass removes what they
    took.
    """

    def __init__(
        self,
        source: MovableStore,
        target: MovableStore,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps both stores and closes them with itself.

        Args:
            source: Serves.
            target: Gets what is written.
            monotonic: Seconds since any time.
        """
        super().__init__(source)
        self.source = source
        self.target = target
        self.locks = EntryLocks()
        self.pinning = threading.Lock()
        """Held while pins change, and while a mover carries them over."""
        self._monotonic = monotonic
        self._away_until = 0.0
        self._missed_writes = 0
        self._lock = threading.Lock()
        self._logger = get_logger()
        self._missed = Counter(
            "skipstone_latent_kv_migration_missed_writes_total",
            "Writes that the store which entries move to did not take.",
            registry=None,
        )

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metric, to be registered by the server."""
        return (self._missed,)

    @property
    def missed_writes(self) -> int:
        """Writes that reached the source alone, since the start."""
        return self._missed_writes

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
        limits = self.source.get_capabilities()
        received: bytes | memoryview = b""
        if size_bytes <= limits.max_snapshot_bytes:  # else the source refuses it in its own words
            incoming.check_header(metadata, size_bytes, lease_s, limits)
            # Before anything is locked: callers may be slow, and both stores need all bytes.
            received = incoming.receive(metadata, data, size_bytes, xxh3_64)

        def write(store: MovableStore) -> LatentRef:
            return store.write_latent(
                namespace,
                metadata,
                [received],
                size_bytes=size_bytes,
                xxh3_64=xxh3_64,
                lease_s=lease_s,
            )

        # In one order in both: of two writes of a step the same one must win.
        with self.locks.hold(key):
            ref = write(self.source)
            self._mirror("write_latent", lambda: write(self.target))
        return ref

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        entry = self.source.commit_entry(namespace, entry_id)
        self._mirror("commit_entry", lambda: self.target.commit_entry(namespace, entry_id))
        return entry

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        end = self.source.renew_lease(namespace, entry_id, lease_s)
        self._mirror("renew_lease", lambda: self.target.renew_lease(namespace, entry_id, lease_s))
        return end

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""
        with self.pinning:
            found = self.source.pin_entries(namespace, entry_ids, pinned)
            self._mirror(
                "pin_entries", lambda: self.target.pin_entries(namespace, entry_ids, pinned)
            )
        return found

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``; fails when either store cannot do it, and may be repeated."""
        incoming.check_batch(entry_ids, self.source.get_capabilities())
        self.target.delete_entries(namespace, entry_ids)
        return self.source.delete_entries(namespace, entry_ids)

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``; fails when either store cannot do it, and may be repeated."""
        self.target.delete_namespace(namespace)
        return self.source.delete_namespace(namespace)

    def totals(self) -> StoreTotals:
        """What the source holds."""
        return self.source.totals()

    def sweep(self) -> int:
        """Sweeps both stores; returns how many entries of the source had ended."""
        ended = self.source.sweep()
        try:
            self.target.sweep()
        except SkipstoneError as error:
            self._logger.warning("sweep of the target failed", error=error.message)
        return ended

    def close(self) -> None:
        """See ``LatentStore``."""
        self.source.close()
        self.target.close()

    def _mirror(self, operation: str, repeat: Callable[[], object]) -> None:
        """Repeats a write on the target; what it does not take is counted, and nobody is told."""
        if self._monotonic() < self._away_until:
            self._count_missed()
            return
        try:
            repeat()
        except EntryNotFound:
            pass  # It has not been copied yet.
        except SkipstoneError as error:
            self._count_missed()
            self._logger.warning(
                "the target missed a write", operation=operation, error=error.message
            )
            if isinstance(error, Unavailable | DeadlineExceeded):
                self._away_until = self._monotonic() + _AWAY_S

    def _count_missed(self) -> None:
        with self._lock:
            self._missed_writes += 1
        self._missed.inc()
