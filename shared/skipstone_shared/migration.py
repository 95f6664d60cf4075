"""What one step of moving entries between two backends did: the same from a local and a remote one.

A service that is told to move serves one backend, the source, and writes to both. A *pass* compares
them from one end to the other, a step at a time, and makes the target what the source is; the
target has everything once a pass found nothing to do.
"""

from __future__ import annotations

import dataclasses


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
        removed: Entries of the target that the source does not have, and that were removed.
        refused: Entries that the target cannot take.
        missed_writes: Writes since the start of the service that reached the source alone.
        source_entries: Entries of the source, in the first step of a pass; 0 in the others.
        next_page_token: Where the next step goes on; empty when the pass is over.
        source: Engine of the source.
        target: Engine of the target.
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
