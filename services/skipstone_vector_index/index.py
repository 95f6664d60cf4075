"""The contract of a vector index."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from skipstone_shared.errors import SkipstoneError
from skipstone_shared.index_entries import (
    IndexCapabilities,
    IndexPage,
    IndexStats,
    LocatedEntry,
    NamespacePage,
    PackedHit,
    SearchHit,
    Vector,
    VectorEntry,
)


class VectorIndex(Protocol):
    """Finds entries whose vector is close to a query, within one partition.

    A partition is a (namespace, compatibility key); nothing of another partition is ever returned
    by a search. All vectors of a partition that has entries have one dimension; an empty partition
    takes any. An empty namespace means ``default``.

    A similarity is the cosine, or the inner product where `get_capabilities` says so: then vectors
    and queries count with their norm, which is at most 1e18, and similarities have no bounds. An
    index that stores float16 rounds vectors, so that similarities are off by up to 1e-4.

    Threads: every method may be called from any thread at any time. When a call that writes
    returns, its effect is visible to every later call, and durable if the index is. A search that
    runs at the same time sees each entry before or after the write, never a mixture.

    Every method raises Unavailable once the index is closed.
    """

    def upsert_entries(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> list[SkipstoneError | None]:
        """Stores entries; one with the same id in the same partition is replaced as a whole.

        Of several entries with one id in one call the last one wins. An
        entry without a create time gets the current one. A replaced entry keeps its place in
        listings.

        Returns:
            One per entry, in order: None, or the InvalidArgument that says why this entry was not
            stored. A bad entry does not fail its neighbours.

        Raises:
            InvalidArgument: No entry, too many, or a bad namespace or key; nothing is stored.
            ResourceExhausted: The disk or the index's own limit is full; nothing is stored.
        """
        ...

    def search_entries(
        self,
        namespace: str,
        compatibility_key: str,
        queries: Sequence[Vector],
        top_k: int,
        min_similarity: float | None = None,
        embedding_model_id: str = "",
    ) -> list[list[SearchHit]]:
        """Finds the entries closest to each query.

        Args:
            namespace: Namespace.
            compatibility_key: Partition.
            queries: float32 ``(dimension,)`` each, finite, not all zero, any norm.
            top_k: Hits wanted per query, 1 to ``max_top_k``.
            min_similarity: Only hits with at least this similarity; None for all.
            embedding_model_id: Entries of another model are passed over; empty for any.

        Returns:
            Per query at most ``top_k`` hits, best first, equal similarities by ascending entry id.
            Fewer when there are fewer; none for an empty or unknown partition. The similarity is
            that of the stored vector and the query, a cosine of -1 to 1, rounded to float32.

        Raises:
            InvalidArgument: No query, too many, a query of the wrong dimension, zero or not finite,
                or ``top_k`` out of range.
        """
        ...

    def get_entry(
        self, namespace: str, entry_id: str, include_vector: bool = False
    ) -> LocatedEntry:
        """Returns one entry; of several partitions that have it, from the one that got it last.

        Args:
            namespace: Namespace.
            entry_id: Entry.
            include_vector: Whether its vector comes with it.

        Raises:
            EntryNotFound: No such entry.
            InvalidArgument: A bad id or namespace.
        """
        ...

    def list_entries(
        self,
        namespace: str,
        compatibility_key: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> IndexPage:
        """Lists entries in the order in which they were first stored, a page at a time.

        A page may be shorter than asked; only an empty token says that it was the last. Entries
        first stored after the first page was made are left out, and none is listed twice.

        Args:
            namespace: Namespace.
            compatibility_key: Only this partition; empty for all of the namespace.
            page_size: Entries wanted, 1 to 1000.
            page_token: ``next_page_token`` of the page before; empty from the start.

        Raises:
            InvalidArgument: A bad token or page size.
        """
        ...

    def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        """Lists the namespaces that have entries, ascending, from after ``page_token``.

        Args:
            page_size: Namespaces wanted, 1 to 1000.
            page_token: ``next_page_token`` of the page before; empty from the start.

        Raises:
            InvalidArgument: A bad token or page size.
        """
        ...

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries from every partition of the namespace.

        Returns:
            One per id, in order: whether it was there. What is no valid id never is.

        Raises:
            InvalidArgument: No id, or too many.
        """
        ...

    def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        """Removes a partition, or all of the namespace when no key is given.

        Returns:
            The number of entries removed.
        """
        ...

    def get_stats(self, namespace: str) -> IndexStats:
        """Counts a namespace; an unknown one has no entries."""
        ...

    def get_capabilities(self) -> IndexCapabilities:
        """Tells the engine and the limits."""
        ...

    def close(self) -> None:
        """Releases files and threads. May be called twice."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What `VectorIndex.search_entries` is asked; the fields are its arguments."""

    namespace: str
    compatibility_key: str
    queries: Sequence[Vector]
    top_k: int
    min_similarity: float | None = None
    embedding_model_id: str = ""


class ServedIndex(VectorIndex, Protocol):
    """An index that can be served: it also answers searches without unpacking entries."""

    def search_packed(self, search: Search) -> list[list[PackedHit]]:
        """Finds what `search_entries` finds."""
        ...


class MovableIndex(ServedIndex, Protocol):
    """An index that entries can be moved out of and into: it also gives many whole ones at once."""

    def locate_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[LocatedEntry]:
        """Returns up to a hundred entries with their vectors, in any order.

        Of an id that is in several partitions all of them; none of one that is nowhere.
        """
        ...
