"""What one step of moving entries between two backends did: the same from a local and a remote one.

A service that is told to move serves one backend, the source, and writes to both. A *pass* compares
them from one end to the other, a step at a time, and makes the target what the source is; the
target has everything once a pass found nothing to copy and no write was missed during it.
"""

from __future__ import annotations

import dataclasses

from skipstone_shared.errors import InvalidArgument


@dataclasses.dataclass(frozen=True, slots=True)
class MissedWrites:
    """Writes of which the target of a move may not have what the source has.

    Attributes:
        process_id: The process that counts them; another one after every start.
        count: How many since it started.
    """

    process_id: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An entry that the target cannot take, and why."""

    namespace: str
    entry_id: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationStep:
    """One step of a pass.

    Attributes:
        compared: Entries of the source that were looked at.
        copied: Those that were copied; what was written to the target has been read back.
        copied_bytes: Bytes of what was copied.
        removed: Entries of the target that the source does not have any more, and that were
            removed.
        refused: Entries that the target cannot take.
        missed_writes: Writes since the start of the service that reached the source alone, but for
            those under way.
        source_entries: Entries of the source, in the first step of a pass; 0 in the others.
        next_page_token: Where the next step goes on; empty when the pass is over.
        source: Engine of the source.
        target: Engine of the target.
        process_id: The process that did it.
    """

    compared: int
    copied: int
    copied_bytes: int
    removed: int
    refused: tuple[RefusedEntry, ...]
    missed_writes: int
    source_entries: int
    next_page_token: str
    source: str
    target: str
    process_id: str


@dataclasses.dataclass
class StepTally:
    """What a step has done so far; the fields are those of `MigrationStep`."""

    compared: int = 0
    copied: int = 0
    copied_bytes: int = 0
    removed: int = 0
    refused: list[RefusedEntry] = dataclasses.field(default_factory=list)

    def told(
        self,
        *,
        missed: MissedWrites,
        source_entries: int,
        next_page_token: str,
        source: str,
        target: str,
    ) -> MigrationStep:
        """The step, once it is over."""
        return MigrationStep(
            self.compared,
            self.copied,
            self.copied_bytes,
            self.removed,
            tuple(self.refused),
            missed.count,
            source_entries,
            next_page_token,
            source,
            target,
            missed.process_id,
        )


def bad_page_token() -> InvalidArgument:
    """The error for a token of a pass that no step has told."""
    return InvalidArgument(
        "page_token is not one that a step returned",
        field="page_token",
        allowed="next_page_token of the step before, or empty",
    )
