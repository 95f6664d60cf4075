"""The default index: HNSW graphs in memory over a durable record log."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

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
from skipstone_shared.latents import checked_entry_id, checked_namespace
from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index import entry_rules
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions, AdaptiveVectors
from skipstone_vector_index.catalog import Catalog, Partition
from skipstone_vector_index.graph_builder import GraphBuilder
from skipstone_vector_index.graph_files import GraphFiles
from skipstone_vector_index.hit_reader import Found
from skipstone_vector_index.index import Search
from skipstone_vector_index.paging import MAX_PAGE_BYTES, PageCursor, namespace_page
from skipstone_vector_index.record_codec import Record, make_record
from skipstone_vector_index.record_log import Changes, Key, RecordLog
from skipstone_vector_index.searcher import Searcher
from skipstone_vector_index.start_up import fill_catalog
from skipstone_vector_index.vector_form import MAX_DIMENSION, VectorForm


class HnswIndex:
    """Vectors in memory, entries in the log.

    A write goes to the log first and then to memory, so nothing is found that is not durable. A
    search takes candidates from memory and reads them in one view of the log: vector and payload
    of a hit always belong together, and its similarity is exact whatever found it.

    Start-up reads the log into flat matrices, which can be searched at once; large partitions get
    their graph in the background, from its copy on disk where there is one.
    """

    def __init__(
        self,
        log: RecordLog,
        options: AdaptiveOptions | None = None,
        clock: Callable[[], float] = time.time,
        graph_files: GraphFiles | None = None,
        *,
        half: bool = False,
    ) -> None:
        """Loads the index from its log, which it closes with itself.

        Args:
            log: Where entries are durable.
            options: When vectors are searched exactly and when in a graph.
            clock: Seconds since the epoch.
            graph_files: Where copies of graphs are kept for the next start; None: nowhere.
            half: Whether new vectors are stored as float16.
        """
        self._log = log
        self._options = options or AdaptiveOptions()
        self._clock = clock
        self._form = VectorForm(log.metric, half)
        self._catalog = Catalog(self._new_vectors, self._form.searchable)
        self._searcher = Searcher(self._catalog, log, self._form)
        self._writing_lock = threading.Lock()
        self._closed = False
        self._builder = GraphBuilder()
        self._next_partition = 1 + max(log.partitions(), default=0)
        self._files = graph_files
        with self._builder.held():
            # Not what the log notes alone: a label must never be given twice, whatever is damaged.
            self._sequence = fill_catalog(self._catalog, log, graph_files)

    def upsert_entries(
        self, namespace: str, compatibility_key: str, entries: Sequence[VectorEntry]
    ) -> list[SkipstoneError | None]:
        """Stores entries; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        entry_rules.checked_compatibility_key(compatibility_key)
        entry_rules.check_count("entries", len(entries))
        with self._writing():
            partition = self._catalog.find(namespace, compatibility_key)
            statuses, accepted = self._accept(entries, _dimension(partition))
            if accepted:
                if partition is None:
                    dimension = len(next(iter(accepted.values())).vector)
                    partition = Partition(
                        self._next_partition, namespace, compatibility_key, dimension
                    )
                self._store(partition, list(accepted.values()))
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
        """Finds the closest entries; see `VectorIndex`."""
        search = Search(
            namespace, compatibility_key, queries, top_k, min_similarity, embedding_model_id
        )
        found = self._find(search)
        return [
            [SearchHit(record.entry(), similarity) for record, similarity in hits] for hits in found
        ]

    def search_packed(self, search: Search) -> list[list[PackedHit]]:
        """Finds the closest entries; see `ServedIndex`."""
        found = self._find(search)
        return [
            [PackedHit(record.packed_entry(), similarity) for record, similarity in hits]
            for hits in found
        ]

    def get_entry(
        self, namespace: str, entry_id: str, include_vector: bool = False
    ) -> LocatedEntry:
        """Returns one entry; see `VectorIndex`."""
        self._check_open()
        namespace = checked_namespace(namespace)
        checked_entry_id(entry_id)
        with self._log.reading() as view:
            found: tuple[Record, Partition] | None = None
            for partition in self._catalog.holding(namespace, entry_id):
                place = partition.places.get(entry_id)
                record = place and view.get((partition.number, place.label))
                if record and (found is None or record.revision > found[0].revision):
                    found = record, partition
        if found is None:
            raise EntryNotFound(f"no entry {entry_id} in namespace {namespace}")
        record, partition = found
        return LocatedEntry(
            record.entry(),
            partition.compatibility_key,
            record.vector if include_vector else None,
        )

    def locate_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[LocatedEntry]:
        """Returns entries of all partitions; see `MovableIndex`."""
        self._check_open()
        located = []
        with self._log.reading() as view:
            for entry_id in entry_ids:
                for partition in self._catalog.holding(namespace, entry_id):
                    place = partition.places.get(entry_id)
                    record = place and view.get((partition.number, place.label))
                    if record:
                        key = partition.compatibility_key
                        located.append(LocatedEntry(record.entry(), key, record.vector))
        return located

    def list_entries(
        self,
        namespace: str,
        compatibility_key: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> IndexPage:
        """Lists entries; see `VectorIndex`."""
        self._check_open()
        namespace = checked_namespace(namespace)
        if compatibility_key:
            entry_rules.checked_compatibility_key(compatibility_key)
        entry_rules.check_count("page_size", page_size, entry_rules.MAX_PAGE_SIZE)
        cursor = PageCursor.parse(page_token, self._sequence)
        numbers = [p.number for p in self._catalog.select(namespace, compatibility_key)]
        entries: list[IndexEntry] = []
        size_bytes = 0
        last_label = cursor.after
        with self._log.reading() as view:
            for key in view.keys(numbers, cursor.after, cursor.until):
                record = view.get(key)
                size_bytes += len(record.stored_entry) if record else 0
                if len(entries) == page_size or (entries and size_bytes > MAX_PAGE_BYTES):
                    return IndexPage(tuple(entries), cursor.token_after(last_label))
                last_label = key[1]
                if record is not None:
                    entries.append(record.entry())
        return IndexPage(tuple(entries))

    def list_namespaces(self, page_size: int = 100, page_token: str = "") -> NamespacePage:
        """Lists namespaces; see `VectorIndex`."""
        self._check_open()
        entry_rules.check_count("page_size", page_size, entry_rules.MAX_PAGE_SIZE)
        return namespace_page(self._catalog.namespaces(), page_size, page_token)

    def delete_entries(self, namespace: str, entry_ids: Sequence[str]) -> list[bool]:
        """Removes entries; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        entry_rules.check_count("entry_ids", len(entry_ids))
        with self._writing():
            doomed: dict[Partition, list[str]] = {}
            existed = {}
            for entry_id in dict.fromkeys(entry_ids):
                holding = list(self._catalog.holding(namespace, entry_id))
                existed[entry_id] = bool(holding)
                for partition in holding:
                    doomed.setdefault(partition, []).append(entry_id)
            self._remove(doomed)
        return [existed.pop(entry_id, False) for entry_id in entry_ids]

    def delete_partition(self, namespace: str, compatibility_key: str = "") -> int:
        """Removes a partition or a namespace; see `VectorIndex`."""
        namespace = checked_namespace(namespace)
        if compatibility_key:
            entry_rules.checked_compatibility_key(compatibility_key)
        with self._writing():
            partitions = self._catalog.select(namespace, compatibility_key)
            doomed = {partition: list(partition.places) for partition in partitions}
            self._remove(doomed)
        return sum(map(len, doomed.values()))

    def get_stats(self, namespace: str) -> IndexStats:
        """Counts a namespace; see `VectorIndex`."""
        self._check_open()
        partitions = self._catalog.select(checked_namespace(namespace))
        return IndexStats(
            entry_count=sum(len(p.places) for p in partitions),
            partition_count=len(partitions),
            tombstone_count=sum(
                v.tombstone_count for p in partitions for v in list(p.vectors.values())
            ),
            disk_bytes=self._log.disk_bytes(),
        )

    def get_capabilities(self) -> IndexCapabilities:
        """Tells the engine and the limits."""
        return IndexCapabilities(
            engine="hnsw",
            max_top_k=entry_rules.MAX_TOP_K,
            max_batch_size=entry_rules.MAX_BATCH_SIZE,
            exact_search_limit=self._options.exact_search_limit,
            max_dimension=MAX_DIMENSION,
            metric=self._form.metric.value,
        )

    def wait_for_builds(self) -> None:
        """Returns when every graph that was due at the call has taken over."""
        self._builder.wait()

    def close(self) -> None:
        """Releases files and threads; a graph that is being built is given up."""
        with self._writing_lock:
            if self._closed:
                return
            self._closed = True
        self._builder.close()
        self._log.close()

    def _find(self, search: Search) -> list[list[Found]]:
        self._check_open()
        return self._searcher.find(search)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the index is closed")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._writing_lock:
            self._check_open()
            yield

    def _accept(
        self, entries: Sequence[VectorEntry], dimension: int | None
    ) -> tuple[list[SkipstoneError | None], dict[str, Record]]:
        """Returns the status of each entry, and the records to store by id, without revisions."""
        statuses: list[SkipstoneError | None] = []
        accepted: dict[str, Record] = {}
        now = self._clock()
        for item in entries:
            try:
                entry, vector = entry_rules.checked_entry(item, self._form, dimension)
                if not entry.create_time:
                    entry = dataclasses.replace(entry, create_time=now)
                accepted[entry.entry_id] = make_record(entry, vector, 0, half=self._form.half)
            except InvalidArgument as error:
                statuses.append(error)
                continue
            dimension = len(vector)
            statuses.append(None)
        return statuses, accepted

    def _store(self, partition: Partition, accepted: Sequence[Record]) -> None:
        """Writes entries to the log and then to memory."""
        sequence = self._sequence
        put: dict[Key, Record] = {}
        for record in accepted:
            sequence += 1
            old = partition.places.get(record.entry_id)
            label = old.label if old else sequence
            put[partition.number, label] = dataclasses.replace(record, revision=sequence)
        names = (partition.namespace, partition.compatibility_key)
        new = {} if partition.places else {partition.number: names}
        self._log.write(Changes(sequence, put=put, add_partitions=new))
        self._sequence = sequence
        self._next_partition = max(self._next_partition, partition.number + 1)
        self._catalog.put(partition, put)

    def _remove(self, doomed: Mapping[Partition, Sequence[str]]) -> None:
        """Removes entries from the log and then from memory."""
        if not doomed:
            return
        keys = [partition.key_of(id_) for partition, ids in doomed.items() for id_ in ids]
        emptied = [p.number for p, ids in doomed.items() if len(ids) == len(p.places)]
        self._log.write(Changes(self._sequence + 1, delete=keys, drop_partitions=emptied))
        self._sequence += 1
        for partition, ids in doomed.items():
            self._catalog.remove(partition, ids)
        if self._files is not None:
            for number in emptied:
                self._files.forget(number)

    def _save_graph(self, partition: Partition, model_id: str) -> None:
        """Saves a graph. Runs on the builder's thread."""
        # Held while the graph is copied: its number in the log must be that of the last write in
        # it. Searches go on.
        with self._writing_lock:
            vectors = partition.vectors.get(model_id)
            state = None if self._closed or vectors is None else vectors.copy_graph()
            sequence = self._sequence
        if self._files is None or state is None:
            return
        try:
            self._files.save(partition.number, model_id, sequence, state)
        except OSError as error:
            get_logger().warning("graph not saved; a start has to build it", error=str(error))

    def _new_vectors(self, partition: Partition, model_id: str) -> AdaptiveVectors:
        return AdaptiveVectors(
            partition.dimension,
            self._options,
            self._builder.schedule,
            self._builder.stopping,
            partial(self._save_graph, partition, model_id) if self._files else None,
        )


def _dimension(partition: Partition | None) -> int | None:
    return None if partition is None else partition.dimension
