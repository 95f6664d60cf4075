"""Snapshots <-> the serialized messages of WriteLatent and ReadLatent of ``latent_kv.proto``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import xxhash
from google.protobuf.message import DecodeError

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone_shared.chunk_messages import Buffer, ChunkField
from skipstone_shared.errors import DataCorrupt, InvalidArgument
from skipstone_shared.generation_messages import duration_from_message, duration_to_message
from skipstone_shared.latent_messages import metadata_to_message
from skipstone_shared.latents import SnapshotMetadata
from skipstone_shared.optional_fields import new_message
from skipstone_shared.stored_entries import (
    DEFAULT_LEASE_S,
    MAX_CHUNK_BYTES,
    Snapshot,
    StoredSnapshot,
)
from skipstone_shared.stored_entry_messages import (
    stored_snapshot_from_message,
    stored_snapshot_to_message,
)

_FINISH = pb.WriteLatentRequest(finish_write=True).SerializeToString()
"""Messages that are put one behind the other are one message with the fields of both."""

_WRITTEN = ChunkField(pb.WriteLatentRequest.DESCRIPTOR, "data")
_READ = ChunkField(pb.ReadLatentResponse.DESCRIPTOR, "data")


def cut(buffers: Iterable[Buffer], chunk_bytes: int = MAX_CHUNK_BYTES) -> Iterator[memoryview]:
    """The same bytes in pieces of at most ``chunk_bytes``, in order; empty buffers vanish."""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for start in range(0, len(view), chunk_bytes):
            yield view[start : start + chunk_bytes]


def write_to_stream(
    namespace: str,
    metadata: SnapshotMetadata,
    data: Iterable[Buffer],
    *,
    size_bytes: int,
    xxh3_64: int,
    lease_s: float | None = None,
) -> Iterator[bytes]:
    """The messages of one WriteLatent: header, data, and one that finishes the write."""
    header = new_message(
        pb.WriteLatentHeader,
        metadata=metadata_to_message(metadata),
        size_bytes=size_bytes,
        xxh3_64=xxh3_64,
        lease=duration_to_message(lease_s) if lease_s is not None else None,
    )
    yield pb.WriteLatentRequest(namespace=namespace, header=header).SerializeToString()
    last: Buffer = b""
    for chunk in cut(data):
        if len(last):
            yield _WRITTEN.to_wire(last)
        last = chunk
    # Once the caller's data have ended, which may raise, and in one message with the last of them.
    yield _WRITTEN.to_wire(last, _FINISH)


@dataclasses.dataclass(frozen=True, slots=True)
class WriteMessage:
    """One message of WriteLatent behind its header.

    Attributes:
        data: Its data; None when it is a second header.
        finish_write: Whether it is the last.
    """

    data: bytes | memoryview | None
    finish_write: bool


def header_of_write(serialized: bytes) -> pb.WriteLatentRequest:
    """The first message of a WriteLatent.

    Raises:
        InvalidArgument: it carries no header.
    """
    message = _write_request(serialized)
    if message.WhichOneof("payload") != "header":
        raise InvalidArgument("the first message carries no header", field="header", allowed="set")
    return message


def data_of_write(serialized: bytes) -> WriteMessage:
    """A further message of a WriteLatent.

    Raises:
        InvalidArgument: it is no such message.
    """
    for finishes, end in ((False, b""), (True, _FINISH)):
        chunk = _WRITTEN.from_wire(serialized, end)
        if chunk is not None:
            return WriteMessage(chunk, finishes)
    message = _write_request(serialized)
    second = message.WhichOneof("payload") == "header"
    return WriteMessage(None if second else message.data, message.finish_write)


def _write_request(serialized: bytes) -> pb.WriteLatentRequest:
    try:
        return pb.WriteLatentRequest.FromString(serialized)
    except DecodeError as error:
        raise InvalidArgument(f"not a WriteLatentRequest: {error}") from None


def lease_from_header(header: pb.WriteLatentHeader) -> float:
    """Seconds of the lease a writer asks for, the default when it asks for none."""
    return duration_from_message(header.lease) if header.HasField("lease") else DEFAULT_LEASE_S


def head_to_stream(head: StoredSnapshot) -> bytes:
    """The message of ReadLatent that tells what is read."""
    return pb.ReadLatentResponse(snapshot=stored_snapshot_to_message(head)).SerializeToString()


def snapshot_to_stream(snapshot: Snapshot, chunk_bytes: int = MAX_CHUNK_BYTES) -> Iterator[bytes]:
    """The messages of one ReadLatent: the snapshot without bytes, then its data."""
    yield head_to_stream(StoredSnapshot(snapshot.ref, snapshot.metadata))
    for chunk in cut([snapshot.data], chunk_bytes):
        yield _READ.to_wire(chunk)


def head_from_stream(messages: Iterable[bytes]) -> StoredSnapshot:
    """The snapshot without its bytes of the messages of one ReadLatent.

    Raises:
        DataCorrupt: the snapshot is not announced exactly once.
        InvalidArgument: a bad reference or bad metadata.
    """
    parsed = [_read_response(message) for message in messages]
    heads = [message.snapshot for message in parsed if message.HasField("snapshot")]
    if len(heads) != 1:
        raise DataCorrupt(f"snapshot announced {len(heads)} times in one stream")
    return stored_snapshot_from_message(heads[0])


class SnapshotAssembler:
    """Puts the messages of one ReadLatent together and checks them.

    The bytes go straight into one buffer of the final size. Not shared between threads.
    """

    def __init__(self) -> None:
        self._head: StoredSnapshot | None = None
        self._data = memoryview(b"")
        self._size = 0
        self._digest = xxhash.xxh3_64()

    def add(self, serialized: bytes) -> None:
        """Takes the next message.

        Raises:
            DataCorrupt: the messages are out of order, or there are more bytes than announced.
        """
        chunk = _READ.from_wire(serialized)
        if chunk is not None:
            self._append(chunk)
            return
        message = _read_response(serialized)
        if message.WhichOneof("payload") == "snapshot":
            self._start(message.snapshot)
        else:
            self._append(memoryview(message.data))

    def _append(self, chunk: memoryview) -> None:
        end = self._size + len(chunk)
        if self._head is None or end > len(self._data):
            raise DataCorrupt(f"snapshot of more than the {len(self._data)} bytes it announced")
        self._data[self._size : end] = chunk
        self._digest.update(chunk)
        self._size = end

    def _start(self, message: pb.StoredSnapshot) -> None:
        head = stored_snapshot_from_message(message)
        if self._head is not None:
            raise DataCorrupt("snapshot announced twice in one stream")
        if head.ref.size_bytes != head.metadata.size_bytes:
            raise DataCorrupt(
                f"snapshot of {head.ref.size_bytes} bytes whose parts need "
                f"{head.metadata.size_bytes}"
            )
        self._head = head
        # Not zeroed first, as a bytearray would be.
        self._data = np.empty(head.ref.size_bytes, np.uint8).data

    def finish(self) -> Snapshot:
        """The snapshot.

        Raises:
            DataCorrupt: bytes are missing or do not match the checksum.
        """
        if self._head is None:
            raise DataCorrupt("snapshot without metadata")
        if self._size != len(self._data):
            raise DataCorrupt(f"snapshot ends after {self._size} of {len(self._data)} bytes")
        if self._digest.intdigest() != self._head.ref.xxh3_64:
            raise DataCorrupt("snapshot does not match its checksum")
        return Snapshot(self._head.ref, self._head.metadata, self._data)


def _read_response(serialized: bytes) -> pb.ReadLatentResponse:
    try:
        return pb.ReadLatentResponse.FromString(serialized)
    except DecodeError as error:
        raise DataCorrupt(f"not a ReadLatentResponse: {error}") from None
