"""Records on disk: a versioned frame with a checksum around everything that is not latent bytes.

A frame is ``version (1 byte) | XXH3-64 of row key, version and body (8 bytes, little-endian) |
body``. The row key is part of the checksum, so that damage to it is noticed too. The version says
how the body reads; a reader knows every version ever written, a writer writes the newest:

* snapshot, version 2: JSON with the metadata, the checksum of the bytes and the id of the chunks
  that hold them. JSON, since it is read once per snapshot read and any tool can show it. Version 1
  knows no encoded bytes, which is how a program of that version refuses them.
* entry, version 2: a fixed struct, since all of them are read when a store starts. Version 1 lacks
  the highest step of the entry; such an entry counts as one that skips nothing until it is written
  to again, which matters only to policies that count skipped steps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import xxhash

from skipstone_latent_kv.entry_table import EntryKey, EntryState
from skipstone_shared.errors import DataCorrupt
from skipstone_shared.latents import DType, SnapshotMetadata, TensorPart, TensorSpec

DecoderT = TypeVar("DecoderT")

_SNAPSHOT_VERSION = 2
_ENTRY_VERSION = 2

_FRAME = struct.Struct("<BQ")
_ENTRY_V1 = struct.Struct("<ddqqqdB")
"""create and access time, bytes, snapshots, reads, end of the lease (0 when committed), flags."""
_ENTRY_V2 = struct.Struct("<ddqqqdBI")
"""As version 1, and the highest step."""

_YEAR_10000 = 253_402_300_800
_COMMITTED = 1
_PINNED = 2


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedValue:
    """What is on the disk in place of the bytes of a snapshot; see ``latent_codec``."""

    size_bytes: int
    xxh3_64: int


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """One snapshot as kept on disk.

    Attributes:
        metadata: Its metadata.
        xxh3_64: Checksum of its bytes, as they are read.
        value_id: Id of the chunk rows that hold them.
        encoded: What those rows hold when it is not the bytes themselves.
    """

    metadata: SnapshotMetadata
    xxh3_64: int
    value_id: int
    encoded: EncodedValue | None = None

    @property
    def value_bytes(self) -> int:
        """Bytes on the disk."""
        return self.encoded.size_bytes if self.encoded else self.metadata.size_bytes

    @property
    def value_xxh3_64(self) -> int:
        """Checksum of the bytes on the disk."""
        return self.encoded.xxh3_64 if self.encoded else self.xxh3_64


def encode_snapshot(row: bytes, record: SnapshotRecord) -> bytes:
    """The bytes of a snapshot record under a row key."""
    body = {
        "metadata": dataclasses.asdict(record.metadata)
        | {
            "parts": [
                [p.name, p.spec.dtype.value, list(p.spec.shape)] for p in record.metadata.parts
            ]
        },
        "xxh3_64": record.xxh3_64,
        "value_id": record.value_id,
        "encoded": record.encoded and dataclasses.asdict(record.encoded),
    }
    return frame(row, _SNAPSHOT_VERSION, json.dumps(body, separators=(",", ":")).encode())


def decode_snapshot(row: bytes, data: bytes | memoryview) -> SnapshotRecord:
    """The snapshot record that was found under a row key.

    Raises:
        DataCorrupt: the bytes are damaged or of an unknown version.
    """
    version, body = unframe(row, data)
    with nonsense_is_corrupt():
        return _known(_SNAPSHOT_DECODERS, version)(body)


def encode_entry(row: bytes, state: EntryState) -> bytes:
    """The bytes of an entry record under a row key."""
    body = _ENTRY_V2.pack(
        state.create_time,
        state.access_time,
        state.size_bytes,
        state.snapshot_count,
        state.read_count,
        state.lease_expire_time or 0.0,
        _COMMITTED * state.committed | _PINNED * state.pinned,
        state.skip_steps,
    )
    return frame(row, _ENTRY_VERSION, body)


def decode_entry(row: bytes, data: bytes | memoryview) -> EntryState:
    """The entry of the record that was found under a row key: namespace, 0, entry id.

    Raises:
        DataCorrupt: the bytes are damaged or of an unknown version.
    """
    version, body = unframe(row, data)
    with nonsense_is_corrupt():
        namespace, entry_id = row.decode().split("\0")
        return _known(_ENTRY_DECODERS, version)((namespace, entry_id), body)


def frame(row: bytes, version: int, body: bytes) -> bytes:
    """A body under a row key, with its version and checksum."""
    return _FRAME.pack(version, _digest(row, version, body)) + body


def unframe(row: bytes, data: bytes | memoryview) -> tuple[int, bytes]:
    """Version and body of what ``frame`` made.

    Raises:
        DataCorrupt: the bytes are damaged.
    """
    data = bytes(data)
    if len(data) < _FRAME.size:
        raise DataCorrupt(f"a record of {len(data)} bytes is truncated")
    version, stored = _FRAME.unpack_from(data)
    body = data[_FRAME.size :]
    if _digest(row, version, body) != stored:
        raise DataCorrupt("a record does not match its checksum")
    return version, body


@contextlib.contextmanager
def nonsense_is_corrupt() -> Iterator[None]:
    """A fitting checksum proves that a program wrote the bytes, not that they make sense."""
    try:
        yield
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
        struct.error,
    ) as error:
        raise DataCorrupt(f"a record cannot be read: {type(error).__name__}") from error


def whole_number(number: Any, below: int = 1 << 63) -> int:
    """A number that was read.

    Raises:
        DataCorrupt: it is not one from 0 on and below a limit.
    """
    if isinstance(number, int) and 0 <= number < below:
        return number
    raise DataCorrupt(f"a record has {str(number)[:40]!r} where a number belongs")


def some_time(seconds: float) -> float:
    """A time that was read, in seconds since the epoch.

    Raises:
        DataCorrupt: it is none that a message can tell.
    """
    if 0 <= seconds < _YEAR_10000:
        return seconds
    raise DataCorrupt(f"a record has {seconds} where a time belongs")


def _digest(row: bytes, version: int, body: bytes) -> int:
    return xxhash.xxh3_64_intdigest(b"".join((row, bytes([version]), body)))


def _known(decoders: Mapping[int, DecoderT], version: int) -> DecoderT:
    if version not in decoders:
        raise DataCorrupt(f"record version {version}, this program knows {sorted(decoders)}")
    return decoders[version]


def _decode_snapshot(body: bytes) -> SnapshotRecord:
    fields = json.loads(body)
    parts = tuple(
        TensorPart(name, TensorSpec(DType(dtype), tuple(shape)))
        for name, dtype, shape in fields["metadata"].pop("parts")
    )
    metadata = SnapshotMetadata(parts=parts, **fields["metadata"])
    encoded = fields.get("encoded")
    return SnapshotRecord(
        metadata,
        fields["xxh3_64"],
        whole_number(fields["value_id"], 1 << 64),
        EncodedValue(**encoded) if encoded else None,
    )


def _decode_entry_v1(key: EntryKey, body: bytes) -> EntryState:
    return _entry_state(key, *_ENTRY_V1.unpack(body))


def _decode_entry_v2(key: EntryKey, body: bytes) -> EntryState:
    return _entry_state(key, *_ENTRY_V2.unpack(body))


def _entry_state(
    key: EntryKey,
    create: float,
    access: float,
    size: int,
    snapshots: int,
    reads: int,
    lease_end: float,
    flags: int,
    skip_steps: int = 0,
) -> EntryState:
    for count in (size, snapshots, reads):
        whole_number(count)
    for time in (create, access, lease_end):
        some_time(time)
    return EntryState(
        *key,
        create_time=create,
        access_time=access,
        size_bytes=size,
        snapshot_count=snapshots,
        read_count=reads,
        committed=bool(flags & _COMMITTED),
        lease_expire_time=lease_end or None,
        pinned=bool(flags & _PINNED),
        skip_steps=skip_steps,
    )


_SNAPSHOT_DECODERS: Mapping[int, Callable[[bytes], SnapshotRecord]] = {
    1: _decode_snapshot,
    2: _decode_snapshot,
}
_ENTRY_DECODERS: Mapping[int, Callable[[EntryKey, bytes], EntryState]] = {
    1: _decode_entry_v1,
    2: _decode_entry_v2,
}
