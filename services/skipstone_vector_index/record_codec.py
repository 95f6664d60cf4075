"""Entries and their vectors <-> the bytes of one record. The format is documented here.

All numbers are little-endian.

    offset  bytes
    0       8      XXH3-64 of everything after it; from version 5 on XOR that of the record's key
    8       1      format version, 1 to 6
    9       1      reserved, 0
    10      2      length of the entry id
    12      4      length of the embedding model id
    16      4      elements of the vector
    20      4      reserved, 0
    24      8      revision: number of the last write of this entry
    32             entry id, embedding model id, vector, entry

The vector is float32 in odd versions and float16, which takes half the bytes, in even ones. New
records are 5 or 6: their key says whose they are, so one that is found under another is damaged.
From 3 on the entry is packed as an answer carries it, so that a search passes it on without looking
into it. In 1 and 2 it is JSON (`json_entries.py`).

What a start needs (id, model, revision, vector) can be read without unpacking the entry.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np

from skipstone_shared.errors import DataCorrupt
from skipstone_shared.index_entries import IndexEntry, Vector
from skipstone_shared.index_entry_messages import pack_entry, unpack_entry
from skipstone_shared.latents import checksum
from skipstone_vector_index.json_entries import entry_from_json

_VECTOR_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f2"),
    3: np.dtype("<f4"),
    4: np.dtype("<f2"),
    5: np.dtype("<f4"),
    6: np.dtype("<f2"),
}
"""Type of the vector by format version."""

_JSON_VERSIONS = (1, 2)
_FIRST_WITH_KEY = 5

_CHECKSUM = struct.Struct("<Q")
_HEADER = struct.Struct("<BxHII4xQ")
_HEADER_END = _CHECKSUM.size + _HEADER.size

Buffer = bytes | memoryview


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One record.

    Attributes:
        entry_id: Id of the entry.
        embedding_model_id: Model of the vector.
        revision: Number of the write that stored it.
        vector: Vector as stored, float32 ``(dimension,)``, read-only; in the float16 versions every
            element is a float16.
        stored_entry: The entry as its version stores it.
        version: Format version.
    """

    entry_id: str
    embedding_model_id: str
    revision: int
    vector: Vector
    stored_entry: bytes
    version: int

    def entry(self) -> IndexEntry:
        """Returns the entry."""
        if self.version in _JSON_VERSIONS:
            return entry_from_json(self.entry_id, self.embedding_model_id, self.stored_entry)
        return unpack_entry(self.stored_entry)

    def packed_entry(self) -> bytes:
        """Returns the entry as `pack_entry` makes it."""
        if self.version in _JSON_VERSIONS:
            return pack_entry(self.entry())
        return self.stored_entry


def make_record(entry: IndexEntry, vector: Vector, revision: int, *, half: bool = False) -> Record:
    """Returns the record of an entry, with its vector as float16 if ``half``.

    Raises:
        InvalidArgument: A value of the entry cannot be stored.
    """
    return Record(
        entry.entry_id,
        entry.embedding_model_id,
        revision,
        vector,
        pack_entry(entry),
        6 if half else 5,
    )


def encode_record(record: Record, key: Buffer) -> bytes:
    """Returns the bytes of a record that is stored under a key."""
    entry_id, model_id = record.entry_id.encode(), record.embedding_model_id.encode()
    header = _HEADER.pack(
        record.version, len(entry_id), len(model_id), len(record.vector), record.revision
    )
    vector = np.ascontiguousarray(record.vector, _VECTOR_TYPES[record.version]).tobytes()
    body = b"".join((header, entry_id, model_id, vector, record.stored_entry))
    return _CHECKSUM.pack(_checksum(record.version, body, key)) + body


def _checksum(version: int, body: Buffer, key: Buffer) -> int:
    return checksum(body) ^ (checksum(key) if version >= _FIRST_WITH_KEY else 0)


def decode_record(data: Buffer, key: Buffer) -> Record:
    """Returns the record of some bytes found under a key; copies, so that it outlives the buffer.

    Raises:
        DataCorrupt: The checksum does not match, another version wrote it, or it makes no sense.
    """
    view = memoryview(data)
    if len(view) < _HEADER_END:
        raise DataCorrupt(f"a record has only {len(view)} bytes")
    version, id_size, model_size, dimension, revision = _HEADER.unpack_from(view, _CHECKSUM.size)
    if _CHECKSUM.unpack_from(view)[0] != _checksum(version, view[_CHECKSUM.size :], key):
        raise DataCorrupt(f"a record of {len(view)} bytes fails its checksum")
    vector_type = _VECTOR_TYPES.get(version)
    if vector_type is None:
        known = f"{min(_VECTOR_TYPES)} to {max(_VECTOR_TYPES)}"
        raise DataCorrupt(f"a record has format version {version}, known are {known}")
    id_end = _HEADER_END + id_size
    model_end = id_end + model_size
    vector_end = model_end + vector_type.itemsize * dimension
    if vector_end > len(view):
        raise DataCorrupt(f"a record of {len(view)} bytes ends before its vector")
    vector = np.frombuffer(bytes(view[model_end:vector_end]), vector_type)
    try:
        entry_id = str(view[_HEADER_END:id_end], "utf-8")
        model_id = str(view[id_end:model_end], "utf-8")
    except UnicodeDecodeError as error:
        raise DataCorrupt("the names in a record are not UTF-8") from error
    return Record(
        entry_id,
        model_id,
        revision,
        vector.astype(np.float32, copy=False),
        bytes(view[vector_end:]),
        version,
    )
