"""Entries of a latent_kv service as files, and back: how a warm cache is shipped.

An export is a directory: ``manifest.json``, and for each entry ``NAMESPACE/ENTRY.safetensors`` with
its tensors as ``step/part``, and its vector where vector_index has one (`index_transfer`). The
manifest holds everything that is not tensor bytes, a checksum of
itself, and the checksum of each snapshot's bytes, which the service verifies again on import. It
is written last, so that an export that was broken off is none.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from skipstone_client._safetensors import TensorsFile, write_tensors
from skipstone_client.index_transfer import VECTOR_TENSOR, export_vector, import_vector
from skipstone_client.latent_kv import LatentKVClient
from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.errors import (
    DataCorrupt,
    EntryNotFound,
    FailedPrecondition,
    FingerprintMismatch,
    LatentNotFound,
)
from skipstone_shared.latents import (
    DEFAULT_NAMESPACE,
    DType,
    LatentRef,
    SnapshotMetadata,
    TensorPart,
    TensorSpec,
    canonical_hash,
    checked_entry_id,
    checked_namespace,
    checksum,
)
from skipstone_shared.stored_entries import StoredEntry, StoredSnapshot

FORMAT = "skipstone-latent-kv-export"
VERSION = 1
MANIFEST = "manifest.json"

_PAGE_SIZE = 100


@dataclasses.dataclass
class Transferred:
    """What an export or import did.

    Attributes:
        entries: Entries of latent_kv written.
        snapshots: Their snapshots.
        size_bytes: Bytes of those.
        skipped: Entries that went while they were exported, or that latent_kv had already.
        vectors: Entries of vector_index written.
        empty_namespaces: Namespaces that had nothing to export: not there, or nothing committed.
    """

    entries: int = 0
    snapshots: int = 0
    size_bytes: int = 0
    skipped: int = 0
    vectors: int = 0
    empty_namespaces: list[str] = dataclasses.field(default_factory=list)

    def add(self, sizes: Sequence[int]) -> None:
        """Counts an entry with snapshots of these sizes."""
        self.entries += 1
        self.snapshots += len(sizes)
        self.size_bytes += sum(sizes)


def export_entries(
    client: LatentKVClient,
    directory: Path,
    namespaces: Sequence[str],
    index: VectorIndexClient | None,
) -> Transferred:
    """Writes all committed entries of namespaces into a new or empty directory.

    Args:
        client: Where the latents are.
        directory: Where to.
        namespaces: What to export.
        index: Where the vectors are; None leaves them out.

    Raises:
        FailedPrecondition: the directory is not empty.
        SkipstoneError: what the service raised; the directory has no manifest then.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FailedPrecondition(f"{directory} is not empty; export into a new directory")
    done, entries = Transferred(), []
    for namespace in dict.fromkeys(name or DEFAULT_NAMESPACE for name in namespaces):
        is_empty = True
        for entry in _all_entries(client, namespace):
            is_empty = False
            try:
                written = _export_entry(client, index, directory, namespace, entry)
            except (LatentNotFound, FingerprintMismatch):
                done.skipped += 1  # It was evicted or overwritten since it was listed.
                continue
            entries.append(written)
            done.add([snapshot.ref.size_bytes for snapshot in entry.snapshots])
            done.vectors += "index" in written
        if is_empty:
            done.empty_namespaces.append(namespace)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "checksum": canonical_hash(entries),
        "entries": entries,
    }
    fresh = directory / f"{MANIFEST}.part"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(directory / MANIFEST)
    return done


def import_entries(
    client: LatentKVClient, directory: Path, index: VectorIndexClient | None
) -> Transferred:
    """Writes the entries of an export to services. What they have already is left as it is.

    Each entry is committed when all its snapshots are there, and found by searches after that, so
    that breaking off leaves no half one; importing again goes on where it ended.

    Args:
        client: Where the latents go.
        directory: The export.
        index: Where the vectors go; None leaves them out.

    Raises:
        FailedPrecondition: the directory holds no export that this program can read.
        DataCorrupt: a file of it is damaged.
        SkipstoneError: what the service raised.
    """
    done = Transferred()
    for entry in _manifest_entries(directory):
        namespace, entry_id = entry["namespace"], entry["entry_id"]
        with TensorsFile(directory / namespace / f"{entry_id}.safetensors") as file:
            refs = _stored(client, entry)
            if refs:
                done.skipped += 1
            else:
                refs = _import_latents(client, entry, file)
                done.add([ref.size_bytes for ref in refs])
            if index is not None and "index" in entry:
                done.vectors += import_vector(
                    index, namespace, entry_id, entry["index"], refs, file
                )
    return done


def _import_latents(
    client: LatentKVClient, entry: dict[str, Any], file: TensorsFile
) -> list[LatentRef]:
    """Writes the snapshots of one entry; returns what they are called where they are now."""
    namespace, entry_id = entry["namespace"], entry["entry_id"]
    refs = []
    for snapshot in entry["snapshots"]:
        metadata = _metadata(entry_id, snapshot)
        ref = client.write_latent(
            namespace,
            metadata,
            _snapshot_bytes(file, metadata, snapshot["xxh3_64"]),
            size_bytes=metadata.size_bytes,
            xxh3_64=int(snapshot["xxh3_64"], 16),
        )
        refs.append(ref)
    client.commit_entry(namespace, entry_id)
    if entry["pinned"]:
        client.pin_entries(namespace, [entry_id], True)
    return refs


def _all_entries(client: LatentKVClient, namespace: str) -> Iterator[StoredEntry]:
    token = ""
    while True:
        page = client.list_entries(namespace, _PAGE_SIZE, token)
        yield from page.entries
        token = page.next_page_token
        if not token:
            return


def _export_entry(
    client: LatentKVClient,
    index: VectorIndexClient | None,
    directory: Path,
    namespace: str,
    entry: StoredEntry,
) -> dict[str, Any]:
    """Writes the file of an entry and returns what the manifest says of it."""
    folder = directory / namespace
    folder.mkdir(exist_ok=True)
    path = folder / f"{entry.entry_id}.safetensors"
    specs = {
        _tensor_name(snapshot.metadata, part): part.spec
        for snapshot in entry.snapshots
        for part in snapshot.metadata.parts
    }
    # By the references listed: what was overwritten since is a mismatch, never a mixture.
    data = (client.read_latent(namespace, snapshot.ref).data for snapshot in entry.snapshots)
    vector = None if index is None else export_vector(index, namespace, entry.entry_id)
    if vector is not None:
        specs[VECTOR_TENSOR] = vector.spec
    try:
        write_tensors(path, specs, chain(data, [vector.data] if vector else []))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    written = {
        "namespace": namespace,
        "entry_id": entry.entry_id,
        "pinned": entry.pinned,
        "snapshots": [_described(snapshot) for snapshot in entry.snapshots],
    }
    return written if vector is None else written | {"index": vector.described}


def _tensor_name(metadata: SnapshotMetadata, part: TensorPart) -> str:
    return f"{metadata.step_index}/{part.name}"


def _described(snapshot: StoredSnapshot) -> dict[str, Any]:
    """A snapshot without bytes, as the manifest has it; ``_metadata`` is the way back."""
    fields = dataclasses.asdict(snapshot.metadata)
    del fields["entry_id"]
    fields["parts"] = [
        [part.name, part.spec.dtype.value, list(part.spec.shape)]
        for part in snapshot.metadata.parts
    ]
    return fields | {"xxh3_64": f"{snapshot.ref.xxh3_64:016x}"}


def _metadata(entry_id: str, described: dict[str, Any]) -> SnapshotMetadata:
    fields = {name: value for name, value in described.items() if name != "xxh3_64"}
    fields["parts"] = tuple(
        TensorPart(name, TensorSpec(DType(dtype), tuple(shape)))
        for name, dtype, shape in fields["parts"]
    )
    return SnapshotMetadata(entry_id=entry_id, **fields)


def _manifest_entries(directory: Path) -> list[dict[str, Any]]:
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FailedPrecondition(
            f"{directory} is no finished export: it holds no {MANIFEST}"
        ) from None
    except ValueError as error:
        raise DataCorrupt(f"{directory / MANIFEST} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FailedPrecondition(f"{directory / MANIFEST} is not the manifest of an export")
    if manifest.get("version") != VERSION:
        raise FailedPrecondition(
            f"{directory} is an export of version {manifest.get('version')}, this program reads "
            f"{VERSION}"
        )
    entries: list[dict[str, Any]] = manifest.get("entries", [])
    if canonical_hash(entries) != manifest.get("checksum"):
        raise DataCorrupt(f"{directory / MANIFEST} does not match its checksum")
    for entry in entries:
        # They become parts of paths.
        checked_namespace(entry["namespace"])
        checked_entry_id(entry["entry_id"])
    return entries


def _stored(client: LatentKVClient, entry: dict[str, Any]) -> list[LatentRef]:
    """The snapshots of an entry if the service has all of them, the same and committed."""
    try:
        stored = client.get_entry(entry["namespace"], entry["entry_id"])
    except EntryNotFound:
        return []
    wanted = {(s["step_index"], int(s["xxh3_64"], 16)) for s in entry["snapshots"]}
    refs = [s.ref for s in stored.snapshots if (s.ref.step_index, s.ref.xxh3_64) in wanted]
    return refs if stored.committed and len(refs) == len(wanted) else []


def _snapshot_bytes(
    file: TensorsFile, metadata: SnapshotMetadata, xxh3_64: str
) -> list[bytes | memoryview]:
    """The bytes of a snapshot's parts in order; what does not match its checksum is not sent."""
    parts: list[bytes | memoryview] = [
        file.read(_tensor_name(metadata, part), part.spec.size_bytes) for part in metadata.parts
    ]
    if f"{checksum(*parts):016x}" != xxh3_64:
        raise DataCorrupt(
            f"step {metadata.step_index} of entry {metadata.entry_id!r} does not match its checksum"
        )
    return parts
