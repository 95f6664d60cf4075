"""What a latent store answers, as plain dataclasses: the same from a local and a remote store.

Times are seconds since the epoch (UTC), sizes bytes.
"""

from __future__ import annotations

import dataclasses
from enum import Enum

from skipstone_shared.latents import LatentRef, SnapshotMetadata

DEFAULT_LEASE_S = 600.0
"""Lease of an uncommitted entry when the writer names none."""

MIN_LEASE_S = 1.0
MAX_LEASE_S = 86_400.0
MAX_CHUNK_BYTES = 1 << 20
"""Largest data in one message of a stream: 1 MiB, the fastest chunk measured on loopback."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """One snapshot without its bytes."""

    ref: LatentRef
    metadata: SnapshotMetadata


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot with its bytes: all parts concatenated in the order of ``metadata.parts``."""

    ref: LatentRef
    metadata: SnapshotMetadata
    data: bytes | bytearray | memoryview


@dataclasses.dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry as stored; ``lease_expire_time`` is None once it is committed."""

    entry_id: str
    snapshots: tuple[StoredSnapshot, ...]
    create_time: float
    access_time: float
    read_count: int = 0
    committed: bool = False
    lease_expire_time: float | None = None
    pinned: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of all its snapshots."""
        return sum(snapshot.ref.size_bytes for snapshot in self.snapshots)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredEntryPage:
    """One page of a listing; an empty token means that it was the last."""

    entries: tuple[StoredEntry, ...]
    next_page_token: str = ""


class EvictionKind(Enum):
    """Why an entry was removed; GAP means that events were lost and a reconcile is due."""

    GAP = "gap"
    CAPACITY = "capacity"
    EXPIRED = "expired"
    DELETED = "deleted"
    CORRUPT = "corrupt"
    LEASE_ENDED = "lease_ended"


@dataclasses.dataclass(frozen=True, slots=True)
class EvictionEvent:
    """One removal; ``sequence`` ascends and survives restarts."""

    sequence: int
    kind: EvictionKind
    namespace: str = ""
    entry_id: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts of one namespace; ``disk_bytes`` and ``evicted_count`` are of the whole store."""

    entry_count: int
    uncommitted_count: int
    snapshot_count: int
    size_bytes: int
    quota_bytes: int = 0
    disk_bytes: int = 0
    evicted_count: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """Engine and limits; ``durability`` is what a write survives: process, power or none."""

    engine: str
    max_snapshot_bytes: int
    durability: str
    max_chunk_bytes: int = MAX_CHUNK_BYTES
    max_batch_size: int = 1000
    min_lease_s: float = MIN_LEASE_S
    max_lease_s: float = MAX_LEASE_S
