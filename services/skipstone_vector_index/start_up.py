"""What a start does: fills the catalog from the log, and gives builds the graphs on disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from skipstone_shared.structured_logging import get_logger
from skipstone_vector_index.adaptive_vectors import GraphSeed
from skipstone_vector_index.catalog import Catalog, Partition
from skipstone_vector_index.graph_files import GraphFiles
from skipstone_vector_index.record_codec import Record
from skipstone_vector_index.record_log import Changes, Key, RecordLog

_LOAD_ROWS = 4096


def fill_catalog(catalog: Catalog, log: RecordLog, files: GraphFiles | None) -> int:
    """Fills an empty catalog; builds that become due must wait until this returns.

    Returns:
        The number of the last write that the log holds anything of.
    """
    names = log.partitions()
    last_write = log.sequence()
    nameless: list[Key] = []
    found = files.find(log.sequence()) if files else []
    saved = {(graph.partition, graph.embedding_model_id): graph for graph in found}
    outdated: dict[tuple[int, str], list[int]] = {key: [] for key in saved}
    loaded: dict[int, Partition] = {}
    for batch in _batches(log.records()):
        number = next(iter(batch))[0]
        if number not in names:
            # Its names are damaged: whose entries these are cannot be told.
            nameless += batch
            continue
        if number not in loaded:
            dimension = len(next(iter(batch.values())).vector)
            loaded[number] = Partition(number, *names[number], dimension)
        catalog.put(loaded[number], batch)
        for (_, label), record in batch.items():
            last_write = max(last_write, record.revision, label)
            key = number, record.embedding_model_id
            if key in saved and record.revision > saved[key].sequence:
                outdated[key].append(label)
    if files:
        for (number, model_id), graph in saved.items():
            if number not in loaded or model_id not in loaded[number].vectors:
                files.remove(graph)
                continue
            labels = np.array(outdated[number, model_id], np.int64)
            loaded[number].vectors[model_id].seed(GraphSeed(partial(files.load, graph), labels))
    if nameless:
        get_logger().error("entries of damaged partitions removed", count=len(nameless))
        drop = sorted({number for number, _ in nameless})
        log.write(Changes(last_write, delete=nameless, drop_partitions=drop))
    return last_write


def _batches(records: Iterator[tuple[Key, Record]]) -> Iterator[dict[Key, Record]]:
    """Groups records, which come ordered by partition, into batches of one partition each."""
    for _, run in itertools.groupby(records, key=lambda item: item[0][0]):
        while batch := dict(itertools.islice(run, _LOAD_ROWS)):
            yield batch
