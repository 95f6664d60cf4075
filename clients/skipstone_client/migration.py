"""Client of a latent_kv or vector_index that moves its entries to another backend."""

from __future__ import annotations

from skipstone.migration.v1 import migration_pb2 as pb
from skipstone.migration.v1.migration_pb2_grpc import MigrationStub
from skipstone_client._channel import MIGRATION
from skipstone_client._sync_client import SyncClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.migration import MigrationStep, MissedWrites
from skipstone_shared.migration_messages import (
    migration_step_from_message,
    missed_writes_from_message,
)
from skipstone_shared.optional_fields import new_message


class MigrationClient(SyncClient[MigrationStub]):
    """Drives the moving of entries, step by step."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 60.0,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target of the service.
            timeout_s: Deadline of a call that gives none of its own, in seconds.
            credentials: Certificates and token; None: none, in plain text.
        """
        super().__init__(target, MIGRATION, MigrationStub, timeout_s, credentials)

    def get_missed_writes(self, *, timeout_s: float | None = None) -> MissedWrites:
        """Counts the writes that the target missed; waits for those under way.

        Args:
            timeout_s: Deadline of this call, in seconds.

        Raises:
            Unimplemented: the service was not told to move.
            Unavailable: it does not answer, or a call to its target has no end yet.
        """
        return missed_writes_from_message(
            self._call(self._stub.GetMissedWrites, pb.GetMissedWritesRequest(), timeout_s)
        )

    def migrate_entries(
        self,
        page_token: str = "",
        *,
        max_bytes: int = 0,
        verify: bool = False,
        timeout_s: float | None = None,
    ) -> MigrationStep:
        """Compares some entries of both backends and makes the target what the source is.

        Args:
            page_token: ``next_page_token`` of the step before; empty begins a pass.
            max_bytes: Bytes after which the step ends; 0 for the service's own.
            verify: Whether to read back everything and not only what is copied.
            timeout_s: Deadline of this call, in seconds.

        Raises:
            Unimplemented: the service was not told to move.
            Unavailable: it, or the backend it moves to, does not answer.
        """
        request = new_message(
            pb.MigrateEntriesRequest, page_token=page_token, max_bytes=max_bytes, verify=verify
        )
        return migration_step_from_message(
            self._call(self._stub.MigrateEntries, request, timeout_s)
        )
