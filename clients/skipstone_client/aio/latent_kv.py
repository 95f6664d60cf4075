"""Asynchronous client of the latent_kv service; see its synchronous twin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone_client._async_client import AsyncClient, AsyncMessageStream
from skipstone_client._channel import LATENT_KV
from skipstone_client._latent_stub import latent_kv_rpcs
from skipstone_client._latent_writes import WriteSource, metadata_of, pinned_from_message
from skipstone_client._paging import checked_page_size
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import Unavailable
from skipstone_shared.generation_messages import duration_to_message
from skipstone_shared.latent_messages import ref_from_message, ref_to_message
from skipstone_shared.latents import LatentRef, SnapshotMetadata, checksum
from skipstone_shared.optional_fields import new_message
from skipstone_shared.snapshot_streams import SnapshotAssembler, head_from_stream
from skipstone_shared.stored_entries import (
    EvictionEvent,
    Snapshot,
    StoreCapabilities,
    StoredEntry,
    StoredEntryPage,
    StoredSnapshot,
    StoreStats,
)
from skipstone_shared.stored_entry_messages import (
    eviction_from_message,
    store_capabilities_from_message,
    store_stats_from_message,
    stored_entry_from_message,
    stored_page_from_message,
)
from skipstone_shared.tensor_messages import Array, array_bytes, arrays_from_parts
from skipstone_shared.timestamp_messages import timestamp_from_message

if TYPE_CHECKING:
    # The stub exists for type checkers only. Both are named in a string below, unseen by ruff.
    from skipstone.latent_kv.v1.latent_kv_pb2_grpc import LatentKVAsyncStub
    from skipstone_client._latent_stub import LatentKVRpcs  # noqa: F401


class AsyncLatentKVClient(AsyncClient["LatentKVRpcs[LatentKVAsyncStub]"]):
    """A store of snapshots behind gRPC: the methods of ``LatentStore`` as coroutines.

    A connection that drops during a write may leave the write done; write again, it replaces.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 30.0,
        first_byte_timeout_s: float | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target of the service.
            timeout_s: Deadline of a call that gives none of its own, in seconds.
            first_byte_timeout_s: Deadline of the first message of a read, in seconds: a store that
                hangs costs no more than that, while a large snapshot may take ``timeout_s``. None:
                none of its own.
            credentials: Certificates and token; None: none, in plain text.
        """
        super().__init__(target, LATENT_KV, latent_kv_rpcs, timeout_s, credentials)
        self._first_byte_timeout_s = first_byte_timeout_s

    @property
    def _rpcs(self) -> LatentKVAsyncStub:
        """Those that take and give message objects."""
        rpcs: LatentKVAsyncStub = self._stub.messages
        return rpcs

    async def write_latent(
        self,
        namespace: str,
        metadata: SnapshotMetadata,
        data: Iterable[bytes | memoryview],
        *,
        size_bytes: int,
        xxh3_64: int,
        lease_s: float | None = None,
        timeout_s: float | None = None,
    ) -> LatentRef:
        """Stores one snapshot; see ``LatentStore.write_latent``. ``data`` is cut as needed."""
        source = WriteSource(
            namespace, metadata, data, size_bytes=size_bytes, xxh3_64=xxh3_64, lease_s=lease_s
        )
        with source.errors_first():
            response = await self._call(self._stub.write_latent, source, timeout_s)
        return ref_from_message(response.ref)

    async def read_latent(
        self, namespace: str, ref: LatentRef, *, timeout_s: float | None = None
    ) -> Snapshot:
        """Reads one snapshot and verifies its checksum once more; its bytes are writable."""
        request = new_message(pb.ReadLatentRequest, namespace=namespace, ref=ref_to_message(ref))
        limit = self._timeout_s if timeout_s is None else timeout_s
        stream = self._stream(self._stub.read_latent, request, limit, self._first_byte_timeout_s)
        snapshot = SnapshotAssembler()
        try:
            async for message in stream:
                snapshot.add(message)
        finally:
            stream.close()
        return snapshot.finish()

    async def touch_latent(
        self, namespace: str, ref: LatentRef, *, timeout_s: float | None = None
    ) -> StoredSnapshot:
        """What is stored under a reference, without its bytes; counts as a read."""
        request = new_message(
            pb.ReadLatentRequest, namespace=namespace, ref=ref_to_message(ref), omit_data=True
        )
        limit = self._timeout_s if timeout_s is None else timeout_s
        stream = self._stream(self._stub.read_latent, request, limit, self._first_byte_timeout_s)
        try:
            return head_from_stream([message async for message in stream])
        finally:
            stream.close()

    async def write_arrays(
        self,
        namespace: str,
        metadata: SnapshotMetadata,
        arrays: Mapping[str, Array],
        *,
        lease_s: float | None = None,
        timeout_s: float | None = None,
    ) -> LatentRef:
        """Stores named arrays as one snapshot.

        Args:
            namespace: Namespace of the entry.
            metadata: What is written; its ``parts`` are those of the arrays, whatever it says.
            arrays: The parts in order, ``latents`` first. bfloat16 is ``ml_dtypes.bfloat16``.
            lease_s: Lease of an uncommitted entry, in seconds.
            timeout_s: Deadline of this call, in seconds.
        """
        buffers = [array_bytes(array) for array in arrays.values()]
        return await self.write_latent(
            namespace,
            metadata_of(metadata, arrays),
            buffers,
            size_bytes=sum(len(buffer) for buffer in buffers),
            xxh3_64=checksum(*buffers),
            lease_s=lease_s,
            timeout_s=timeout_s,
        )

    async def read_arrays(
        self, namespace: str, ref: LatentRef, *, timeout_s: float | None = None
    ) -> tuple[SnapshotMetadata, dict[str, Array]]:
        """Reads one snapshot as named arrays over one writable buffer."""
        snapshot = await self.read_latent(namespace, ref, timeout_s=timeout_s)
        return snapshot.metadata, arrays_from_parts(snapshot.data, snapshot.metadata.parts)

    async def commit_entry(
        self, namespace: str, entry_id: str, *, timeout_s: float | None = None
    ) -> StoredEntry:
        """Makes an entry permanent."""
        request = new_message(pb.CommitEntryRequest, namespace=namespace, entry_id=entry_id)
        response = await self._call(self._rpcs.CommitEntry, request, timeout_s)
        return stored_entry_from_message(response.entry)

    async def renew_lease(
        self, namespace: str, entry_id: str, lease_s: float, *, timeout_s: float | None = None
    ) -> float | None:
        """Sets the lease of an uncommitted entry, in seconds from now; returns when it ends."""
        request = new_message(
            pb.RenewLeaseRequest,
            namespace=namespace,
            entry_id=entry_id,
            lease=duration_to_message(lease_s),
        )
        response = await self._call(self._rpcs.RenewLease, request, timeout_s)
        if not response.HasField("lease_expire_time"):
            return None
        return timestamp_from_message(response.lease_expire_time)

    async def get_entry(
        self, namespace: str, entry_id: str, *, timeout_s: float | None = None
    ) -> StoredEntry:
        """An entry with its snapshots, without bytes."""
        request = new_message(pb.GetEntryRequest, namespace=namespace, entry_id=entry_id)
        response = await self._call(self._rpcs.GetEntry, request, timeout_s)
        return stored_entry_from_message(response.entry)

    async def list_entries(
        self,
        namespace: str,
        page_size: int = 100,
        page_token: str = "",
        include_uncommitted: bool = False,
        *,
        timeout_s: float | None = None,
    ) -> StoredEntryPage:
        """Entries by ascending id, a page at a time."""
        request = new_message(
            pb.ListEntriesRequest,
            namespace=namespace,
            page_size=checked_page_size(page_size),
            page_token=page_token,
            include_uncommitted=include_uncommitted,
        )
        return stored_page_from_message(
            await self._call(self._rpcs.ListEntries, request, timeout_s)
        )

    async def pin_entries(
        self,
        namespace: str,
        entry_ids: Sequence[str],
        pinned: bool,
        *,
        timeout_s: float | None = None,
    ) -> list[bool]:
        """Protects entries from eviction and time to live, or ends that; whether each is there."""
        request = new_message(
            pb.PinEntriesRequest, namespace=namespace, entry_ids=entry_ids, pinned=pinned
        )
        return pinned_from_message(await self._call(self._rpcs.PinEntries, request, timeout_s))

    async def delete_entries(
        self, namespace: str, entry_ids: Sequence[str], *, timeout_s: float | None = None
    ) -> list[bool]:
        """Removes entries with all their snapshots; whether each was there."""
        request = new_message(pb.DeleteEntriesRequest, namespace=namespace, entry_ids=entry_ids)
        return list((await self._call(self._rpcs.DeleteEntries, request, timeout_s)).existed)

    async def delete_namespace(self, namespace: str, *, timeout_s: float | None = None) -> int:
        """Removes every entry of a namespace; how many there were."""
        request = new_message(pb.DeleteNamespaceRequest, namespace=namespace)
        return (await self._call(self._rpcs.DeleteNamespace, request, timeout_s)).deleted_count

    async def get_stats(self, namespace: str = "", *, timeout_s: float | None = None) -> StoreStats:
        """Counts and bytes of a namespace."""
        request = new_message(pb.GetStatsRequest, namespace=namespace)
        return store_stats_from_message(await self._call(self._rpcs.GetStats, request, timeout_s))

    async def get_capabilities(self, *, timeout_s: float | None = None) -> StoreCapabilities:
        """Engine and limits."""
        response = await self._call(
            self._rpcs.GetCapabilities, pb.GetCapabilitiesRequest(), timeout_s
        )
        return store_capabilities_from_message(response)

    async def watch_evictions(self, namespace: str, after_sequence: int = 0) -> AsyncEvictionStream:
        """Removals after a sequence number, as they happen; without a deadline of its own.

        Returns once the service watches, so no later removal is missed.
        """
        request = new_message(
            pb.WatchEvictionsRequest, namespace=namespace, after_sequence=after_sequence
        )
        messages = self._stream(self._rpcs.WatchEvictions, request, None)
        # A refused call has no metadata; asking for its first message raises the reason.
        is_watching = bool(await messages.initial_metadata())
        return AsyncEvictionStream(messages, None if is_watching else await anext(messages), self)


class AsyncEvictionStream(AsyncIterator[EvictionEvent]):
    """Removals of a remote store. ``close`` ends it."""

    def __init__(
        self,
        messages: AsyncMessageStream[pb.WatchEvictionsResponse],
        first: pb.WatchEvictionsResponse | None,
        client: AsyncLatentKVClient,
    ) -> None:
        """Takes over a watch.

        Args:
            messages: Answers of WatchEvictions.
            first: Answer that was already taken from them, if one was.
            client: Who watches; closing it ends the watch too.
        """
        self._messages = messages
        self._client = client
        self._first = first

    async def __anext__(self) -> EvictionEvent:
        first, self._first = self._first, None
        try:
            message = first if first is not None else await anext(self._messages)
        except Unavailable:
            if self._client.is_closed:
                raise StopAsyncIteration from None
            raise
        return eviction_from_message(message)

    def close(self) -> None:
        """Ends the watch. Idempotent."""
        self._messages.close()
