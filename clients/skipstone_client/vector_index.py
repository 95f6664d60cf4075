"""Client of the vector_index service: a remote vector index."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.vector_index.v1 import vector_index_pb2 as pb
from skipstone.vector_index.v1.vector_index_pb2_grpc import VectorIndexStub
from skipstone_client._channel import VECTOR_INDEX
from skipstone_client._index_requests import (
    get_request,
    list_request,
    namespaces_request,
    search_request,
    upsert_errors,
    upsert_request,
)
from skipstone_client._sync_client import SyncClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.index_entries import (
    IndexCapabilities,
    IndexPage,
    IndexStats,
    LocatedEntry,
    NamespacePage,
    SearchHit,
    Vector,
    VectorEntry,
)
from skipstone_shared.index_entry_messages import (
    hits_from_message,
    index_capabilities_from_message,
    index_page_from_message,
    index_stats_from_message,
    located_entry_from_message,
    namespace_page_from_message,
)
from skipstone_shared.optional_fields import new_message


class VectorIndexClient(SyncClient[VectorIndexStub]):
    """A vector index behind gRPC. It is a ``VectorIndex``: same methods, same errors."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 10.0,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target of the service.
            timeout_s: Deadline of a call that gives none of its own, in seconds.
            credentials: Certificates and token; None: none, in plain text.
        """
        super().__init__(target, VECTOR_INDEX, VectorIndexStub, timeout_s, credentials)

    def upsert_entries(
        self,
        namespace: str,
        compatibility_key: str,
        entries: Sequence[VectorEntry],
        *,
        timeout_s: float | None = None,
    ) -> list[SkipstoneError | None]:
        """Stores entries; one result per entry, in order: None, or why it was not stored."""
        request = upsert_request(namespace, compatibility_key, entries)
        return upsert_errors(self._call(self._stub.UpsertEntries, request, timeout_s))

    def search_entries(
        self,
        namespace: str,
        compatibility_key: str,
        queries: Sequence[Vector],
        top_k: int,
        min_similarity: float | None = None,
        embedding_model_id: str = "",
        *,
        timeout_s: float | None = None,
    ) -> list[list[SearchHit]]:
        """Finds the entries closest to each query, best first."""
        request = search_request(
            namespace, compatibility_key, queries, top_k, min_similarity, embedding_model_id
        )
        response = self._call(self._stub.SearchEntries, request, timeout_s)
        return [hits_from_message(result) for result in response.results]

    def get_entry(
        self,
        namespace: str,
        entry_id: str,
        include_vector: bool = False,
        *,
        timeout_s: float | None = None,
    ) -> LocatedEntry:
        """One entry and the partition it is in; with its vector when asked."""
        request = get_request(namespace, entry_id, include_vector)
        return located_entry_from_message(self._call(self._stub.GetEntry, request, timeout_s))

    def list_entries(
        self,
        namespace: str,
        compatibility_key: str = "",
        page_size: int = 100,
        page_token: str = "",
        *,
        timeout_s: float | None = None,
    ) -> IndexPage:
        """Entries of a partition, or of all of the namespace, a page at a time."""
        request = list_request(namespace, compatibility_key, page_size, page_token)
        return index_page_from_message(self._call(self._stub.ListEntries, request, timeout_s))

    def list_namespaces(
        self, page_size: int = 100, page_token: str = "", *, timeout_s: float | None = None
    ) -> NamespacePage:
        """Namespaces that have entries, ascending, a page at a time."""
        request = namespaces_request(page_size, page_token)
        response = self._call(self._stub.ListNamespaces, request, timeout_s)
        return namespace_page_from_message(response)

    def delete_entries(
        self, namespace: str, entry_ids: Sequence[str], *, timeout_s: float | None = None
    ) -> list[bool]:
        """Removes entries from every partition of the namespace; whether each was there."""
        request = new_message(pb.DeleteEntriesRequest, namespace=namespace, entry_ids=entry_ids)
        return list(self._call(self._stub.DeleteEntries, request, timeout_s).existed)

    def delete_partition(
        self, namespace: str, compatibility_key: str = "", *, timeout_s: float | None = None
    ) -> int:
        """Removes a partition, or all of the namespace; how many entries there were."""
        request = new_message(
            pb.DeletePartitionRequest, namespace=namespace, compatibility_key=compatibility_key
        )
        return self._call(self._stub.DeletePartition, request, timeout_s).deleted_count

    def get_stats(self, namespace: str = "", *, timeout_s: float | None = None) -> IndexStats:
        """Counts of a namespace."""
        request = new_message(pb.GetStatsRequest, namespace=namespace)
        return index_stats_from_message(self._call(self._stub.GetStats, request, timeout_s))

    def get_capabilities(self, *, timeout_s: float | None = None) -> IndexCapabilities:
        """Engine and limits."""
        response = self._call(self._stub.GetCapabilities, pb.GetCapabilitiesRequest(), timeout_s)
        return index_capabilities_from_message(response)
