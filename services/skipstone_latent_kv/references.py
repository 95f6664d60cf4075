"""References to snapshots: how one is made, and when one names what is stored."""

from __future__ import annotations

from skipstone_shared.errors import FingerprintMismatch
from skipstone_shared.latents import LatentRef, SnapshotMetadata


def reference(namespace: str, metadata: SnapshotMetadata, xxh3_64: int) -> LatentRef:
    """The reference to a snapshot; ``store`` is empty, since a store does not know its address."""
    return LatentRef(
        namespace=namespace,
        entry_id=metadata.entry_id,
        step_index=metadata.step_index,
        spec=metadata.parts[0].spec,
        xxh3_64=xxh3_64,
        size_bytes=metadata.size_bytes,
        sigma=metadata.sigma,
        compatibility_key=metadata.compatibility_key,
    )


def check_matches(wanted: LatentRef, stored: LatentRef) -> None:
    """Compares what a reference names with what is stored; what is unset matches.

    Raises:
        FingerprintMismatch: they differ, for example since the entry was overwritten.
    """
    if wanted.spec is not None and wanted.spec != stored.spec:
        raise FingerprintMismatch(
            f"step {stored.step_index} of entry {stored.entry_id!r} holds latents of "
            f"{stored.spec}, the reference names {wanted.spec}",
            field="ref.spec",
        )
    if wanted.size_bytes and wanted.size_bytes != stored.size_bytes:
        raise FingerprintMismatch(
            f"step {stored.step_index} of entry {stored.entry_id!r} holds {stored.size_bytes} "
            f"bytes, the reference names {wanted.size_bytes}",
            field="ref.size_bytes",
        )
    if wanted.xxh3_64 and wanted.xxh3_64 != stored.xxh3_64:
        raise FingerprintMismatch(
            f"step {stored.step_index} of entry {stored.entry_id!r} was overwritten: its checksum "
            f"is {stored.xxh3_64:016x}, the reference names {wanted.xxh3_64:016x}",
            field="ref.xxh3_64",
        )
