"""The part of an export that vector_index keeps.

Without it an imported cache is found only by requests that are exactly the same. For each entry
that has a vector, the manifest tells its fields under ``index`` and its file holds the vector as
the tensor ``vector``. References to snapshots are made anew from those exported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from skipstone_client._safetensors import TensorsFile
from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.errors import DataCorrupt, EntryNotFound
from skipstone_shared.index_entries import IndexEntry, Vector, VectorEntry
from skipstone_shared.latents import DType, LatentRef, TensorSpec, checksum
from skipstone_shared.tensor_messages import vector_bytes, vector_from_bytes

VECTOR_TENSOR = "vector"


@dataclasses.dataclass(frozen=True)
class ExportedVector:
    """What vector_index has of an entry.

    Attributes:
        described: What the manifest says of it.
        spec: Type and shape of the vector.
        data: Its bytes.
    """

    described: dict[str, Any]
    spec: TensorSpec
    data: bytes


def export_vector(index: VectorIndexClient, namespace: str, entry_id: str) -> ExportedVector | None:
    """Reads what vector_index has of an entry; None when it has nothing."""
    try:
        located = index.get_entry(namespace, entry_id, include_vector=True)
    except EntryNotFound:
        return None
    if located.vector is None:
        raise DataCorrupt(
            f"vector_index gave no vector of entry {entry_id!r}; it is older than this program"
        )
    fields = dataclasses.asdict(dataclasses.replace(located.entry, snapshots=()))
    del fields["entry_id"], fields["snapshots"]
    data = vector_bytes(located.vector)
    described = fields | {
        "compatibility_key": located.compatibility_key,
        "steps": [ref.step_index for ref in located.entry.snapshots],
        "dimension": located.vector.size,
        "xxh3_64": f"{checksum(data):016x}",
    }
    return ExportedVector(described, _spec(described), data)


def import_vector(
    index: VectorIndexClient,
    namespace: str,
    entry_id: str,
    described: dict[str, Any],
    refs: Iterable[LatentRef],
    file: TensorsFile,
) -> bool:
    """Writes an entry to vector_index unless it is there; returns whether it was written.

    Args:
        index: Where to.
        namespace: Namespace of the entry.
        entry_id: The entry.
        described: What the manifest says of it.
        refs: Its snapshots in the store it was imported to.
        file: File of the entry.

    Raises:
        DataCorrupt: the vector does not match its checksum.
        SkipstoneError: what the service raised.
    """
    try:
        index.get_entry(namespace, entry_id)
    except EntryNotFound:
        pass
    else:
        return False
    fields = {name: value for name, value in described.items() if name not in _NOT_OF_THE_ENTRY}
    snapshots = tuple(ref for ref in refs if ref.step_index in described["steps"])
    entry = IndexEntry(entry_id=entry_id, snapshots=snapshots, **fields)
    vector = _vector(entry_id, described, file)
    (refused,) = index.upsert_entries(
        namespace, described["compatibility_key"], [VectorEntry(entry, vector)]
    )
    if refused is not None:
        raise refused
    return True


_NOT_OF_THE_ENTRY = {"compatibility_key", "steps", "dimension", "xxh3_64"}


def _vector(entry_id: str, described: dict[str, Any], file: TensorsFile) -> Vector:
    data = file.read(VECTOR_TENSOR, _spec(described).size_bytes)
    if f"{checksum(data):016x}" != described["xxh3_64"]:
        raise DataCorrupt(f"the vector of entry {entry_id!r} does not match its checksum")
    return vector_from_bytes(data)


def _spec(described: dict[str, Any]) -> TensorSpec:
    return TensorSpec(DType.FLOAT32, (described["dimension"],))
