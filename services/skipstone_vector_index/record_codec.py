"""Entries and their vectors <-> the bytes of one record. The format is documented here.

All numbers are little-endian.

    offset  bytes
    0       8      XXH3-64 of everything after it
    8       1      format version: 1, or 2 when the vector is float16
    9       1      reserved, 0
    10      2      length of the entry id
    12      4      length of the embedding model id
    16      4      elements of the vector
    20      4      reserved, 0
    24      8      revision: number of the last write of this entry
    32             entry id, embedding model id, vector, then the rest as JSON

A vector is float32, or float16 where the index was told to round, which takes half the bytes.

A snapshot's reference is a list in the JSON, not an object: five of them in each of ten hits are
most of the time of a search. What a start needs (id, model, revision, vector) can be read without
parsing the JSON.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import numpy as np

from skipstone_shared.errors import DataCorrupt
from skipstone_shared.index_entries import IndexEntry, Vector
from skipstone_shared.latents import DType, LatentRef, TensorSpec, checksum

_VECTOR_TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<f4"), 2: np.dtype("<f2")}
"""Type of the vector by format version."""

_CHECKSUM = struct.Struct("<Q")
_HEADER = struct.Struct("<BxHII4xQ")
_SPEC = [field.name for field in dataclasses.fields(LatentRef)].index("spec")
_HEADER_END = _CHECKSUM.size + _HEADER.size

Buffer = bytes | memoryview


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One record; the JSON part is parsed when `entry` is called.

    Attributes:
        entry_id: Id of the entry.
        embedding_model_id: Model of the vector.
        revision: Number of the write that stored it.
        vector: Vector as stored, float32 ``(dimension,)``.
        payload: The rest of the entry as JSON.
        half: Whether it is stored as float16; every element then is one.
    """

    entry_id: str
    embedding_model_id: str
    revision: int
    vector: Vector
    payload: bytes
    half: bool = False

    @property
    def payload_size(self) -> int:
        """Bytes of the entry without its vector, about what it takes in an answer."""
        return len(self.entry_id) + len(self.embedding_model_id.encode()) + len(self.payload)

    def entry(self) -> IndexEntry:
        """Returns the entry."""
        fields: dict[str, Any] = json.loads(self.payload)
        return IndexEntry(
            entry_id=self.entry_id,
            embedding_model_id=self.embedding_model_id,
            snapshots=tuple(_load_ref(item) for item in fields.pop("snapshots")),
            **fields,
        )


def make_record(entry: IndexEntry, vector: Vector, revision: int, *, half: bool = False) -> Record:
    """Returns the record of an entry; ``half`` as in `Record`."""
    payload = {
        "prompt": entry.prompt,
        "seed": entry.seed,
        "snapshots": [_dump_ref(ref) for ref in entry.snapshots],
        "depth": entry.depth,
        "create_time": entry.create_time,
        "labels": dict(entry.labels),
    }
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    return Record(entry.entry_id, entry.embedding_model_id, revision, vector, text.encode(), half)


def encode_record(record: Record) -> bytes:
    """Returns the bytes of a record."""
    entry_id, model_id = record.entry_id.encode(), record.embedding_model_id.encode()
    version = 2 if record.half else 1
    header = _HEADER.pack(
        version, len(entry_id), len(model_id), len(record.vector), record.revision
    )
    vector = np.ascontiguousarray(record.vector, _VECTOR_TYPES[version]).tobytes()
    body = b"".join((header, entry_id, model_id, vector, record.payload))
    return _CHECKSUM.pack(checksum(body)) + body


def decode_record(data: Buffer) -> Record:
    """Returns the record of some bytes; copies, so that it outlives the buffer.

    Raises:
        DataCorrupt: The checksum does not match, or another version wrote it.
    """
    view = memoryview(data)
    if len(view) < _HEADER_END or _CHECKSUM.unpack_from(view)[0] != checksum(view[8:]):
        raise DataCorrupt(f"a record of {len(view)} bytes fails its checksum")
    version, id_size, model_size, dimension, revision = _HEADER.unpack_from(view, _CHECKSUM.size)
    vector_type = _VECTOR_TYPES.get(version)
    if vector_type is None:
        raise DataCorrupt(f"a record has format version {version}, known are 1 and 2")
    id_end = _HEADER_END + id_size
    model_end = id_end + model_size
    vector_end = model_end + vector_type.itemsize * dimension
    return Record(
        entry_id=str(view[_HEADER_END:id_end], "utf-8"),
        embedding_model_id=str(view[id_end:model_end], "utf-8"),
        revision=revision,
        vector=np.frombuffer(view[model_end:vector_end], vector_type).astype(np.float32),
        payload=bytes(view[vector_end:]),
        half=version == 2,
    )


def _dump_ref(ref: LatentRef) -> list[Any]:
    """Returns the fields in their order; a field added later goes to the end, with a default."""
    fields = [getattr(ref, field.name) for field in dataclasses.fields(ref)]
    fields[_SPEC] = ref.spec and [ref.spec.dtype.value, *ref.spec.shape]
    return fields


def _load_ref(fields: list[Any]) -> LatentRef:
    spec = fields[_SPEC]
    if spec is not None:
        fields[_SPEC] = TensorSpec(DType(spec[0]), tuple(spec[1:]))
    return LatentRef(*fields)
