"""Dataclasses of ``index_entries`` <-> messages of ``skipstone/vector_index/v1``."""

from __future__ import annotations

from collections.abc import Iterable

from skipstone.vector_index.v1 import vector_index_pb2
from skipstone_shared.index_entries import (
    IndexCapabilities,
    IndexEntry,
    IndexPage,
    IndexStats,
    LocatedEntry,
    NamespacePage,
    PackedHit,
    SearchHit,
    VectorEntry,
)
from skipstone_shared.latent_messages import ref_from_message, ref_to_message
from skipstone_shared.latents import checked_entry_id
from skipstone_shared.optional_fields import new_message
from skipstone_shared.tensor_messages import vector_bytes, vector_from_bytes
from skipstone_shared.timestamp_messages import timestamp_from_message, timestamp_to_message


def index_entry_to_message(entry: IndexEntry) -> vector_index_pb2.IndexEntry:
    """The message of an entry; a create time of 0 stays unset."""
    return new_message(
        vector_index_pb2.IndexEntry,
        entry_id=entry.entry_id,
        prompt=entry.prompt,
        seed=entry.seed,
        snapshots=[ref_to_message(ref) for ref in entry.snapshots],
        depth=entry.depth,
        create_time=timestamp_to_message(entry.create_time) if entry.create_time else None,
        embedding_model_id=entry.embedding_model_id,
        labels=entry.labels,
    )


def index_entry_from_message(message: vector_index_pb2.IndexEntry) -> IndexEntry:
    """The entry of a message.

    Raises:
        InvalidArgument: a bad entry id or reference.
    """
    return IndexEntry(
        entry_id=checked_entry_id(message.entry_id),
        prompt=message.prompt,
        seed=message.seed,
        snapshots=tuple(ref_from_message(ref) for ref in message.snapshots),
        depth=message.depth,
        create_time=(
            timestamp_from_message(message.create_time) if message.HasField("create_time") else 0.0
        ),
        embedding_model_id=message.embedding_model_id,
        labels=dict(message.labels),
    )


def pack_entry(entry: IndexEntry) -> bytes:
    """An entry as bytes that can be stored and sent without being looked into.

    Raises:
        InvalidArgument: a value that does not fit in its field.
    """
    return index_entry_to_message(entry).SerializeToString()


def unpack_entry(packed: bytes) -> IndexEntry:
    """The entry that `pack_entry` packed."""
    return index_entry_from_message(vector_index_pb2.IndexEntry.FromString(packed))


def vector_entry_to_message(entry: VectorEntry) -> vector_index_pb2.VectorEntry:
    """The message of an entry with its vector."""
    return new_message(
        vector_index_pb2.VectorEntry,
        entry=index_entry_to_message(entry.entry),
        vector=vector_bytes(entry.vector),
    )


def vector_entry_from_message(message: vector_index_pb2.VectorEntry) -> VectorEntry:
    """The entry with its vector of a message; the vector is read-only.

    Raises:
        InvalidArgument: a bad entry, or a vector that is empty or not of 4-byte elements.
    """
    return VectorEntry(index_entry_from_message(message.entry), vector_from_bytes(message.vector))


def packed_hits_to_message(hits: Iterable[PackedHit]) -> vector_index_pb2.SearchResult:
    """The message of the hits of one query."""
    result = vector_index_pb2.SearchResult()
    for hit in hits:
        result.hits.add(similarity=hit.similarity).entry.ParseFromString(hit.packed)
    return result


def hits_from_message(message: vector_index_pb2.SearchResult) -> list[SearchHit]:
    """The hits of one query of a message."""
    return [SearchHit(index_entry_from_message(h.entry), h.similarity) for h in message.hits]


def located_entry_to_message(located: LocatedEntry) -> vector_index_pb2.GetEntryResponse:
    """The message of an entry and its partition."""
    return vector_index_pb2.GetEntryResponse(
        entry=index_entry_to_message(located.entry),
        compatibility_key=located.compatibility_key,
        vector=b"" if located.vector is None else vector_bytes(located.vector),
    )


def located_entry_from_message(message: vector_index_pb2.GetEntryResponse) -> LocatedEntry:
    """The entry and its partition of a message."""
    return LocatedEntry(
        index_entry_from_message(message.entry),
        message.compatibility_key,
        vector_from_bytes(message.vector) if message.vector else None,
    )


def index_page_to_message(page: IndexPage) -> vector_index_pb2.ListEntriesResponse:
    """The message of one page."""
    return vector_index_pb2.ListEntriesResponse(
        entries=[index_entry_to_message(e) for e in page.entries],
        next_page_token=page.next_page_token,
    )


def index_page_from_message(message: vector_index_pb2.ListEntriesResponse) -> IndexPage:
    """The page of a message."""
    return IndexPage(
        tuple(index_entry_from_message(e) for e in message.entries), message.next_page_token
    )


def namespace_page_to_message(page: NamespacePage) -> vector_index_pb2.ListNamespacesResponse:
    """The message of one page of namespaces."""
    return vector_index_pb2.ListNamespacesResponse(
        namespaces=page.namespaces, next_page_token=page.next_page_token
    )


def namespace_page_from_message(message: vector_index_pb2.ListNamespacesResponse) -> NamespacePage:
    """The page of namespaces of a message."""
    return NamespacePage(tuple(message.namespaces), message.next_page_token)


def index_stats_to_message(stats: IndexStats) -> vector_index_pb2.GetStatsResponse:
    """The message of a namespace's counts."""
    return vector_index_pb2.GetStatsResponse(
        entry_count=stats.entry_count,
        partition_count=stats.partition_count,
        tombstone_count=stats.tombstone_count,
        disk_bytes=stats.disk_bytes,
    )


def index_stats_from_message(message: vector_index_pb2.GetStatsResponse) -> IndexStats:
    """The counts of a message."""
    return IndexStats(
        entry_count=message.entry_count,
        partition_count=message.partition_count,
        tombstone_count=message.tombstone_count,
        disk_bytes=message.disk_bytes,
    )


def index_capabilities_to_message(
    capabilities: IndexCapabilities,
) -> vector_index_pb2.GetCapabilitiesResponse:
    """The message of an index's engine and limits."""
    return vector_index_pb2.GetCapabilitiesResponse(
        engine=capabilities.engine,
        max_top_k=capabilities.max_top_k,
        max_batch_size=capabilities.max_batch_size,
        exact_search_limit=capabilities.exact_search_limit,
        max_dimension=capabilities.max_dimension,
        metric=capabilities.metric,
    )


def index_capabilities_from_message(
    message: vector_index_pb2.GetCapabilitiesResponse,
) -> IndexCapabilities:
    """The engine and limits of a message."""
    return IndexCapabilities(
        engine=message.engine,
        max_top_k=message.max_top_k,
        max_batch_size=message.max_batch_size,
        exact_search_limit=message.exact_search_limit,
        max_dimension=message.max_dimension,
        metric=message.metric or "cosine",
    )
