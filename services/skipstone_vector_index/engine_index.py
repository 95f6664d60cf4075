"""A `VectorIndex` over a vector engine that runs elsewhere."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from skipstone_shared.errors import (
    Aborted,
    EntryNotFound,
    InvalidArgument,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.index_entries import (
    IndexCapabilities,
    IndexEntry,
    IndexPage,
    IndexStats,
    LocatedEntry,
    NamespacePage,
    PackedHit,
    SearchHit,
    Vector,
    VectorEntry,
)
from skipstone_shared.index_entry_messages import pack_entry, unpack_entry
from skipstone_shared.latents import ENTRY_ID_PATTERN, checked_entry_id, checked_namespace
from skipstone_vector_index import entry_rules
from skipstone_vector_index.engine import (
    NewRow,
    OtherDimension,
    PartitionName,
    VectorEngine,
    model_digest,
)
from skipstone_vector_index.index import Search
from skipstone_vector_index.paging import MAX_PAGE_BYTES, PageCursor, namespace_page
from skipstone_vector_index.ranking import best_hits
from skipstone_vector_index.vector_form import MAX_DIMENSION, VectorForm

_SPARE_CANDIDATES = 8
"""Candidates beyond top_k: engines round similarities, and lets entries of equal similarity be
ordered by id at the edge."""

_ATTEMPTS = 4
"""Of a write to a partition that gets vectors of another dimension meanwhile."""

_AWAY_S = 0.5
"""After an engine could not be reached, for how long nobody waits for it again."""


class EngineIndex:
    """Checks, packs and ranks; the engine keeps and finds.

    What a hit is and its similarity come from the stored vector, computed here as every index
    computes it, so that scores do not depend on the engine's rounding. Calls while the engine is
    away fail at once, but for one every half second that tries it.
    """

    def __init__(
        self,
        engine: VectorEngine,
        form: VectorForm,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes over the engine, which it closes with itself.

        Args:
            engine: Where rows are.
            form: How vectors are compared; float32.
            clock: Seconds since the epoch.
            monotonic: Seconds since any time.
        """
        self._engine = engine
        self._form = form
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._away_until: float | None = None
        self._closed = False

    def upsert_entries(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> list[SkipstoneError | None]:
        """Stores entries; see `VectorIndex`."""
        partition = _partition(namespace, compatibility_key)
        entry_rules.check_count("entries", len(entries))
        dimension: int | None = None
        for _ in range(_ATTEMPTS):
            statuses, rows = self._accept(entries, dimension)
            try:
                with self._asking():
                    if rows:
                        self._engine.put(partition, rows)
                return statuses
            except OtherDimension as error:
                dimension = error.dimension
        raise Aborted("another writer changes the dimension of the partition")

    def search_entries(
        self,
        namespace: str,
        compatibility_key: str,
        queries: Sequence[Vector],
        top_k: int,
        min_similarity: float | None = None,
        embedding_model_id: str = "",
    ) -> list[list[SearchHit]]:
        """Finds the closest entries; see `VectorIndex`."""
        search = Search(
            namespace, compatibility_key, queries, top_k, min_similarity, embedding_model_id
        )
        return [
            [SearchHit(unpack_entry(hit.packed), hit.similarity) for hit in hits]
            for hits in self.search_packed(search)
        ]

    def search_packed(self, search: Search) -> list[list[PackedHit]]:
        """Finds the closest entries; see `ServedIndex`."""
        partition = _partition(search.namespace, search.compatibility_key)
        entry_rules.check_count("queries", len(search.queries))
        entry_rules.check_count("top_k", search.top_k, entry_rules.MAX_TOP_K)
        entry_rules.check_min_similarity(search.min_similarity)
        queries = self._form.queries(search.queries, None)
        model = model_digest(search.embedding_model_id) if search.embedding_model_id else None
        try:
            with self._asking():
                found = self._engine.nearest(
                    partition, queries, search.top_k + _SPARE_CANDIDATES, model
                )
        except OtherDimension as error:
            self._form.queries(search.queries, error.dimension)
            raise
        ranked = [
            best_hits(self._form, query, rows, search.top_k, search.min_similarity)
            for query, rows in zip(queries, found, strict=True)
        ]
        return [[PackedHit(row.packed, similarity) for row, similarity in hits] for hits in ranked]

    def get_entry(
        self, namespace: str, entry_id: str, include_vector: bool = False
    ) -> LocatedEntry:
        """Returns one entry; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        checked_entry_id(entry_id)
        with self._asking():
            found = self._engine.find(namespace, entry_id)
        if found is None:
            raise EntryNotFound(f"no entry {entry_id} in namespace {namespace}")
        return LocatedEntry(
            unpack_entry(found.row.packed),
            found.compatibility_key,
            found.row.vector if include_vector else None,
        )

    def locate_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[LocatedEntry]:
        """Returns entries of all partitions; see `MovableIndex`."""
        with self._asking():
            rows = self._engine.find_all(namespace, entry_ids)
        return [
            LocatedEntry(unpack_entry(found.row.packed), found.compatibility_key, found.row.vector)
            for found in rows
        ]

    def list_entries(
        self,
        namespace: str,
        compatibility_key: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> IndexPage:
        """Lists entries; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        if compatibility_key:
            entry_rules.checked_compatibility_key(compatibility_key)
        entry_rules.check_count("page_size", page_size, entry_rules.MAX_PAGE_SIZE)
        with self._asking():
            cursor = PageCursor.parse(page_token, self._engine.last_label())
            # One more than asked tells whether this is the last page.
            rows = self._engine.page(
                namespace, compatibility_key, cursor.after, cursor.until, page_size + 1
            )
        entries: list[IndexEntry] = []
        size_bytes = 0
        last_label = cursor.after
        for row in rows:
            size_bytes += len(row.packed)
            if len(entries) == page_size or (entries and size_bytes > MAX_PAGE_BYTES):
                return IndexPage(tuple(entries), cursor.token_after(last_label))
            entries.append(unpack_entry(row.packed))
            last_label = row.label
        return IndexPage(tuple(entries))

    def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        """Lists namespaces; see `VectorIndex`."""
        entry_rules.check_count("page_size", page_size, entry_rules.MAX_PAGE_SIZE)
        with self._asking():
            found = self._engine.namespaces()
        return namespace_page(found, page_size, page_token)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        entry_rules.check_count("entry_ids", len(entry_ids))
        valid = [id_ for id_ in dict.fromkeys(entry_ids) if ENTRY_ID_PATTERN.fullmatch(id_)]
        with self._asking():
            existed = self._engine.delete(namespace, valid) if valid else set()
        answers = []
        for entry_id in entry_ids:  # of an id given twice the second is not there any more
            answers.append(entry_id in existed)
            existed.discard(entry_id)
        return answers

    def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        """Removes a partition or a namespace; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        if compatibility_key:
            entry_rules.checked_compatibility_key(compatibility_key)
        with self._asking():
            return self._engine.delete_partition(namespace, compatibility_key)

    def get_stats(self, namespace: str) -> IndexStats:
        """Counts a namespace; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        with self._asking():
            return self._engine.stats(namespace)

    def count_entries(self) -> int:
        """Counts the entries of all namespaces.

        Raises:
            DeadlineExceeded: The engine did not answer in time.
            Unavailable: It cannot be reached.
        """
        with self._asking():
            return self._engine.count()

    def get_capabilities(self) -> IndexCapabilities:
        """Tells the engine and the limits."""
        return IndexCapabilities(
            engine=self._engine.name,
            max_top_k=entry_rules.MAX_TOP_K,
            max_batch_size=entry_rules.MAX_BATCH_SIZE,
            exact_search_limit=self._engine.exact_search_limit,
            max_dimension=MAX_DIMENSION,
            metric=self._form.metric.value,
        )

    def close(self) -> None:
        """Releases connections and threads."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._engine.close()

    def _accept(
        self, entries: Sequence[VectorEntry], dimension: int | None
    ) -> tuple[list[SkipstoneError | None], list[NewRow]]:
        """Returns the status of each entry, and the rows to store, the last of each id."""
        statuses: list[SkipstoneError | None] = []
        accepted: dict[str, NewRow] = {}
        now = self._clock()
        for item in entries:
            try:
                entry, vector = entry_rules.checked_entry(item, self._form, dimension)
                if not entry.create_time:
                    entry = dataclasses.replace(entry, create_time=now)
                packed = pack_entry(entry)
                self._check_packed(packed)
            except InvalidArgument as error:
                statuses.append(error)
                continue
            model = model_digest(entry.embedding_model_id)
            accepted[entry.entry_id] = NewRow(entry.entry_id, packed, vector, model)
            dimension = len(vector)
            statuses.append(None)
        return statuses, list(accepted.values())

    def _check_packed(self, packed: bytes) -> None:
        limit = self._engine.max_packed_bytes
        if len(packed) > limit:
            raise InvalidArgument(
                f"the entry takes {len(packed)} bytes without its vector",
                field="entry",
                allowed=f"at most {limit} bytes in {self._engine.name}",
            )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Lets a call through to the engine, unless the index is closed or the engine away."""
        if self._closed:
            raise Unavailable("the index is closed")
        with self._lock:
            if self._away_until is not None:
                if self._monotonic() < self._away_until:
                    raise Unavailable(f"{self._engine.name} was away just now")
                self._away_until = math.inf  # this call tries, and the others go on failing
        away = False
        try:
            yield
        except Unavailable:
            away = True
            raise
        finally:
            with self._lock:
                self._away_until = self._monotonic() + _AWAY_S if away else None


def _partition(namespace: str, compatibility_key: str) -> PartitionName:
    return PartitionName(
        checked_namespace(namespace), entry_rules.checked_compatibility_key(compatibility_key)
    )
