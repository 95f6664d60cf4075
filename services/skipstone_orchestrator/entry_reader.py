"""Reads what the latent store really has of an entry."""

from __future__ import annotations

from skipstone_orchestrator.backends import LatentEntries
from skipstone_orchestrator.deadlines import Budget
from skipstone_orchestrator.guard import Guard
from skipstone_shared.errors import EntryNotFound
from skipstone_shared.stored_entries import StoredEntry, StoredSnapshot


class EntryReader:
    """Reads entries for lookups, through the guard of the store."""

    def __init__(self, store: LatentEntries, guard: Guard, limit_s: float) -> None:
        """Creates the reader.

        Args:
            store: Latent store.
            guard: Its guard.
            limit_s: Seconds one read may take.
        """
        self._store = store
        self._guard = guard
        self._limit_s = limit_s

    @property
    def service(self) -> str:
        """Name of the store's service, for fallbacks."""
        return self._guard.service

    async def check(self) -> None:
        """Asks whether a read would be tried.

        Raises:
            BreakerOpen: It would not.
        """
        await self._guard.check()

    async def read(self, namespace: str, entry_id: str, budget: Budget) -> StoredEntry | None:
        """An entry, None when it is not there.

        Raises:
            SkipstoneError: The store did not answer.
        """
        try:
            return await budget.call(
                self._guard, lambda: self._store.get_entry(namespace, entry_id), self._limit_s
            )
        except EntryNotFound:
            return None


def find_snapshot(stored: StoredEntry, step_index: int) -> StoredSnapshot | None:
    """The snapshot of a step, None when the entry has none."""
    return next((s for s in stored.snapshots if s.ref.step_index == step_index), None)
