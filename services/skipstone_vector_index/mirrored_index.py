"""An index that is about to be replaced: it serves, and writes go to the next one too."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from prometheus_client.registry import Collector

from skipstone_shared.deadline_waits import DeadlineLock
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
from skipstone_shared.migration_mirror import Mirror
from skipstone_vector_index.index import MovableIndex, Search

_BOUND_S = 3.0
"""Seconds that a write may wait for the target: less than a save has for the write."""

_PARTITION_BOUND_S = 10.0
_CLOSE_BOUND_S = 30.0


class MirroredIndex:
    """A `VectorIndex` around the source; its mutations are repeated on the target.

    The source alone decides and answers: until the switch nobody depends on the target. A write
    that the target does not take in time is counted as missed, and its entries are copied by a
    later pass (`IndexMover`). A deletion is made in the target first and fails with it, so that
    what was said to be deleted is nowhere.
    """

    def __init__(
        self,
        source: MovableIndex,
        target: MovableIndex,
        clock: Callable[[], float] = time.time,
        mirror: Mirror | None = None,
    ) -> None:
        """Wraps both indexes and closes them with itself.

        Args:
            source: Serves.
            target: Gets what is written.
            clock: Seconds since the epoch.
            mirror: Asks the target; None for one that waits 3 s for it.
        """
        self.source = source
        self.target = target
        self.mirror = mirror or Mirror("vector_index", _BOUND_S)
        self.writing = DeadlineLock("other entries are written or moved; nothing was changed")
        """Held while entries are written to both: of two writes of one the same must win. Whoever
        holds it waits for the target no longer than one bound in all."""
        self._clock = clock

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metric, to be registered by the server."""
        return self.mirror.collectors

    def upsert_entries(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> list[SkipstoneError | None]:
        """Stores entries; see `VectorIndex`."""
        now = self._clock()
        # Here, since each index would take its own time.
        timed = [
            item
            if item.entry.create_time
            else VectorEntry(dataclasses.replace(item.entry, create_time=now), item.vector)
            for item in entries
        ]

        def repeat(statuses: list[SkipstoneError | None]) -> None:
            taken = [item for item, error in zip(timed, statuses, strict=True) if error is None]
            if taken:
                _upsert_all(self.target, namespace, compatibility_key, taken)

        with self.writing:
            return self.mirror.write(
                "upsert_entries",
                lambda: self.source.upsert_entries(namespace, compatibility_key, timed),
                repeat,
            )

    def search_entries(
        self,
        namespace: str,
        compatibility_key: str,
        queries: Sequence[Vector],
        top_k: int,
        min_similarity: float | None = None,
        embedding_model_id: str = "",
    ) -> list[list[SearchHit]]:
        """Finds the closest entries of the source; see `VectorIndex`."""
        return self.source.search_entries(
            namespace, compatibility_key, queries, top_k, min_similarity, embedding_model_id
        )

    def search_packed(self, search: Search) -> list[list[PackedHit]]:
        """Finds what `search_entries` finds."""
        return self.source.search_packed(search)

    def get_entry(
        self, namespace: str, entry_id: str, include_vector: bool = False
    ) -> LocatedEntry:
        """Returns one entry of the source; see `VectorIndex`."""
        return self.source.get_entry(namespace, entry_id, include_vector)

    def list_entries(
        self,
        namespace: str,
        compatibility_key: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> IndexPage:
        """Lists entries of the source; see `VectorIndex`."""
        return self.source.list_entries(namespace, compatibility_key, page_size, page_token)

    def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        """Lists namespaces of the source; see `VectorIndex`."""
        return self.source.list_namespaces(page_size, page_token)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries from both; fails when either cannot do it, and may be repeated."""
        # Not between the two halves of a write, whose second one would bring it back.
        with self.writing:
            return self.mirror.delete(
                lambda: self.target.delete_entries(namespace, entry_ids),
                lambda: self.source.delete_entries(namespace, entry_ids),
            )

    def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        """Removes a partition from both; fails when either cannot do it, and may be repeated."""
        with self.writing:
            return self.mirror.delete(
                lambda: self.target.delete_partition(namespace, compatibility_key),
                lambda: self.source.delete_partition(namespace, compatibility_key),
                _PARTITION_BOUND_S,
            )

    def get_stats(self, namespace: str) -> IndexStats:
        """Counts a namespace of the source; see `VectorIndex`."""
        return self.source.get_stats(namespace)

    def get_capabilities(self) -> IndexCapabilities:
        """Tells the engine and the limits of the source."""
        return self.source.get_capabilities()

    def close(self) -> None:
        """Closes both."""
        self.source.close()
        self.mirror.close(self.target.close, _CLOSE_BOUND_S)


def _upsert_all(
    index: MovableIndex, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
) -> None:
    """Stores entries.

    Raises:
        SkipstoneError: It does not take all of them.
    """
    for error in index.upsert_entries(namespace, compatibility_key, entries):
        if error is not None:
            raise error
