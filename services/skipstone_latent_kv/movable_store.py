"""What a store needs beside the contract so that its entries can move to another store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from skipstone_latent_kv.store import LatentStore
from skipstone_latent_kv.store_metrics import TotalledStore
from skipstone_latent_kv.sweeper import Sweepable
from skipstone_shared.latents import LatentRef
from skipstone_shared.stored_entries import Snapshot, StoredEntry


@runtime_checkable
class MovableStore(LatentStore, TotalledStore, Sweepable, Protocol):
    """A ``LatentStore`` that entries can be moved out of and into, with their history."""

    def namespaces(self) -> list[str]:
        """Namespaces that have entries, committed or not, ascending."""
        ...

    def peek_latent(self, namespace: str, ref: LatentRef) -> Snapshot:
        """Reads one snapshot as ``read_latent`` does, but it is no use of the entry."""
        ...

    def adopt_entries(self, namespace: str, entries: Sequence[StoredEntry]) -> list[bool]:
        """Commits entries that were copied here, with the history that they had elsewhere.

        Creation, last use, reads and pin become those of ``entries``. By the time of its last use
        (creation, for FIFO) an adopted entry takes its place among other adopted ones; all of them
        go before what was written or read here since.

        Like any change it is made after those that had begun, also after one whose caller has been
        told DEADLINE_EXCEEDED: when it returns, also for no entries at all, they are made.

        Args:
            namespace: Namespace of the entries.
            entries: As another store answered them; their snapshots are not looked at.

        Returns:
            One per entry, in order: False when it is not here.
        """
        ...
