"""Entries as operators see them: list, show, delete."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_orchestrator.backends import EntryIndex, LatentEntries
from skipstone_orchestrator.deadlines import Guards
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.index_entries import IndexEntry
from skipstone_shared.latents import checked_entry_id, checked_namespace
from skipstone_shared.orchestration import Entry, EntryPage

MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 100
MAX_BATCH_SIZE = 1000


class Entries:
    """The entries that can be reused, over vector_index and latent_kv."""

    def __init__(
        self, index: EntryIndex, store: LatentEntries, guards: Guards, timeout_s: float
    ) -> None:
        """Creates the view.

        Args:
            index: Has payload and vector of every entry.
            store: Has the snapshots.
            guards: Guards of both.
            timeout_s: Seconds each call may take.
        """
        self._index = index
        self._store = store
        self._guards = guards
        self._timeout_s = timeout_s

    async def list_page(self, namespace: str, page_size: int, page_token: str) -> EntryPage:
        """One page, oldest first; a size of 0 is DEFAULT_PAGE_SIZE.

        Raises:
            InvalidArgument: A bad namespace, page size or page token.
            Unavailable: vector_index cannot be reached.
        """
        namespace = checked_namespace(namespace)
        if not 0 <= page_size <= MAX_PAGE_SIZE:
            raise InvalidArgument(
                f"page_size is {page_size}", field="page_size", allowed=f"0 to {MAX_PAGE_SIZE}"
            )
        page = await self._guards.index.call(
            lambda: self._index.list_entries(
                namespace, page_size=page_size or DEFAULT_PAGE_SIZE, page_token=page_token
            ),
            self._timeout_s,
        )
        return EntryPage(tuple(_shown(entry) for entry in page.entries), page.next_page_token)

    async def get(self, namespace: str, entry_id: str) -> Entry:
        """One entry.

        Raises:
            InvalidArgument: A bad namespace or id.
            EntryNotFound: No such entry.
            Unavailable: vector_index cannot be reached.
        """
        namespace, entry_id = checked_namespace(namespace), checked_entry_id(entry_id)
        located = await self._guards.index.call(
            lambda: self._index.get_entry(namespace, entry_id), self._timeout_s
        )
        return _shown(located.entry)

    async def delete(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries, from the index first: none may be found whose latents are gone.

        Returns:
            Per id, in order, whether it was in either store.

        Raises:
            InvalidArgument: A bad namespace or id, no id, or too many.
            Unavailable: A store cannot be reached; the call may be repeated.
        """
        namespace = checked_namespace(namespace)
        if not 1 <= len(entry_ids) <= MAX_BATCH_SIZE:
            raise InvalidArgument(
                f"{len(entry_ids)} entry_ids", field="entry_ids", allowed=f"1 to {MAX_BATCH_SIZE}"
            )
        ids = [checked_entry_id(entry_id) for entry_id in entry_ids]
        found = await self._guards.index.call(
            lambda: self._index.delete_entries(namespace, ids), self._timeout_s
        )
        stored = await self._guards.store.call(
            lambda: self._store.delete_entries(namespace, ids), self._timeout_s
        )
        return [bool(a or b) for a, b in zip(found, stored, strict=True)]


def _shown(entry: IndexEntry) -> Entry:
    # Entries that may not donate are in another partition, so the snapshots tell the key.
    key = entry.snapshots[0].compatibility_key if entry.snapshots else ""
    return Entry(
        entry.entry_id,
        entry.prompt,
        entry.seed,
        key,
        entry.snapshots,
        entry.depth,
        entry.create_time,
    )
