"""The gRPC face of a service that moves its entries to another backend."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import grpc

from skipstone.migration.v1 import migration_pb2 as pb
from skipstone.migration.v1 import migration_pb2_grpc as pb_grpc
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.grpc_server import Mounted
from skipstone_shared.migration import MigrationStep, MissedWrites
from skipstone_shared.migration_messages import (
    migration_step_to_message,
    missed_writes_to_message,
)
from skipstone_shared.structured_logging import get_logger

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Migration"].full_name

_STEP_BYTES = 64 << 20


class Mover(Protocol):
    """Moves entries from a source to a target, step by step."""

    def step(self, page_token: str, max_bytes: int, verify: bool) -> MigrationStep:
        """Compares some entries and makes the target what the source is.

        Args:
            page_token: ``next_page_token`` of the step before; empty begins a pass.
            max_bytes: Bytes after which the step ends.
            verify: Whether to read back everything and not only what is copied.

        Raises:
            InvalidArgument: a bad token.
            Unavailable: one of both does not answer.
            ResourceExhausted: the target is full.
        """
        ...

    def missed_writes(self) -> MissedWrites:
        """Writes that the target missed; waits for those under way.

        Raises:
            Unavailable: a call that the target has not answered may still have an effect.
            DeadlineExceeded: those under way have not ended in time.
        """
        ...


def with_migration(mounted: Mounted, mover: Mover) -> Mounted:
    """A service that can also be asked to move its entries.

    Args:
        mounted: The service.
        mover: Moves its entries.
    """
    servicer = MigrationServicer(mover)

    def register(server: grpc.Server) -> None:
        mounted.register(server)
        pb_grpc.add_MigrationServicer_to_server(servicer, server)

    names = [*mounted.service_names, SERVICE_NAME]
    return dataclasses.replace(mounted, register=register, service_names=names)


class MigrationServicer(pb_grpc.MigrationServicer):
    """Answers from a mover; see ``migration.proto``."""

    def __init__(self, mover: Mover) -> None:
        """Creates the servicer.

        Args:
            mover: Does the work.
        """
        self._mover = mover

    def GetMissedWrites(  # noqa: N802
        self, request: pb.GetMissedWritesRequest, context: grpc.ServicerContext
    ) -> pb.GetMissedWritesResponse:
        """Writes that the target missed."""
        return missed_writes_to_message(self._mover.missed_writes())

    def MigrateEntries(  # noqa: N802
        self, request: pb.MigrateEntriesRequest, context: grpc.ServicerContext
    ) -> pb.MigrateEntriesResponse:
        """One step of a pass."""
        if request.max_bytes < 0:
            raise InvalidArgument(
                f"max_bytes {request.max_bytes}", field="max_bytes", allowed="0 and up"
            )
        step = self._mover.step(
            request.page_token, request.max_bytes or _STEP_BYTES, request.verify
        )
        if step.copied or step.removed or step.refused:
            get_logger().info(
                "entries moved",
                source=step.source,
                target=step.target,
                copied=step.copied,
                removed=step.removed,
                refused=len(step.refused),
            )
        return migration_step_to_message(step)
