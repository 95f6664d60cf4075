"""Entries of a latent_kv service as files, and back: how a warm cache is shipped.

An export is a directory: ``manifest.json``, and for each entry ``NAMESPACE/ENTRY.safetensors`` with
its tensors as ``step/part``. The manifest holds everything that is not tensor bytes, a checksum of
itself, and the checksum of each snapshot's bytes, which the service verifies again on import. It
is written last, so that an export that was broken off is none.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from skipstone_client._safetensors import TensorsFile, write_tensors
from skipstone_client.latent_kv import LatentKVClient
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
        entries: Entries written.
        snapshots: Their snapshots.
        size_bytes: Bytes of those.
        skipped: Entries that went while they were exported, or that the service had already.
    """

    entries: int = 0
    snapshots: int = 0
    size_bytes: int = 0
    skipped: int = 0

    def add(self, sizes: Sequence[int]) -> None:
        """Counts an entry with snapshots of these sizes."""
        self.entries += 1
        self.snapshots += len(sizes)
        self.size_bytes += sum(sizes)


def export_entries(
    client: LatentKVClient, directory: Path, namespaces: Sequence[str]
) -> Transferred:
    """Writes all committed entries of namespaces into a new or empty directory.

    Raises:
        FailedPrecondition: the directory is not empty.
        SkipstoneError: what the service raised; the directory has no manifest then.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FailedPrecondition(f"{directory} is not empty; export into a new directory")
    done, entries = Transferred(), []
    for namespace in dict.fromkeys(name or DEFAULT_NAMESPACE for name in namespaces):
        for entry in _all_entries(client, namespace):
            try:
                entries.append(_export_entry(client, directory, namespace, entry))
            except (LatentNotFound, FingerprintMismatch):
                done.skipped += 1  # It was evicted or overwritten since it was listed.
                continue
            done.add([snapshot.ref.size_bytes for snapshot in entry.snapshots])
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


def import_entries(client: LatentKVClient, directory: Path) -> Transferred:
    """Writes the entries of an export to a service. One that it has already is left as it is.

    Each entry is committed when all its snapshots are there, so that breaking off leaves no half
    one; importing again goes on where it ended.

    Raises:
        FailedPrecondition: the directory holds no export that this program can read.
        DataCorrupt: a file of it is damaged.
        SkipstoneError: what the service raised.
    """
    done = Transferred()
    for entry in _manifest_entries(directory):
        if _has(client, entry):
            done.skipped += 1
            continue
        done.add(_import_entry(client, directory, entry))
    return done


def _import_entry(client: LatentKVClient, directory: Path, entry: dict[str, Any]) -> list[int]:
    """Writes one entry to the service; returns the sizes of its snapshots."""
    namespace, entry_id = entry["namespace"], entry["entry_id"]
    sizes = []
    with TensorsFile(directory / namespace / f"{entry_id}.safetensors") as file:
        for snapshot in entry["snapshots"]:
            metadata = _metadata(entry_id, snapshot)
            client.write_latent(
                namespace,
                metadata,
                _snapshot_bytes(file, metadata, snapshot["xxh3_64"]),
                size_bytes=metadata.size_bytes,
                xxh3_64=int(snapshot["xxh3_64"], 16),
            )
            sizes.append(metadata.size_bytes)
    client.commit_entry(namespace, entry_id)
    if entry["pinned"]:
        client.pin_entries(namespace, [entry_id], True)
    return sizes


def _all_entries(client: LatentKVClient, namespace: str) -> Iterator[StoredEntry]:
    token = ""
    while True:
        page = client.list_entries(namespace, _PAGE_SIZE, token)
        yield from page.entries
        token = page.next_page_token
        if not token:
            return


def _export_entry(
    client: LatentKVClient, directory: Path, namespace: str, entry: StoredEntry
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
    try:
        write_tensors(path, specs, data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return {
        "namespace": namespace,
        "entry_id": entry.entry_id,
        "pinned": entry.pinned,
        "snapshots": [_described(snapshot) for snapshot in entry.snapshots],
    }


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


def _has(client: LatentKVClient, entry: dict[str, Any]) -> bool:
    """Whether the service has the same snapshots of an entry, committed."""
    try:
        stored = client.get_entry(entry["namespace"], entry["entry_id"])
    except EntryNotFound:
        return False
    wanted = {(s["step_index"], int(s["xxh3_64"], 16)) for s in entry["snapshots"]}
    found = {(s.ref.step_index, s.ref.xxh3_64) for s in stored.snapshots}
    return stored.committed and wanted <= found


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
