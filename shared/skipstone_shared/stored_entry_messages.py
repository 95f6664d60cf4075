"""Dataclasses of ``stored_entries`` <-> messages of ``skipstone/latent_kv/v1``."""

from __future__ import annotations

from skipstone.latent_kv.v1 import latent_kv_pb2
from skipstone_shared.enum_messages import required_enum
from skipstone_shared.generation_messages import duration_from_message, duration_to_message
from skipstone_shared.latent_messages import (
    metadata_from_message,
    metadata_to_message,
    ref_from_message,
    ref_to_message,
)
from skipstone_shared.stored_entries import (
    EvictionEvent,
    EvictionKind,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)
from skipstone_shared.timestamp_messages import timestamp_from_message, timestamp_to_message

WATCH_READY = (("x-skipstone-watch", "ready"),)
"""Initial metadata that a server of WatchEvictions sends as soon as it watches."""

_KIND_TO_MESSAGE: dict[EvictionKind, latent_kv_pb2.EvictionKind.ValueType] = {
    EvictionKind.GAP: latent_kv_pb2.EVICTION_KIND_GAP,
    EvictionKind.CAPACITY: latent_kv_pb2.EVICTION_KIND_CAPACITY,
    EvictionKind.EXPIRED: latent_kv_pb2.EVICTION_KIND_EXPIRED,
    EvictionKind.DELETED: latent_kv_pb2.EVICTION_KIND_DELETED,
    EvictionKind.CORRUPT: latent_kv_pb2.EVICTION_KIND_CORRUPT,
    EvictionKind.LEASE_ENDED: latent_kv_pb2.EVICTION_KIND_LEASE_ENDED,
}
_KIND_FROM_MESSAGE: dict[int, EvictionKind] = {
    message: kind for kind, message in _KIND_TO_MESSAGE.items()
}


def stored_snapshot_to_message(snapshot: StoredSnapshot) -> latent_kv_pb2.StoredSnapshot:
    """The message of a snapshot without its bytes."""
    return latent_kv_pb2.StoredSnapshot(
        ref=ref_to_message(snapshot.ref), metadata=metadata_to_message(snapshot.metadata)
    )


def stored_snapshot_from_message(message: latent_kv_pb2.StoredSnapshot) -> StoredSnapshot:
    """The snapshot without its bytes of a message.

    Raises:
        InvalidArgument: a bad reference or bad metadata.
    """
    return StoredSnapshot(ref_from_message(message.ref), metadata_from_message(message.metadata))


def stored_entry_to_message(entry: StoredEntry) -> latent_kv_pb2.StoredEntry:
    """The message of a stored entry."""
    lease_end = entry.lease_expire_time
    return latent_kv_pb2.StoredEntry(
        entry_id=entry.entry_id,
        snapshots=[stored_snapshot_to_message(s) for s in entry.snapshots],
        create_time=timestamp_to_message(entry.create_time),
        access_time=timestamp_to_message(entry.access_time),
        read_count=entry.read_count,
        committed=entry.committed,
        lease_expire_time=timestamp_to_message(lease_end) if lease_end is not None else None,
        pinned=entry.pinned,
        size_bytes=entry.size_bytes,
    )


def stored_entry_from_message(message: latent_kv_pb2.StoredEntry) -> StoredEntry:
    """The stored entry of a message.

    Raises:
        InvalidArgument: a snapshot with a bad reference or bad metadata.
    """
    return StoredEntry(
        entry_id=message.entry_id,
        snapshots=tuple(stored_snapshot_from_message(s) for s in message.snapshots),
        create_time=timestamp_from_message(message.create_time),
        access_time=timestamp_from_message(message.access_time),
        read_count=message.read_count,
        committed=message.committed,
        lease_expire_time=(
            timestamp_from_message(message.lease_expire_time)
            if message.HasField("lease_expire_time")
            else None
        ),
        pinned=message.pinned,
    )


def stored_page_to_message(page: StoredEntryPage) -> latent_kv_pb2.ListEntriesResponse:
    """The message of one page."""
    return latent_kv_pb2.ListEntriesResponse(
        entries=[stored_entry_to_message(e) for e in page.entries],
        next_page_token=page.next_page_token,
    )


def stored_page_from_message(message: latent_kv_pb2.ListEntriesResponse) -> StoredEntryPage:
    """The page of a message."""
    return StoredEntryPage(
        tuple(stored_entry_from_message(e) for e in message.entries), message.next_page_token
    )


def eviction_to_message(event: EvictionEvent) -> latent_kv_pb2.WatchEvictionsResponse:
    """The message of one removal."""
    return latent_kv_pb2.WatchEvictionsResponse(
        sequence=event.sequence,
        kind=_KIND_TO_MESSAGE[event.kind],
        namespace=event.namespace,
        entry_id=event.entry_id,
    )


def eviction_from_message(message: latent_kv_pb2.WatchEvictionsResponse) -> EvictionEvent:
    """The removal of a message.

    Raises:
        InvalidArgument: a kind this version does not know.
    """
    return EvictionEvent(
        sequence=message.sequence,
        kind=required_enum(_KIND_FROM_MESSAGE, message.kind, "kind"),
        namespace=message.namespace,
        entry_id=message.entry_id,
    )


def store_stats_to_message(stats: StoreStats) -> latent_kv_pb2.GetStatsResponse:
    """The message of a namespace's counts."""
    return latent_kv_pb2.GetStatsResponse(
        entry_count=stats.entry_count,
        uncommitted_count=stats.uncommitted_count,
        snapshot_count=stats.snapshot_count,
        size_bytes=stats.size_bytes,
        quota_bytes=stats.quota_bytes,
        disk_bytes=stats.disk_bytes,
        evicted_count=stats.evicted_count,
    )


def store_stats_from_message(message: latent_kv_pb2.GetStatsResponse) -> StoreStats:
    """The counts of a message."""
    return StoreStats(
        entry_count=message.entry_count,
        uncommitted_count=message.uncommitted_count,
        snapshot_count=message.snapshot_count,
        size_bytes=message.size_bytes,
        quota_bytes=message.quota_bytes,
        disk_bytes=message.disk_bytes,
        evicted_count=message.evicted_count,
    )


def store_capabilities_to_message(
    capabilities: StoreCapabilities,
) -> latent_kv_pb2.GetCapabilitiesResponse:
    """The message of a store's engine and limits."""
    return latent_kv_pb2.GetCapabilitiesResponse(
        engine=capabilities.engine,
        max_chunk_bytes=capabilities.max_chunk_bytes,
        max_snapshot_bytes=capabilities.max_snapshot_bytes,
        max_batch_size=capabilities.max_batch_size,
        min_lease=duration_to_message(capabilities.min_lease_s),
        max_lease=duration_to_message(capabilities.max_lease_s),
        durability=capabilities.durability,
    )


def store_capabilities_from_message(
    message: latent_kv_pb2.GetCapabilitiesResponse,
) -> StoreCapabilities:
    """The engine and limits of a message."""
    return StoreCapabilities(
        engine=message.engine,
        max_chunk_bytes=message.max_chunk_bytes,
        max_snapshot_bytes=message.max_snapshot_bytes,
        max_batch_size=message.max_batch_size,
        min_lease_s=duration_from_message(message.min_lease),
        max_lease_s=duration_from_message(message.max_lease),
        durability=message.durability,
    )
