"""What the synchronous and the asynchronous client of latent_kv share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import grpc

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.grpc_errors import from_status
from skipstone_shared.latents import SnapshotMetadata
from skipstone_shared.snapshot_streams import write_to_stream
from skipstone_shared.tensor_messages import Array, parts_of

_NOT_FOUND: int = grpc.StatusCode.NOT_FOUND.value[0]


class WriteSource(Iterator[bytes]):
    """The messages of one write. gRPC pulls them from a thread of its own.

    When the caller's data raises, the stream ends without its last message, so that the service
    stores nothing; the error is kept and is what the caller sees.
    """

    def __init__(
        self,
        namespace: str,
        metadata: SnapshotMetadata,
        data: Iterable[bytes | memoryview],
        *,
        size_bytes: int,
        xxh3_64: int,
        lease_s: float | None,
    ) -> None:
        """Prepares the messages; see ``LatentStore.write_latent`` for the arguments."""
        self._messages = write_to_stream(
            namespace, metadata, data, size_bytes=size_bytes, xxh3_64=xxh3_64, lease_s=lease_s
        )
        self._error: BaseException | None = None

    def __next__(self) -> bytes:
        try:
            return next(self._messages)
        except StopIteration:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            self._error = error
            raise StopIteration from None

    @contextmanager
    def errors_first(self) -> Iterator[None]:
        """Raises an error of the caller's data instead of what the service said about it."""
        try:
            yield
        except SkipstoneError:
            if self._error is not None:
                raise self._error from None
            raise


def metadata_of(metadata: SnapshotMetadata, arrays: Mapping[str, Array]) -> SnapshotMetadata:
    """The metadata with the parts of the arrays."""
    return dataclasses.replace(metadata, parts=parts_of(arrays))


def pinned_from_message(message: pb.PinEntriesResponse) -> list[bool]:
    """Whether each entry is there.

    Raises:
        SkipstoneError: a status other than OK and NOT_FOUND.
    """
    found: list[bool] = []
    for status in message.statuses:
        if status.code not in (0, _NOT_FOUND):
            raise from_status(status)
        found.append(status.code == 0)
    return found
