"""Dataclasses of ``migration`` <-> messages of ``skipstone/migration/v1``."""

from __future__ import annotations

from skipstone.migration.v1 import migration_pb2 as pb
from skipstone_shared.migration import MigrationStep, MissedWrites, RefusedEntry


def migration_step_to_message(step: MigrationStep) -> pb.MigrateEntriesResponse:
    """The message of a step."""
    return pb.MigrateEntriesResponse(
        compared=step.compared,
        copied=step.copied,
        copied_bytes=step.copied_bytes,
        removed=step.removed,
        refused=[
            pb.RefusedEntry(namespace=r.namespace, entry_id=r.entry_id, reason=r.reason)
            for r in step.refused
        ],
        missed_writes=step.missed_writes,
        source_entries=step.source_entries,
        next_page_token=step.next_page_token,
        source=step.source,
        target=step.target,
        process_id=step.process_id,
    )


def migration_step_from_message(message: pb.MigrateEntriesResponse) -> MigrationStep:
    """The step of a message."""
    return MigrationStep(
        compared=message.compared,
        copied=message.copied,
        copied_bytes=message.copied_bytes,
        removed=message.removed,
        refused=tuple(RefusedEntry(r.namespace, r.entry_id, r.reason) for r in message.refused),
        missed_writes=message.missed_writes,
        source_entries=message.source_entries,
        next_page_token=message.next_page_token,
        source=message.source,
        target=message.target,
        process_id=message.process_id,
    )


def missed_writes_to_message(missed: MissedWrites) -> pb.GetMissedWritesResponse:
    """The message of a count."""
    return pb.GetMissedWritesResponse(process_id=missed.process_id, missed_writes=missed.count)


def missed_writes_from_message(message: pb.GetMissedWritesResponse) -> MissedWrites:
    """The count of a message."""
    return MissedWrites(message.process_id, message.missed_writes)
