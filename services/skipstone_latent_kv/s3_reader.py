"""Reads of a store in S3, which look again where another process has been at work."""

from __future__ import annotations

from skipstone_latent_kv.entry_table import EntryKey
from skipstone_latent_kv.latent_codec import decode
from skipstone_latent_kv.record_format import SnapshotRecord
from skipstone_latent_kv.references import check_matches, reference
from skipstone_latent_kv.s3_entries import S3Entries
from skipstone_latent_kv.s3_values import S3Values, ValueLost, ValueName
from skipstone_shared.errors import FingerprintMismatch, LatentNotFound
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import Snapshot, StoredSnapshot
from skipstone_shared.structured_logging import get_logger


class S3Reader:
    """Finds snapshots in memory and their bytes in S3."""

    def __init__(self, entries: S3Entries, values: S3Values) -> None:
        """Reads.

        Args:
            entries: Which snapshots there are.
            values: Their bytes.
        """
        self._entries = entries
        self._values = values
        self._logger = get_logger(store="s3")

    def snapshot(self, key: EntryKey, ref: LatentRef) -> Snapshot:
        """A snapshot with its bytes. The log is asked only when they are not where they should be.

        Raises:
            LatentNotFound: no such snapshot, or its bytes were lost and the entry was removed.
            FingerprintMismatch: another one than the reference names.
        """
        lost: ValueLost | None = None
        refreshed = False
        while True:
            try:
                return self._read(key, ref)
            except (LatentNotFound, FingerprintMismatch):
                if refreshed:
                    raise
            except ValueLost as error:
                if lost is not None and error.name == lost.name:
                    self._remove_lost(error)
                    raise _no_snapshot(ref) from error
                lost = error
            # Another process may have written, replaced or removed it.
            self._entries.refresh()
            refreshed = True

    def head(self, key: EntryKey, ref: LatentRef) -> StoredSnapshot:
        """A snapshot without its bytes, as the log says now.

        Raises:
            LatentNotFound: no such snapshot.
            FingerprintMismatch: another one than the reference names.
        """
        self._entries.refresh()
        head, _ = self._find(key, ref)
        return head

    def _read(self, key: EntryKey, ref: LatentRef) -> Snapshot:
        head, record = self._find(key, ref)
        data: bytes | memoryview = self._values.read(ValueName(key, record.value_id), record)
        if record.encoded is not None:
            data = decode(data, record.metadata.parts)
        return Snapshot(head.ref, head.metadata, data)

    def _find(self, key: EntryKey, ref: LatentRef) -> tuple[StoredSnapshot, SnapshotRecord]:
        """A snapshot as this process knows it."""
        entry = self._entries.seen(key)
        record = entry.record(ref.step_index) if entry else None
        if record is None:
            raise _no_snapshot(ref)
        stored = reference(key[0], record.metadata, record.xxh3_64)
        check_matches(ref, stored)
        return StoredSnapshot(stored, record.metadata), record

    def _remove_lost(self, error: ValueLost) -> None:
        """Removes an entry whose value is lost, unless it has another one by now."""
        namespace, entry_id = error.name.entry
        self._logger.error(
            "corrupt entry", namespace=namespace, entry_id=entry_id, error=error.message
        )
        self._entries.change(lambda txn: txn.remove_lost(error.name))


def _no_snapshot(ref: LatentRef) -> LatentNotFound:
    return LatentNotFound(f"no snapshot at step {ref.step_index} of entry {ref.entry_id!r}")
