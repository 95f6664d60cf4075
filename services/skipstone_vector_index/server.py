"""The gRPC face of an index. Validate, convert, call, convert."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc
from google.rpc import status_pb2
from prometheus_client.registry import Collector

from skipstone.vector_index.v1 import vector_index_pb2 as pb
from skipstone.vector_index.v1 import vector_index_pb2_grpc
from skipstone_shared.access import sees_all_namespaces
from skipstone_shared.errors import InvalidArgument, SkipstoneError
from skipstone_shared.grpc_errors import to_status
from skipstone_shared.grpc_server import Mounted
from skipstone_shared.index_entries import PackedHit, VectorEntry
from skipstone_shared.index_entry_messages import (
    index_capabilities_to_message,
    index_page_to_message,
    index_stats_to_message,
    located_entry_to_message,
    namespace_page_to_message,
    packed_hits_to_message,
    vector_entry_from_message,
)
from skipstone_shared.latents import checked_entry_id, checked_namespace
from skipstone_shared.tensor_messages import vector_from_bytes
from skipstone_vector_index.entry_rules import check_count, checked_compatibility_key
from skipstone_vector_index.index import Search, ServedIndex

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["VectorIndex"].full_name
DEFAULT_PAGE_SIZE = 100

Given = TypeVar("Given")
Made = TypeVar("Made")

_MAX_ANSWER_BYTES = 4_000_000
"""A little under the 4 MiB that a gRPC client receives by default: a thousand results have frames
of their own."""

_FRAME_BYTES = 19
"""Of a hit in an answer, beside its packed entry: at most."""


def mount(index: ServedIndex, collectors: Sequence[Collector] = ()) -> Mounted:
    """Returns what the server needs to serve an index; the index is closed with the server."""
    servicer = VectorIndexServicer(index)
    return Mounted(
        register=lambda server: vector_index_pb2_grpc.add_VectorIndexServicer_to_server(
            servicer, server
        ),
        service_names=[SERVICE_NAME],
        on_stop=[index.close],
        collectors=collectors,
    )


class VectorIndexServicer(vector_index_pb2_grpc.VectorIndexServicer):
    """Answers rpcs from an index. Errors leave as exceptions; the interceptor encodes them."""

    def __init__(self, index: ServedIndex) -> None:
        """Creates the servicer.

        Args:
            index: The index; not owned.
        """
        self._index = index

    def GetCapabilities(  # noqa: D102, N802 - the proto is the manual
        self, request: pb.GetCapabilitiesRequest, context: grpc.ServicerContext
    ) -> pb.GetCapabilitiesResponse:
        return index_capabilities_to_message(self._index.get_capabilities())

    def UpsertEntries(  # noqa: D102, N802
        self, request: pb.UpsertEntriesRequest, context: grpc.ServicerContext
    ) -> pb.UpsertEntriesResponse:
        namespace = checked_namespace(request.namespace)
        key = checked_compatibility_key(request.compatibility_key)
        check_count("entries", len(request.entries))
        items = [_attempt(vector_entry_from_message, message) for message in request.entries]
        entries = [item for item in items if isinstance(item, VectorEntry)]
        stored = iter(self._index.upsert_entries(namespace, key, entries) if entries else ())
        results = [item if isinstance(item, SkipstoneError) else next(stored) for item in items]
        return pb.UpsertEntriesResponse(statuses=map(_status, results))

    def SearchEntries(  # noqa: D102, N802
        self, request: pb.SearchEntriesRequest, context: grpc.ServicerContext
    ) -> pb.SearchEntriesResponse:
        search = Search(
            request.namespace,
            request.compatibility_key,
            [vector_from_bytes(query) for query in request.queries],
            request.top_k,
            request.min_similarity if request.HasField("min_similarity") else None,
            request.embedding_model_id,
        )
        found = self._index.search_packed(search)
        _check_fits(found)
        return pb.SearchEntriesResponse(results=map(packed_hits_to_message, found))

    def GetEntry(  # noqa: D102, N802
        self, request: pb.GetEntryRequest, context: grpc.ServicerContext
    ) -> pb.GetEntryResponse:
        located = self._index.get_entry(request.namespace, request.entry_id, request.include_vector)
        return located_entry_to_message(located)

    def ListEntries(  # noqa: D102, N802
        self, request: pb.ListEntriesRequest, context: grpc.ServicerContext
    ) -> pb.ListEntriesResponse:
        page = self._index.list_entries(
            request.namespace,
            request.compatibility_key,
            request.page_size or DEFAULT_PAGE_SIZE,
            request.page_token,
        )
        return index_page_to_message(page)

    def ListNamespaces(  # noqa: D102, N802
        self, request: pb.ListNamespacesRequest, context: grpc.ServicerContext
    ) -> pb.ListNamespacesResponse:
        page = self._index.list_namespaces(
            request.page_size or DEFAULT_PAGE_SIZE, request.page_token
        )
        return namespace_page_to_message(page)

    def DeleteEntries(  # noqa: D102, N802
        self, request: pb.DeleteEntriesRequest, context: grpc.ServicerContext
    ) -> pb.DeleteEntriesResponse:
        ids = list(request.entry_ids)
        checks = [_attempt(checked_entry_id, entry_id) for entry_id in ids]
        existed = self._index.delete_entries(request.namespace, ids)
        return pb.DeleteEntriesResponse(
            statuses=[_status(c if isinstance(c, SkipstoneError) else None) for c in checks],
            deleted_count=sum(existed),
            existed=existed,
        )

    def DeletePartition(  # noqa: D102, N802
        self, request: pb.DeletePartitionRequest, context: grpc.ServicerContext
    ) -> pb.DeletePartitionResponse:
        count = self._index.delete_partition(request.namespace, request.compatibility_key)
        return pb.DeletePartitionResponse(deleted_count=count)

    def GetStats(  # noqa: D102, N802
        self, request: pb.GetStatsRequest, context: grpc.ServicerContext
    ) -> pb.GetStatsResponse:
        stats = self._index.get_stats(request.namespace)
        if not sees_all_namespaces():  # what is of the whole index tells of others
            stats = dataclasses.replace(stats, disk_bytes=0)
        return index_stats_to_message(stats)


def _attempt(convert: Callable[[Given], Made], given: Given) -> Made | SkipstoneError:
    """Returns what a conversion makes, or the error that it raises."""
    try:
        return convert(given)
    except SkipstoneError as error:
        return error


def _status(error: SkipstoneError | None) -> status_pb2.Status:
    return status_pb2.Status() if error is None else to_status(error)


def _check_fits(found: Sequence[Sequence[PackedHit]]) -> None:
    """Checks that an answer fits in one message.

    Raises:
        InvalidArgument: It does not.
    """
    size_bytes = sum(len(hit.packed) + _FRAME_BYTES for hits in found for hit in hits)
    if size_bytes > _MAX_ANSWER_BYTES:
        raise InvalidArgument(
            f"the hits take {size_bytes} bytes",
            field="top_k",
            allowed=f"so few hits or queries that the answer stays below {_MAX_ANSWER_BYTES} bytes",
        )
