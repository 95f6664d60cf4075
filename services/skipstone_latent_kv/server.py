"""The gRPC face of a store: validate, convert, call, convert."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.rpc import status_pb2
from prometheus_client.registry import Collector

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone.latent_kv.v1 import latent_kv_pb2_grpc as pb_grpc
from skipstone_latent_kv.store import EvictionWatch, LatentStore
from skipstone_latent_kv.stream_budget import Stream, StreamBudget
from skipstone_shared.access import sees_all_namespaces
from skipstone_shared.errors import (
    Cancelled,
    EntryNotFound,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from skipstone_shared.generation_messages import duration_from_message
from skipstone_shared.grpc_errors import to_status
from skipstone_shared.grpc_server import Mounted
from skipstone_shared.latent_messages import (
    metadata_from_message,
    ref_from_message,
    ref_to_message,
)
from skipstone_shared.latents import LatentRef
from skipstone_shared.snapshot_streams import (
    data_of_write,
    head_to_stream,
    header_of_write,
    lease_from_header,
    snapshot_to_stream,
)
from skipstone_shared.stored_entries import MAX_CHUNK_BYTES
from skipstone_shared.stored_entry_messages import (
    WATCH_READY,
    eviction_to_message,
    store_capabilities_to_message,
    store_stats_to_message,
    stored_entry_to_message,
    stored_page_to_message,
)
from skipstone_shared.timestamp_messages import timestamp_to_message

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["LatentKV"].full_name

_DEFAULT_PAGE_SIZE = 100
_MAX_PAGE_BYTES = 3 << 20
"""gRPC refuses to receive messages of 4 MiB."""

_ADMITTING = 8
"""Threads beside those of running streams, in which others wait for room."""


def mount(
    store: LatentStore,
    max_watchers: int = 4,
    on_stop: Sequence[Callable[[], None]] = (),
    collectors: Sequence[Collector] = (),
    budget: StreamBudget | None = None,
) -> Mounted:
    """What a server needs to serve a store.

    Args:
        store: What to serve; closing it is up to ``on_stop``.
        max_watchers: WatchEvictions streams at a time; each occupies a thread.
        on_stop: Called when no rpc runs any more.
        collectors: Prometheus metrics.
        budget: Admits WriteLatent and ReadLatent; None for one of its own.
    """
    budget = budget or StreamBudget()
    servicer = LatentKVServicer(store, max_watchers, budget)
    # Streams wait for their peers, so they have threads of their own: whatever peers do, all other
    # calls find theirs.
    streaming = ThreadPoolExecutor(budget.limits.max_streams + _ADMITTING, "stream")
    pools = {f"/{SERVICE_NAME}/{rpc}": streaming for rpc in ("WriteLatent", "ReadLatent")}

    def register(server: grpc.Server) -> None:
        pb_grpc.add_LatentKVServicer_to_server(servicer, server)
        # In place of the generated handlers, whose message objects copy every chunk again and again
        # (see chunk_messages).
        server.add_registered_method_handlers(SERVICE_NAME, servicer.snapshot_handlers())

    return Mounted(register, [SERVICE_NAME], on_stop, collectors, [servicer.end_watches], pools)


class LatentKVServicer(pb_grpc.LatentKVServicer):
    """Serves a store; see ``latent_kv.proto`` for what each rpc promises."""

    def __init__(self, store: LatentStore, max_watchers: int, budget: StreamBudget) -> None:
        """Creates the servicer.

        Args:
            store: What to serve. The servicer does not close it.
            max_watchers: WatchEvictions streams at a time; each occupies a thread.
            budget: Admits WriteLatent and ReadLatent.
        """
        self._store = store
        self._budget = budget
        self._max_watchers = max_watchers
        self._watch_lock = threading.Lock()
        self._watches: set[EvictionWatch] = set()
        self._draining = False

    def end_watches(self) -> None:
        """Ends all WatchEvictions streams with UNAVAILABLE; they never end by themselves."""
        with self._watch_lock:
            self._draining = True
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    def GetCapabilities(  # noqa: N802
        self, request: pb.GetCapabilitiesRequest, context: grpc.ServicerContext
    ) -> pb.GetCapabilitiesResponse:
        """Engine and limits."""
        return store_capabilities_to_message(self._store.get_capabilities())

    def snapshot_handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """WriteLatent and ReadLatent, whose snapshots come and go as serialized messages."""
        return {
            "WriteLatent": grpc.stream_unary_rpc_method_handler(
                self.WriteLatent, response_serializer=pb.WriteLatentResponse.SerializeToString
            ),
            "ReadLatent": grpc.unary_stream_rpc_method_handler(
                self.ReadLatent, request_deserializer=pb.ReadLatentRequest.FromString
            ),
        }

    def WriteLatent(  # type: ignore[override] # noqa: N802
        self, request_iterator: Iterator[bytes], context: grpc.ServicerContext
    ) -> pb.WriteLatentResponse:
        """Stores one snapshot; the requests are serialized."""
        with self._budget.admit(context.cancel, context.peer(), context.is_active) as stream:
            messages = stream.incoming(_while_caller_is_there(request_iterator), len)
            first = header_of_write(next(messages, b""))
            header = first.header
            ref = self._store.write_latent(
                first.namespace,
                metadata_from_message(header.metadata),
                iter(()) if first.finish_write else _chunks(messages, stream, header.size_bytes),
                size_bytes=header.size_bytes,
                xxh3_64=header.xxh3_64,
                lease_s=lease_from_header(header),
            )
            return pb.WriteLatentResponse(ref=ref_to_message(ref))

    def ReadLatent(  # type: ignore[override] # noqa: N802
        self, request: pb.ReadLatentRequest, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Streams one snapshot, in serialized answers."""
        if not 0 <= request.chunk_bytes <= MAX_CHUNK_BYTES:
            raise InvalidArgument(
                f"chunk_bytes {request.chunk_bytes}",
                field="chunk_bytes",
                allowed=f"0 (for {MAX_CHUNK_BYTES}) to {MAX_CHUNK_BYTES}",
            )
        ref = ref_from_message(request.ref)
        if request.omit_data:
            yield head_to_stream(self._store.touch_latent(request.namespace, ref))
            return
        with self._budget.admit(context.cancel, context.peer(), context.is_active) as stream:
            # Before the bytes are there. A size that the reference names is what is read, since the
            # store compares it.
            stream.hold(_with_chunks(ref.size_bytes or self._stored_bytes(request.namespace, ref)))
            snapshot = self._store.read_latent(request.namespace, ref)
            messages = snapshot_to_stream(snapshot, request.chunk_bytes or MAX_CHUNK_BYTES)
            yield from stream.outgoing(messages, len)

    def CommitEntry(  # noqa: N802
        self, request: pb.CommitEntryRequest, context: grpc.ServicerContext
    ) -> pb.CommitEntryResponse:
        """Makes an entry permanent."""
        entry = self._store.commit_entry(request.namespace, request.entry_id)
        return pb.CommitEntryResponse(entry=stored_entry_to_message(entry))

    def RenewLease(  # noqa: N802
        self, request: pb.RenewLeaseRequest, context: grpc.ServicerContext
    ) -> pb.RenewLeaseResponse:
        """Sets the lease of an uncommitted entry."""
        lease_s = duration_from_message(request.lease)
        end = self._store.renew_lease(request.namespace, request.entry_id, lease_s)
        return pb.RenewLeaseResponse(
            lease_expire_time=None if end is None else timestamp_to_message(end)
        )

    def GetEntry(  # noqa: N802
        self, request: pb.GetEntryRequest, context: grpc.ServicerContext
    ) -> pb.GetEntryResponse:
        """An entry without bytes."""
        entry = self._store.get_entry(request.namespace, request.entry_id)
        return pb.GetEntryResponse(entry=stored_entry_to_message(entry))

    def ListEntries(  # noqa: N802
        self, request: pb.ListEntriesRequest, context: grpc.ServicerContext
    ) -> pb.ListEntriesResponse:
        """One page of a namespace."""
        page_size = request.page_size or _DEFAULT_PAGE_SIZE
        while True:
            page = self._store.list_entries(
                request.namespace, page_size, request.page_token, request.include_uncommitted
            )
            response = stored_page_to_message(page)
            if response.ByteSize() <= _MAX_PAGE_BYTES or len(page.entries) == 1:
                return response
            # Asked again, not cut: only the store knows the token of a shorter page.
            page_size = len(page.entries) // 2

    def PinEntries(  # noqa: N802
        self, request: pb.PinEntriesRequest, context: grpc.ServicerContext
    ) -> pb.PinEntriesResponse:
        """Protects entries or ends that."""
        ids = list(request.entry_ids)
        found = self._store.pin_entries(request.namespace, ids, request.pinned)
        return pb.PinEntriesResponse(statuses=_statuses(ids, found))

    def DeleteEntries(  # noqa: N802
        self, request: pb.DeleteEntriesRequest, context: grpc.ServicerContext
    ) -> pb.DeleteEntriesResponse:
        """Removes entries."""
        existed = self._store.delete_entries(request.namespace, list(request.entry_ids))
        return pb.DeleteEntriesResponse(
            statuses=[status_pb2.Status() for _ in existed],
            deleted_count=sum(existed),
            existed=existed,
        )

    def DeleteNamespace(  # noqa: N802
        self, request: pb.DeleteNamespaceRequest, context: grpc.ServicerContext
    ) -> pb.DeleteNamespaceResponse:
        """Removes every entry of a namespace."""
        deleted_count = self._store.delete_namespace(request.namespace)
        return pb.DeleteNamespaceResponse(deleted_count=deleted_count)

    def GetStats(  # noqa: N802
        self, request: pb.GetStatsRequest, context: grpc.ServicerContext
    ) -> pb.GetStatsResponse:
        """Counts and bytes of a namespace."""
        stats = self._store.get_stats(request.namespace)
        if not sees_all_namespaces():  # what is of the whole store tells of others
            stats = dataclasses.replace(stats, disk_bytes=0, evicted_count=0)
        return store_stats_to_message(stats)

    def WatchEvictions(  # noqa: N802
        self, request: pb.WatchEvictionsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchEvictionsResponse]:
        """Streams removals until the caller goes away or the service drains."""
        watch = self._begin_watch(request)
        try:
            # Without the callback the thread would wait for the next removal, maybe for hours.
            if context.add_callback(watch.close):
                context.send_initial_metadata(WATCH_READY)
                for event in watch:
                    yield eviction_to_message(event)
        finally:
            watch.close()
            with self._watch_lock:
                self._watches.discard(watch)
        raise _shutting_down() if context.is_active() else Cancelled("caller went away")

    def _stored_bytes(self, namespace: str, ref: LatentRef) -> int:
        """Bytes of a snapshot; 0 when it is not there."""
        try:
            snapshots = self._store.get_entry(namespace, ref.entry_id).snapshots
        except EntryNotFound:
            return 0
        return sum(s.ref.size_bytes for s in snapshots if s.ref.step_index == ref.step_index)

    def _begin_watch(self, request: pb.WatchEvictionsRequest) -> EvictionWatch:
        with self._watch_lock:
            if self._draining:
                raise _shutting_down()
            if len(self._watches) >= self._max_watchers:
                raise ResourceExhausted(
                    f"{self._max_watchers} watchers are connected already; raise max_watchers "
                    "(and max_workers) of the service"
                )
            watch = self._store.watch_evictions(request.namespace, request.after_sequence)
            self._watches.add(watch)
            return watch


def _shutting_down() -> Unavailable:
    return Unavailable(
        "the service is shutting down; watch again with the last sequence number seen"
    )


def _chunks(
    serialized_requests: Iterator[bytes], stream: Stream, size_bytes: int
) -> Iterator[bytes | memoryview]:
    """The data of a write up to ``finish_write``."""
    # Not before the store has looked at the header, as it has when it asks for bytes.
    stream.hold(_with_chunks(size_bytes))
    for message in map(data_of_write, serialized_requests):
        if message.data is None:
            raise InvalidArgument(
                "a second header in one stream", field="header", allowed="in the first message only"
            )
        if len(message.data) > MAX_CHUNK_BYTES:
            raise InvalidArgument(
                f"data of {len(message.data)} bytes in one message",
                field="data",
                allowed=f"up to {MAX_CHUNK_BYTES} bytes (max_chunk_bytes)",
            )
        yield message.data
        if message.finish_write:
            return
    raise InvalidArgument(
        "the stream ended before finish_write; nothing was stored",
        field="finish_write",
        allowed="true in the last message",
    )


def _while_caller_is_there(serialized_requests: Iterator[bytes]) -> Iterator[bytes]:
    """The same requests; a caller that goes away is Cancelled, not an unknown error."""
    try:
        yield from serialized_requests
    except grpc.RpcError as error:
        raise Cancelled("caller went away") from error


def _with_chunks(size_bytes: int) -> int:
    """What a stream of so many bytes holds: them, and one chunk as data and as a message."""
    return size_bytes + 2 * min(size_bytes, MAX_CHUNK_BYTES)


def _statuses(entry_ids: Sequence[str], found: Sequence[bool]) -> list[status_pb2.Status]:
    return [
        status_pb2.Status() if there else to_status(EntryNotFound(f"no entry {entry_id!r}"))
        for entry_id, there in zip(entry_ids, found, strict=True)
    ]
