"""What the executor needs of a latent store; `skipstone_client.latent_kv` satisfies it by shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from skipstone_shared.latents import LatentRef, SnapshotMetadata
from skipstone_shared.stored_entries import Snapshot


class LatentStore(Protocol):
    """Reads and writes single snapshots. Methods may be called from several threads at once.

    Calls end by the deadline of the current request context (`skipstone_shared.request_context`).
    """

    def read_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """Reads one snapshot with its bytes.

        Raises:
            LatentNotFound: no such snapshot; normal.
            FingerprintMismatch: what is stored is not what the reference names.
            Unavailable: the store cannot be reached.
            DeadlineExceeded: the time is over.
        """
        ...

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
        """Writes one snapshot, replacing an older one with the same id; visible only when complete.

        `data` are the bytes of all parts, cut anywhere; the reference comes with an empty store.

        Raises:
            DataCorrupt: the bytes do not match the checksum.
            QuotaExceeded: the store may not hold more.
            Unavailable: the store cannot be reached.
            DeadlineExceeded: the time is over.
        """
        ...


class LatentStores(Protocol):
    """The stores an executor may be pointed at."""

    def __call__(self, target: str) -> LatentStore:
        """The store at a gRPC target; the configured one when the target is empty.

        Raises:
            Unavailable: none is configured, or too many different ones are in use.
        """
        ...
