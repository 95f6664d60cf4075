"""Entries of a store by pages of their ids, committed or not, as a mover reads them."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from skipstone_latent_kv.store import LatentStore
from skipstone_shared.stored_entries import StoredEntry, StoredEntryPage

PAGE_SIZE = 100


def page_after(store: LatentStore, namespace: str, after: str) -> StoredEntryPage:
    """The entries of a namespace after an id."""
    return store.list_entries(namespace, PAGE_SIZE, after, include_uncommitted=True)


def up_to(last: str, page: StoredEntryPage) -> list[StoredEntry]:
    """Entries of a page up to an id; empty for all."""
    return [entry for entry in page.entries if not last or entry.entry_id <= last]


def entries_of(
    store: LatentStore, namespace: str, after: str, entry_ids: AbstractSet[str]
) -> list[StoredEntry]:
    """Those of some entries, at least one and all of them after an id, that a store has."""
    found: list[StoredEntry] = []
    token, last = after, max(entry_ids)
    while True:
        page = page_after(store, namespace, token)
        found += (entry for entry in page.entries if entry.entry_id in entry_ids)
        token = page.next_page_token
        if not token or token >= last:
            return found
