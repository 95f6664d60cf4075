"""A store that is about to be replaced: it serves, and what is written goes to the next one too."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from prometheus_client.registry import Collector

from skipstone_latent_kv import incoming
from skipstone_latent_kv.entry_locks import EntryLocks
from skipstone_latent_kv.forwarding_store import ForwardingStore
from skipstone_latent_kv.movable_store import MovableStore
from skipstone_latent_kv.store_metrics import StoreTotals
from skipstone_shared.errors import EntryNotFound, FingerprintMismatch, SkipstoneError
from skipstone_shared.latents import LatentRef, SnapshotMetadata, checked_namespace
from skipstone_shared.migration_mirror import Mirror
from skipstone_shared.stored_entries import StoredEntry
from skipstone_shared.structured_logging import get_logger

_BOUND_S = 1.0
"""Seconds that a write may wait for the target: less than an executor gives it, so that the write
that finds out that the target hangs is not lost either."""

_NAMESPACE_BOUND_S = 10.0
_CLOSE_BOUND_S = 10.0


class MirroredStore(ForwardingStore):
    """A ``LatentStore`` around the source; its mutations are repeated on the target.

    The source alone decides and answers: until the switch nobody depends on the target. A write
    that the target does not take in time is counted as missed, and its entry is copied by a later
    pass (`StoreMover`). A deletion is made in the target first and fails with it, so that what was
    said to be deleted is nowhere. Evictions of the source are not repeated; a pass removes what
    they took.
    """

    def __init__(
        self, source: MovableStore, target: MovableStore, mirror: Mirror | None = None
    ) -> None:
        """Wraps both stores and closes them with itself.

        Args:
            source: Serves.
            target: Gets what is written.
            mirror: Asks the target; None for one that waits 1 s for it.
        """
        super().__init__(source)
        self.source = source
        self.target = target
        self.mirror = mirror or Mirror("latent_kv", _BOUND_S)
        self.locks = EntryLocks()
        """Held by who changes entries in both, so that nothing comes between the two halves."""
        self._sweep_of_target: threading.Thread | None = None

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metric, to be registered by the server."""
        return self.mirror.collectors

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
        namespace = checked_namespace(namespace)
        limits = self.source.get_capabilities()
        received: bytes | memoryview = b""
        if size_bytes <= limits.max_snapshot_bytes:  # else the source refuses it in its own words
            incoming.check_header(metadata, size_bytes, lease_s, limits)
            # Before anything is locked: callers may be slow, and both stores need all bytes.
            received = incoming.receive(metadata, data, size_bytes, xxh3_64)

        def write(store: MovableStore, data: bytes | memoryview, checksum: int) -> LatentRef:
            return store.write_latent(
                namespace,
                metadata,
                [data],
                size_bytes=size_bytes,
                xxh3_64=checksum,
                lease_s=lease_s,
            )

        def repeat(ref: LatentRef) -> None:
            if write(self.target, received, xxh3_64) == ref:
                return
            # The source keeps fewer bits; what it gives back is what was promised.
            kept = memoryview(self.source.peek_latent(namespace, ref).data)
            if write(self.target, kept, ref.xxh3_64) != ref:
                raise FingerprintMismatch("the target's codec changes its bytes")

        with self._hold(namespace, [metadata.entry_id]):
            return self.mirror.write(
                "write_latent",
                lambda: write(self.source, received, xxh3_64),
                repeat,
                size_bytes,
            )

    def commit_entry(self, namespace: str, entry_id: str) -> StoredEntry:
        """See ``LatentStore``."""
        with self._hold(namespace, [entry_id]):
            return self.mirror.write(
                "commit_entry",
                lambda: self.source.commit_entry(namespace, entry_id),
                lambda _: self.target.commit_entry(namespace, entry_id),
            )

    def renew_lease(self, namespace: str, entry_id: str, lease_s: float) -> float | None:
        """See ``LatentStore``."""
        with self._hold(namespace, [entry_id]):
            return self.mirror.write(
                "renew_lease",
                lambda: self.source.renew_lease(namespace, entry_id, lease_s),
                lambda _: self.target.renew_lease(namespace, entry_id, lease_s),
            )

    def pin_entries(self, namespace: str, entry_ids: Sequence[str], pinned: bool) -> list[bool]:
        """See ``LatentStore``."""

        def repeat(found: list[bool]) -> None:
            there = self.target.pin_entries(namespace, entry_ids, pinned)
            if lost := sum(here and not copied for here, copied in zip(found, there, strict=True)):
                raise EntryNotFound(f"{lost} of the entries are not there yet")

        incoming.check_batch(entry_ids, self.source.get_capabilities())
        with self._hold(namespace, entry_ids):
            return self.mirror.write(
                "pin_entries",
                lambda: self.source.pin_entries(namespace, entry_ids, pinned),
                repeat,
            )

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """See ``LatentStore``; fails when either store cannot do it, and may be repeated."""
        incoming.check_batch(entry_ids, self.source.get_capabilities())
        # Not while one is written or copied, which would bring it back.
        with self._hold(namespace, entry_ids):
            return self.mirror.delete(
                lambda: self.target.delete_entries(namespace, entry_ids),
                lambda: self.source.delete_entries(namespace, entry_ids),
            )

    def delete_namespace(self, namespace: str) -> int:
        """See ``LatentStore``; fails when either store cannot do it, and may be repeated."""
        with self.locks.hold_namespace(checked_namespace(namespace)):
            return self.mirror.delete(
                lambda: self.target.delete_namespace(namespace),
                lambda: self.source.delete_namespace(namespace),
                _NAMESPACE_BOUND_S,
            )

    def totals(self) -> StoreTotals:
        """What the source holds."""
        return self.source.totals()

    def sweep(self) -> int:
        """Sweeps both stores; returns how many entries of the source had ended.

        The target is swept beside, so that one that hangs does not keep the source from it.
        """
        if self._sweep_of_target is None or not self._sweep_of_target.is_alive():
            self._sweep_of_target = threading.Thread(
                target=self._sweep_target, name="sweep of the target", daemon=True
            )
            self._sweep_of_target.start()
        return self.source.sweep()

    def close(self) -> None:
        """See ``LatentStore``."""
        self.source.close()
        if self._sweep_of_target is not None:
            self._sweep_of_target.join(_CLOSE_BOUND_S)
        self.mirror.close(self.target.close, _CLOSE_BOUND_S)

    def _hold(self, namespace: str, entry_ids: Iterable[str]) -> AbstractContextManager[None]:
        held = checked_namespace(namespace)
        return self.locks.hold(*((held, entry_id) for entry_id in entry_ids))

    def _sweep_target(self) -> None:
        try:
            self.target.sweep()
        except SkipstoneError as error:
            get_logger().warning("sweep of the target failed", error=error.message)
