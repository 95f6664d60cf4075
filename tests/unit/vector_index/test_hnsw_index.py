"""Graphs find what exact search finds, and what is in memory follows the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from skipstone_shared.errors import InvalidArgument, QuotaExceeded, Unavailable
from skipstone_shared.index_entries import IndexEntry, SearchHit, VectorEntry
from skipstone_shared.index_entry_messages import unpack_entry
from skipstone_shared.latents import LatentRef
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.index import Search, VectorIndex
from skipstone_vector_index.record_log import RecordLog

KEY = "key"
DISK_BYTES = 1 << 28
_TOPICS = 50
Matrix = npt.NDArray[np.float32]
Open = Callable[..., HnswIndex]


@pytest.fixture
def open_index(tmp_path: Path) -> Iterator[Open]:
    """Opens the index of the test's directory; all of them are closed at the end."""
    opened: list[HnswIndex] = []

    def open_(exact: int = 4096, max_disk_bytes: int = DISK_BYTES) -> HnswIndex:
        options = AdaptiveOptions(exact)
        opened.append(HnswIndex(RecordLog(tmp_path, max_disk_bytes, fsync=False), options))
        return opened[-1]

    yield open_
    for index in opened:
        index.close()


def clustered(count: int, dimension: int, seed: int = 0) -> Matrix:
    """Vectors as prompts give them: many around few topics."""
    rng = np.random.default_rng(seed)
    # The same topics for every seed: a prompt to come is about what earlier ones were about.
    topics = np.random.default_rng(7).standard_normal((_TOPICS, dimension))
    spread = 0.3 * rng.standard_normal((count, dimension))
    return (topics[rng.integers(_TOPICS, size=count)] + spread).astype(np.float32)


def fill(index: VectorIndex, vectors: Matrix, start: int = 0, prefix: str = "e") -> None:
    entries = [
        VectorEntry(IndexEntry(f"{prefix}{i:05}", embedding_model_id="m"), vector)
        for i, vector in enumerate(vectors, start)
    ]
    for first in range(0, len(entries), 1000):
        statuses = index.upsert_entries("", KEY, entries[first : first + 1000])
        assert not any(statuses)


def search(index: VectorIndex, queries: Matrix, top_k: int) -> list[dict[str, float]]:
    return [
        {hit.entry.entry_id: hit.similarity for hit in hits}
        for hits in index.search_entries("", KEY, list(queries), top_k)
    ]


def recall(index: VectorIndex, reference: VectorIndex, queries: Matrix, top_k: int = 10) -> float:
    found, wanted = search(index, queries, top_k), search(reference, queries, top_k)
    for mine, exact in zip(found, wanted, strict=True):
        assert all(mine[id_] == exact[id_] for id_ in mine.keys() & exact.keys())
    shared = sum(len(mine.keys() & exact.keys()) for mine, exact in zip(found, wanted, strict=True))
    return shared / sum(map(len, wanted))


def tombstones(index: HnswIndex) -> int:
    return index.get_stats("").tombstone_count


def test_a_graph_finds_what_exact_search_finds_with_the_same_similarities(
    open_index: Open,
) -> None:
    vectors = clustered(1500, 32)
    index, reference = open_index(exact=0), FlatIndex()
    fill(index, vectors)
    fill(reference, vectors)
    index.wait_for_builds()
    queries = clustered(60, 32, seed=1)
    assert recall(index, reference, queries) >= 0.99
    assert recall(index, reference, vectors[:100], top_k=1) == 1.0


def test_a_small_partition_is_searched_exactly(open_index: Open) -> None:
    vectors = clustered(2000, 32)
    index, reference = open_index(exact=2000), FlatIndex()
    fill(index, vectors)
    fill(reference, vectors)
    index.wait_for_builds()
    queries = clustered(50, 32, seed=1)
    assert search(index, queries, 20) == search(reference, queries, 20)


def test_recall_holds_after_rewrites_and_deletes(open_index: Open) -> None:
    vectors = clustered(1200, 16)
    index, reference = open_index(exact=0), FlatIndex()
    for target in (index, reference):
        fill(target, vectors)
        target.delete_entries("", [f"e{i:05}" for i in range(0, 900, 2)])
        fill(target, clustered(300, 16, seed=2), start=1000)
        fill(target, clustered(200, 16, seed=3), start=5000)
    index.wait_for_builds()
    assert recall(index, reference, clustered(60, 16, seed=4)) >= 0.98
    assert index.get_stats("").entry_count == reference.get_stats("").entry_count


def test_many_tombstones_are_reclaimed(open_index: Open) -> None:
    index = open_index(exact=0)
    fill(index, clustered(1000, 16))
    index.wait_for_builds()
    assert tombstones(index) == 0
    index.delete_entries("", [f"e{i:05}" for i in range(200)])
    index.wait_for_builds()
    assert tombstones(index) == 200, "a few are kept"
    index.delete_entries("", [f"e{i:05}" for i in range(200, 600)])
    index.wait_for_builds()
    assert tombstones(index) == 0
    assert index.get_stats("").entry_count == 400


def test_an_entry_saved_again_with_the_same_vector_leaves_no_tombstone(open_index: Open) -> None:
    index, vectors = open_index(exact=0), clustered(100, 16)
    fill(index, vectors)
    index.wait_for_builds()
    fill(index, vectors)
    assert tombstones(index) == 0


def test_a_partition_that_shrinks_is_searched_exactly_again(open_index: Open) -> None:
    vectors = clustered(400, 16)
    index, reference = open_index(exact=100), FlatIndex()
    for target in (index, reference):
        fill(target, vectors)
    index.wait_for_builds()
    for target in (index, reference):
        target.delete_entries("", [f"e{i:05}" for i in range(320)])
    assert tombstones(index) == 0, "only a graph has tombstones"
    assert search(index, vectors[:20], 50) == search(reference, vectors[:20], 50)


def test_more_hits_than_a_graph_can_reach_are_still_given(open_index: Open) -> None:
    """hnswlib raises when removals leave fewer vectors within reach than asked for."""
    index = open_index(exact=0)
    fill(index, clustered(600, 8))
    index.wait_for_builds()
    index.delete_entries("", [f"e{i:05}" for i in range(150)])
    (hits,) = search(index, clustered(20, 8, seed=5)[:1], 1000)
    assert len(hits) == 450


def test_a_thousand_equal_vectors_are_found(open_index: Open) -> None:
    index = open_index(exact=0)
    fill(index, np.ones((300, 8), np.float32))
    index.wait_for_builds()
    (hits,) = search(index, np.ones((1, 8), np.float32), 1000)
    assert len(hits) == 300
    assert set(hits.values()) == {1.0}


def test_writes_during_a_build_are_in_the_graph(open_index: Open) -> None:
    """The graph of the first thousand is under way when the rest arrives."""
    vectors = clustered(2000, 16)
    index, reference = open_index(exact=500), FlatIndex()
    for target in (index, reference):
        fill(target, vectors)
        target.delete_entries("", [f"e{i:05}" for i in range(0, 2000, 5)])
    index.wait_for_builds()
    queries = clustered(50, 16, seed=1)
    assert recall(index, reference, queries) >= 0.99


def test_a_reopened_index_answers_as_before(open_index: Open) -> None:
    vectors = clustered(500, 16)
    index = open_index(exact=100)
    fill(index, vectors)
    index.upsert_entries("other", "k2", [VectorEntry(IndexEntry("x", prompt="p"), vectors[0][:3])])
    fill(index, vectors[::-1].copy(), start=0)
    index.delete_entries("", ["e00007", "e00009"])
    index.wait_for_builds()
    before = search(index, vectors[:20], 10)
    listed = index.list_entries("", page_size=1000)
    index.close()

    again = open_index(exact=100)
    again.wait_for_builds()
    assert search(again, vectors[:20], 10) == before
    assert again.list_entries("", page_size=1000) == listed
    assert again.get_entry("other", "x").entry.prompt == "p"
    assert again.get_stats("").entry_count == 498


def test_labels_are_not_used_again_after_a_restart(open_index: Open) -> None:
    """A listing that goes on after a restart would list the new entry in the old one's place."""
    index = open_index()
    fill(index, clustered(40, 8)[:3])
    page = index.list_entries("", page_size=2)
    index.delete_entries("", ["e00002"])
    index.close()
    again = open_index()
    fill(again, clustered(40, 8)[:1], prefix="new")
    assert again.list_entries("", page_token=page.next_page_token).entries == ()
    assert [e.entry_id for e in again.list_entries("").entries] == ["e00000", "e00001", "new00000"]


def test_partition_numbers_are_not_used_again(open_index: Open) -> None:
    index = open_index()
    fill(index, clustered(40, 8)[:2])
    index.delete_partition("")
    index.upsert_entries("", "k2", [VectorEntry(IndexEntry("a"), np.ones(3, np.float32))])
    index.close()
    again = open_index()
    assert again.get_entry("", "a").compatibility_key == "k2"
    assert again.get_stats("").partition_count == 1
    assert search(again, clustered(40, 8)[:1], 5) == [{}]


def test_a_full_index_refuses_writes_and_goes_on_reading(open_index: Open) -> None:
    index = open_index(max_disk_bytes=1 << 20)
    wide = clustered(40, 2048)
    fill(index, wide[:20])
    fill_up = partial(fill, index, np.tile(wide, (50, 1)), start=20)
    with pytest.raises(QuotaExceeded, match="max_disk_bytes"):
        fill_up()
    stored = index.get_stats("").entry_count
    assert len(search(index, wide[:1], 1000)[0]) == stored
    assert index.delete_entries("", ["e00000"]) == [True]
    fill(index, wide[:1])
    assert index.get_stats("").entry_count == stored


def test_a_closed_index_is_unavailable(open_index: Open) -> None:
    index = open_index()
    fill(index, clustered(40, 8)[:1])
    index.close()
    for call in (
        lambda: search(index, clustered(40, 8)[:1], 1),
        lambda: fill(index, clustered(40, 8)[:1]),
        lambda: index.delete_entries("", ["e00000"]),
        lambda: index.get_stats(""),
        lambda: index.get_entry("", "e00000"),
        lambda: index.list_entries(""),
    ):
        with pytest.raises(Unavailable):
            call()


def test_closing_does_not_wait_for_a_graph_that_is_being_built(open_index: Open) -> None:
    index = open_index(exact=100)
    fill(index, clustered(3000, 64))
    index.close()
    again = open_index(exact=100)
    assert again.get_stats("").entry_count == 3000


def test_dimension_is_that_of_the_first_good_entry(open_index: Open) -> None:
    index = open_index()
    bad, good, other = index.upsert_entries(
        "",
        KEY,
        [
            VectorEntry(IndexEntry("a"), np.zeros(3, np.float32)),
            VectorEntry(IndexEntry("b"), np.ones(2, np.float32)),
            VectorEntry(IndexEntry("c"), np.ones(3, np.float32)),
        ],
    )
    assert good is None
    assert isinstance(bad, InvalidArgument)
    assert isinstance(other, InvalidArgument)
    assert other.allowed is not None
    assert other.allowed.startswith("2")


def test_an_entry_that_no_message_carries_is_refused_alone(open_index: Open) -> None:
    index = open_index()
    ref = LatentRef("default", "bad", 0, xxh3_64=-1)
    bad, good = index.upsert_entries(
        "",
        KEY,
        [
            VectorEntry(IndexEntry("bad", snapshots=(ref,)), np.ones(2, np.float32)),
            VectorEntry(IndexEntry("good"), np.ones(2, np.float32)),
        ],
    )
    assert good is None
    assert isinstance(bad, InvalidArgument)
    assert bad.field == "xxh3_64"


@pytest.mark.parametrize("exact", [0, 1000])
def test_packed_hits_are_those_of_a_search(open_index: Open, exact: int) -> None:
    index = open_index(exact=exact)
    vectors = clustered(40, 8)
    fill(index, vectors)
    index.wait_for_builds()
    packed = index.search_packed(Search("", KEY, list(vectors[:3]), 5, 0.5))
    plain = index.search_entries("", KEY, list(vectors[:3]), 5, 0.5)
    assert [
        [SearchHit(unpack_entry(hit.packed), hit.similarity) for hit in hits] for hits in packed
    ] == plain
    assert all(plain)
