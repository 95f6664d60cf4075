"""Writes to an index until it is killed: prints n once call n is acknowledged."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.record_log import RecordLog


def main() -> None:
    """Runs until the process is killed."""
    index = HnswIndex(RecordLog(Path(sys.argv[1]), 1 << 26))
    for number in itertools.count():
        vector = np.array([1, number], np.float32)
        entries = [VectorEntry(IndexEntry(f"{number}{tail}"), vector) for tail in ("", ".b")]
        assert index.upsert_entries("", "key", entries) == [None, None]
        if number:
            assert index.delete_entries("", [f"{number - 1}.b"]) == [True]
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
