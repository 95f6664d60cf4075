"""An index that is about to be replaced: it serves, and writes go to the next one too."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence

from prometheus_client import Counter
from prometheus_client.registry import Collector

from skipstone_shared.errors import DeadlineExceeded, SkipstoneError, Unavailable
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
from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index.index import MovableIndex, Search

_AWAY_S = 5.0
"""After the target did not answer, for how long no write waits for it again."""


class MirroredIndex:
    """A `VectorIndex` around the source; its mutations are repeated on the target.

    The source alone decides and answers: until the switch nobody depends on the target. A write
    that the target does not take is counted as missed, and its entries are copied by a later pass
    (`IndexMover`). A deletion is made in the target first and fails with it, so that what was said
    to be deleted is nowhere.
    """

    def __init__(
        self,
        source: MovableIndex,
        target: MovableIndex,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps both indexes and closes them with itself.

        Args:
            source: Serves.
            target: Gets what is written.
            clock: Seconds since the epoch.
            monotonic: Seconds since any time.
        """
        self.source = source
        self.target = target
        self.writing = threading.Lock()
        """Held while entries are written to both: of two writes of one the same must win."""
        self._clock = clock
        self._monotonic = monotonic
        self._away_until = 0.0
        self._missed_writes = 0
        self._missed = Counter(
            "skipstone_vector_index_migration_missed_writes_total",
            "Writes that the index which entries move to did not take.",
            registry=None,
        )

    @property
    def missed_writes(self) -> int:
        """Writes that reached the source alone, since the start."""
        return self._missed_writes

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metric, to be registered by the server."""
        return (self._missed,)

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
        with self.writing:
            statuses = self.source.upsert_entries(namespace, compatibility_key, timed)
            taken = [item for item, error in zip(timed, statuses, strict=True) if error is None]
            if taken:
                self._mirror(namespace, compatibility_key, taken)
        return statuses

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
            self.target.delete_entries(namespace, entry_ids)
            return self.source.delete_entries(namespace, entry_ids)

    def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        """Removes a partition from both; fails when either cannot do it, and may be repeated."""
        with self.writing:
            self.target.delete_partition(namespace, compatibility_key)
            return self.source.delete_partition(namespace, compatibility_key)

    def get_stats(self, namespace: str) -> IndexStats:
        """Counts a namespace of the source; see `VectorIndex`."""
        return self.source.get_stats(namespace)

    def get_capabilities(self) -> IndexCapabilities:
        """Tells the engine and the limits of the source."""
        return self.source.get_capabilities()

    def close(self) -> None:
        """Closes both."""
        self.source.close()
        self.target.close()

    def _mirror(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> None:
        """Repeats a write on the target; what it does not take is counted, and nobody is told."""
        if self._monotonic() < self._away_until:
            self._count_missed()
            return
        try:
            statuses = self.target.upsert_entries(namespace, compatibility_key, entries)
            refused = next((status for status in statuses if status is not None), None)
            if refused is not None:
                raise refused
        except SkipstoneError as error:
            self._count_missed()
            get_logger().warning("the target missed a write", error=error.message)
            if isinstance(error, Unavailable | DeadlineExceeded):
                self._away_until = self._monotonic() + _AWAY_S

    def _count_missed(self) -> None:
        self._missed_writes += 1
        self._missed.inc()
