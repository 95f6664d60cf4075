"""The reference index: in memory, exact, nothing clever. Recall is measured against it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from skipstone_shared.errors import EntryNotFound, InvalidArgument, SkipstoneError, Unavailable
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
from skipstone_shared.index_entry_messages import pack_entry
from skipstone_shared.latents import checked_entry_id, checked_namespace
from skipstone_vector_index import entry_rules
from skipstone_vector_index.index import Search
from skipstone_vector_index.paging import PageCursor, namespace_page
from skipstone_vector_index.vector_form import MAX_DIMENSION, VectorForm

_NO_LIMIT = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    label: int
    revision: int
    entry: IndexEntry
    vector: Vector


_Partition = dict[str, _Stored]


class FlatIndex:
    """Entries in dicts under one lock; every search compares every vector. Nothing is durable."""

    def __init__(
        self, clock: Callable[[], float] = time.time, form: VectorForm | None = None
    ) -> None:
        """Creates an empty index.

        Args:
            clock: Seconds since the epoch.
            form: How vectors are compared and kept.
        """
        self._form = form or VectorForm()
        self._clock = clock
        self._lock = threading.Lock()
        self._partitions: dict[tuple[str, str], _Partition] = {}
        self._sequence = 0
        self._closed = False

    def upsert_entries(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> list[SkipstoneError | None]:
        """Stores entries; see `VectorIndex`."""
        key = checked_namespace(namespace), entry_rules.checked_compatibility_key(compatibility_key)
        entry_rules.check_count("entries", len(entries))
        with self._open():
            partition = self._partitions.get(key, {})
            statuses = [self._upsert(partition, item) for item in entries]
            if partition:
                self._partitions[key] = partition
        return statuses

    def _upsert(self, partition: _Partition, item: VectorEntry) -> SkipstoneError | None:
        dimension = next((stored.vector.size for stored in partition.values()), None)
        try:
            entry, vector = entry_rules.checked_entry(item, self._form, dimension)
        except InvalidArgument as error:
            return error
        if not entry.create_time:
            entry = dataclasses.replace(entry, create_time=self._clock())
        self._sequence += 1
        old = partition.get(entry.entry_id)
        label = old.label if old else self._sequence
        partition[entry.entry_id] = _Stored(label, self._sequence, entry, vector)
        return None

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
        key = checked_namespace(namespace), entry_rules.checked_compatibility_key(compatibility_key)
        entry_rules.check_count("queries", len(queries))
        entry_rules.check_count("top_k", top_k, entry_rules.MAX_TOP_K)
        entry_rules.check_min_similarity(min_similarity)
        with self._open():
            partition = list(self._partitions.get(key, {}).values())
        dimension = partition[0].vector.size if partition else None
        compared = self._form.queries(queries, dimension)
        wanted = [
            stored
            for stored in partition
            if embedding_model_id in ("", stored.entry.embedding_model_id)
        ]
        if not wanted:
            return [[] for _ in compared]
        rows = np.stack([stored.vector for stored in wanted])
        results = []
        for query in compared:
            hits = [
                SearchHit(stored.entry, similarity)
                for stored, similarity in zip(
                    wanted, self._form.similarities(rows, query), strict=True
                )
                if min_similarity is None or similarity >= min_similarity
            ]
            hits.sort(key=lambda hit: (-hit.similarity, hit.entry.entry_id))
            results.append(hits[:top_k])
        return results

    def search_packed(self, search: Search) -> list[list[PackedHit]]:
        """Finds what `search_entries` finds."""
        found = self.search_entries(
            search.namespace,
            search.compatibility_key,
            search.queries,
            search.top_k,
            search.min_similarity,
            search.embedding_model_id,
        )
        return [
            [PackedHit(pack_entry(hit.entry), hit.similarity) for hit in hits] for hits in found
        ]

    def get_entry(
        self, namespace: str, entry_id: str, include_vector: bool = False
    ) -> LocatedEntry:
        """Returns one entry; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        checked_entry_id(entry_id)
        with self._open():
            found = [
                (partition[entry_id], key)
                for (space, key), partition in self._partitions.items()
                if space == namespace and entry_id in partition
            ]
        if not found:
            raise EntryNotFound(f"no entry {entry_id} in namespace {namespace}")
        stored, key = max(found, key=lambda item: item[0].revision)
        return LocatedEntry(stored.entry, key, stored.vector if include_vector else None)

    def locate_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[LocatedEntry]:
        """Returns entries of all partitions; see `MovableIndex`."""
        with self._open():
            return [
                LocatedEntry(partition[entry_id].entry, key, partition[entry_id].vector)
                for (_, key), partition in self._select(namespace, "").items()
                for entry_id in entry_ids
                if entry_id in partition
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
        with self._open():
            cursor = PageCursor.parse(page_token, self._sequence)
            found = [
                stored
                for partition in self._select(namespace, compatibility_key).values()
                for stored in partition.values()
                if cursor.after < stored.label <= cursor.until
            ]
        found.sort(key=lambda stored: stored.label)
        page = found[:page_size]
        token = cursor.token_after(page[-1].label) if len(found) > len(page) else ""
        return IndexPage(tuple(stored.entry for stored in page), token)

    def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        """Lists namespaces; see `VectorIndex`."""
        entry_rules.check_count("page_size", page_size, entry_rules.MAX_PAGE_SIZE)
        with self._open():
            return namespace_page({space for space, _ in self._partitions}, page_size, page_token)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        entry_rules.check_count("entry_ids", len(entry_ids))
        with self._open():
            selected = self._select(namespace, "")
            existed = []
            for entry_id in entry_ids:
                removed = [partition.pop(entry_id, None) for partition in selected.values()]
                existed.append(any(removed))
            for key, partition in selected.items():
                if not partition:
                    del self._partitions[key]
        return existed

    def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        """Removes a partition or a namespace; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        if compatibility_key:
            entry_rules.checked_compatibility_key(compatibility_key)
        with self._open():
            selected = self._select(namespace, compatibility_key)
            for key in selected:
                del self._partitions[key]
        return sum(map(len, selected.values()))

    def get_stats(self, namespace: str) -> IndexStats:
        """Counts a namespace; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        with self._open():
            selected = self._select(namespace, "")
            return IndexStats(sum(map(len, selected.values())), len(selected))

    def get_capabilities(self) -> IndexCapabilities:
        """Tells the engine and the limits."""
        return IndexCapabilities(
            engine="flat",
            max_top_k=entry_rules.MAX_TOP_K,
            max_batch_size=entry_rules.MAX_BATCH_SIZE,
            exact_search_limit=_NO_LIMIT,
            max_dimension=MAX_DIMENSION,
            metric=self._form.metric.value,
        )

    def close(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._closed = True
            self._partitions.clear()

    def _select(self, namespace: str, key: str) -> dict[tuple[str, str], _Partition]:
        return {
            names: partition
            for names, partition in self._partitions.items()
            if names[0] == namespace and key in ("", names[1])
        }

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise Unavailable("the index is closed")
            yield
