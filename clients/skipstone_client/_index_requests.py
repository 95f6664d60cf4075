"""What the synchronous and the asynchronous client of vector_index share."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.vector_index.v1 import vector_index_pb2 as pb
from skipstone_client._paging import checked_page_size
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.grpc_errors import from_status
from skipstone_shared.index_entries import Vector, VectorEntry
from skipstone_shared.index_entry_messages import vector_entry_to_message
from skipstone_shared.optional_fields import new_message
from skipstone_shared.tensor_messages import vector_bytes


def upsert_request(
    namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
) -> pb.UpsertEntriesRequest:
    """The request that stores entries."""
    return new_message(
        pb.UpsertEntriesRequest,
        namespace=namespace,
        compatibility_key=compatibility_key,
        entries=[vector_entry_to_message(entry) for entry in entries],
    )


def upsert_errors(response: pb.UpsertEntriesResponse) -> list[SkipstoneError | None]:
    """Per entry None, or why it was not stored."""
    return [from_status(status) if status.code else None for status in response.statuses]


def search_request(
    namespace: str,
    compatibility_key: str,
    queries: Sequence[Vector],
    top_k: int,
    min_similarity: float | None,
    embedding_model_id: str,
) -> pb.SearchEntriesRequest:
    """The request that searches."""
    return new_message(
        pb.SearchEntriesRequest,
        namespace=namespace,
        compatibility_key=compatibility_key,
        queries=[vector_bytes(query) for query in queries],
        top_k=top_k,
        min_similarity=min_similarity,
        embedding_model_id=embedding_model_id,
    )


def get_request(namespace: str, entry_id: str, include_vector: bool) -> pb.GetEntryRequest:
    """The request of one entry."""
    return new_message(
        pb.GetEntryRequest,
        namespace=namespace,
        entry_id=entry_id,
        include_vector=include_vector,
    )


def list_request(
    namespace: str, compatibility_key: str, page_size: int, page_token: str
) -> pb.ListEntriesRequest:
    """The request of one page."""
    return new_message(
        pb.ListEntriesRequest,
        namespace=namespace,
        compatibility_key=compatibility_key,
        page_size=checked_page_size(page_size),
        page_token=page_token,
    )


def namespaces_request(page_size: int, page_token: str) -> pb.ListNamespacesRequest:
    """The request of one page of namespaces."""
    return new_message(
        pb.ListNamespacesRequest, page_size=checked_page_size(page_size), page_token=page_token
    )
