"""The promises of `VectorIndex`, kept by every index and by the client of a remote one."""

from __future__ import annotations

import math
import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.servers.milvus import shared_milvus
from tests.servers.milvus_lite import milvus_url
from tests.servers.postgres import shared_postgres

from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.errors import EntryNotFound, InvalidArgument
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.index_entries import IndexEntry, NamespacePage, SearchHit, Vector, VectorEntry
from skipstone_shared.latents import DType, LatentRef, TensorSpec
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions
from skipstone_vector_index.collection_engine import CollectionEngine
from skipstone_vector_index.engine_index import EngineIndex
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.index import VectorIndex
from skipstone_vector_index.milvus_collections import MilvusCollections
from skipstone_vector_index.mirrored_index import MirroredIndex
from skipstone_vector_index.pgvector_engine import PgvectorEngine
from skipstone_vector_index.qdrant_collections import QdrantCollections
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.server import mount
from skipstone_vector_index.vector_form import VectorForm

KEY = "a1" * 16
NOW = 1_700_000_000.0
DISK_BYTES = 1 << 28
NO_SPEC = TensorSpec(DType.FLOAT16, (4, 0))


def clock() -> float:
    return NOW


def make_flat(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    return FlatIndex(clock)


def make_hnsw(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    return HnswIndex(RecordLog(tmp_path / "index", DISK_BYTES, fsync=False), clock=clock)


def make_graph(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    """Every partition in a graph: no vectors are few enough for exact search."""
    options = AdaptiveOptions(exact_search_limit=0)
    return HnswIndex(RecordLog(tmp_path / "index", DISK_BYTES, fsync=False), options, clock)


def make_client(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    target = stack.enter_context(in_process_server(mount(make_hnsw(tmp_path, stack))))
    return stack.enter_context(VectorIndexClient(target))


def make_mirrored(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    """While its entries move to another index."""
    target = FlatIndex(clock)
    source = HnswIndex(RecordLog(tmp_path / "index", DISK_BYTES, fsync=False), clock=clock)
    return MirroredIndex(source, target, clock)


def make_pgvector(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    return EngineIndex(
        PgvectorEngine(shared_postgres().url, f"t{uuid.uuid4().hex}"), VectorForm(), clock
    )


def make_pgvector_graph(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    """Every partition may get a graph, at any time."""
    engine = PgvectorEngine(shared_postgres().url, f"t{uuid.uuid4().hex}", exact_search_limit=0)
    return EngineIndex(engine, VectorForm(), clock)


def make_milvus(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    collections = MilvusCollections(milvus_url(), f"t{uuid.uuid4().hex}")
    return EngineIndex(CollectionEngine(collections), VectorForm(), clock)


def make_milvus_server(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    """Milvus itself; the one above is Milvus Lite, unless somebody names another."""
    collections = MilvusCollections(shared_milvus().url, f"t{uuid.uuid4().hex}")
    return EngineIndex(CollectionEngine(collections), VectorForm(), clock)


def make_qdrant(tmp_path: Path, stack: ExitStack) -> VectorIndex:
    """A server where somebody has one, else Qdrant's local mode: no registry has its server."""
    url = os.environ.get("SKIPSTONE_TEST_QDRANT_URL", "file://")
    collections = QdrantCollections(url, f"t{uuid.uuid4().hex}")
    return EngineIndex(CollectionEngine(collections), VectorForm(), clock)


IMPLEMENTATIONS = [
    pytest.param(make_flat),
    pytest.param(make_hnsw),
    pytest.param(make_graph),
    pytest.param(make_client),
    pytest.param(make_mirrored),
    pytest.param(make_pgvector),
    pytest.param(make_milvus),
    pytest.param(make_qdrant),
    pytest.param(make_pgvector_graph, marks=pytest.mark.long),
    pytest.param(make_milvus_server, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
]


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda make: make.__name__.removeprefix("make_"))
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorIndex]:
    with ExitStack() as stack:
        made: VectorIndex = request.param(tmp_path, stack)
        yield made
        made.close()


def vec(*elements: float) -> Vector:
    return np.array(elements, np.float32)


def entry(entry_id: str, vector: Vector, **fields: object) -> VectorEntry:
    return VectorEntry(IndexEntry(entry_id, **fields), vector)  # type: ignore[arg-type]


def put(index: VectorIndex, *entries: VectorEntry, namespace: str = "", key: str = KEY) -> None:
    assert index.upsert_entries(namespace, key, entries) == [None] * len(entries)


def ids(hits: list[SearchHit]) -> list[str]:
    return [hit.entry.entry_id for hit in hits]


def find(index: VectorIndex, query: Vector, top_k: int = 10, **options: object) -> list[SearchHit]:
    (hits,) = index.search_entries("", KEY, [query], top_k, **options)  # type: ignore[arg-type]
    return hits


def all_ids(index: VectorIndex, page_size: int, key: str = "", namespace: str = "") -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        page = index.list_entries(namespace, key, page_size, token)
        found += [item.entry_id for item in page.entries]
        token = page.next_page_token
        if not token:
            return found


def test_what_was_upserted_is_found_with_every_field(index: VectorIndex) -> None:
    ref = LatentRef(
        namespace="default",
        entry_id="e1",
        step_index=5,
        store="kv:50053",
        spec=TensorSpec(DType.BFLOAT16, (4, 8, 8)),
        xxh3_64=2**64 - 1,
        size_bytes=512,
        sigma=0.743,
        compatibility_key=KEY,
    )
    saved = IndexEntry(
        entry_id="e1",
        prompt="a red fox — 赤い狐",
        seed=-(2**63),
        snapshots=(ref, LatentRef("default", "e1", 9)),
        depth=2,
        create_time=1_600_000_000.25,
        embedding_model_id="minilm",
        labels={"user": "ü", "empty": ""},
    )
    put(index, VectorEntry(saved, vec(3, 4)))
    (hit,) = find(index, vec(6, 8))
    assert hit.entry == saved
    assert hit.similarity == 1.0
    assert index.get_entry("", "e1").entry == saved
    assert index.get_entry("default", "e1").compatibility_key == KEY


def test_a_vector_comes_with_its_entry_when_asked_for(index: VectorIndex) -> None:
    put(index, entry("e1", vec(3, 4)))
    assert index.get_entry("", "e1").vector is None
    vector = index.get_entry("", "e1", include_vector=True).vector
    assert vector is not None
    assert vector.tolist() == pytest.approx([0.6, 0.8])


def test_an_entry_without_a_create_time_gets_the_time_it_was_stored(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)))
    assert index.get_entry("", "e1").entry.create_time == NOW


def test_hits_come_best_first_with_their_cosine(index: VectorIndex) -> None:
    put(index, entry("far", vec(-1, 0)), entry("near", vec(2, 0.1)), entry("side", vec(0, 5)))
    hits = find(index, vec(1, 0))
    assert ids(hits) == ["near", "side", "far"]
    assert [hit.similarity for hit in hits] == pytest.approx([2 / math.hypot(2, 0.1), 0, -1])


def test_equal_similarities_come_by_ascending_id(index: VectorIndex) -> None:
    names = ["d", "b", "a", "c", "e"]
    put(index, *[entry(name, vec(0.3, 0.7, 0.1)) for name in names])
    assert ids(find(index, vec(1, 1, 1), 3)) == ["a", "b", "c"]


def test_top_k_above_the_live_count_gives_what_there_is(index: VectorIndex) -> None:
    put(index, *[entry(f"e{i}", vec(1, i)) for i in range(5)])
    assert len(find(index, vec(1, 0), 1000)) == 5
    index.delete_entries("", ["e0", "e1", "e2"])
    assert ids(find(index, vec(1, 0), 1000)) == ["e3", "e4"]


def test_an_unknown_partition_gives_no_hits(index: VectorIndex) -> None:
    assert index.search_entries("", KEY, [vec(1, 0), vec(0, 1)], 5) == [[], []]


def test_a_partition_whose_entries_are_all_deleted_gives_no_hits(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)), entry("e2", vec(0, 1)))
    assert index.delete_entries("", ["e1", "e2"]) == [True, True]
    assert find(index, vec(1, 0)) == []
    put(index, entry("e3", vec(1, 2, 3)))
    assert ids(find(index, vec(1, 2, 3))) == ["e3"], "an empty partition takes any dimension"


def test_min_similarity_leaves_out_what_is_farther(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)), entry("e2", vec(0, 1)))
    assert ids(find(index, vec(1, 0), min_similarity=0.5)) == ["e1"]
    assert ids(find(index, vec(1, 0), min_similarity=1.0)) == ["e1"]
    assert ids(find(index, vec(1, 0), min_similarity=0.0)) == ["e1", "e2"]
    assert ids(find(index, vec(1, 0), min_similarity=-1.0)) == ["e1", "e2"]


def test_entries_of_another_embedding_model_are_passed_over(index: VectorIndex) -> None:
    put(
        index,
        entry("a", vec(1, 0), embedding_model_id="m1"),
        entry("b", vec(1, 0), embedding_model_id="m2"),
    )
    assert ids(find(index, vec(1, 0), 1, embedding_model_id="m2")) == ["b"]
    assert ids(find(index, vec(1, 0), embedding_model_id="m3")) == []
    assert ids(find(index, vec(1, 0))) == ["a", "b"]


def test_an_entry_that_changes_its_model_is_found_under_the_new_one_only(
    index: VectorIndex,
) -> None:
    put(index, entry("a", vec(1, 0), embedding_model_id="m1"))
    put(index, entry("a", vec(0, 1), embedding_model_id="m2"))
    assert find(index, vec(1, 0), embedding_model_id="m1") == []
    assert ids(find(index, vec(0, 1), embedding_model_id="m2")) == ["a"]
    assert index.get_stats("").entry_count == 1


def test_nothing_of_another_namespace_or_key_is_ever_found(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)), namespace="tenant-a")
    put(index, entry("e2", vec(1, 0)), namespace="tenant-b")
    put(index, entry("e3", vec(1, 0)), namespace="tenant-a", key="other")
    assert ids(index.search_entries("tenant-a", KEY, [vec(1, 0)], 10)[0]) == ["e1"]
    assert index.search_entries("", KEY, [vec(1, 0)], 10) == [[]]
    with pytest.raises(EntryNotFound):
        index.get_entry("tenant-a", "e2")
    assert index.delete_entries("tenant-b", ["e1", "e2"]) == [False, True]
    assert index.get_stats("tenant-a").entry_count == 2
    assert index.list_entries("tenant-b").entries == ()


def test_partitions_may_differ_in_dimension(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)))
    put(index, entry("e2", vec(1, 0, 0)), key="other")
    assert ids(index.search_entries("", "other", [vec(1, 1, 1)], 1)[0]) == ["e2"]


def test_an_upsert_replaces_the_entry_as_a_whole(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0), prompt="old", labels={"a": "b"}))
    put(index, entry("e1", vec(0, 1), seed=7))
    (hit,) = find(index, vec(0, 1))
    assert hit.similarity == 1.0
    assert hit.entry == IndexEntry("e1", seed=7, create_time=NOW)
    assert index.get_stats("").entry_count == 1


def test_of_one_id_twice_in_a_call_the_last_wins(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0), seed=1), entry("e1", vec(0, 1), seed=2))
    assert [(h.entry.seed, h.similarity) for h in find(index, vec(0, 1))] == [(2, 1.0)]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (entry("bad", vec(math.nan, 1)), "vector"),
        (entry("bad", vec(math.inf, 1)), "vector"),
        (entry("bad", vec(0, 0)), "vector"),
        (entry("bad", vec(1, 2, 3)), "vector"),
        (entry("no/id", vec(1, 2)), "entry_id"),
        (entry("", vec(1, 2)), "entry_id"),
        (entry("bad", vec(1, 2), prompt="x" * 20_001), "prompt"),
        (entry("bad", vec(1, 2), labels={str(i): "" for i in range(17)}), "labels"),
        (entry("bad", vec(1, 2), labels={"a": "é" * 129}), "labels"),
        (entry("bad", vec(1, 2), depth=-1), "depth"),
        (entry("bad", vec(1, 2), create_time=1e12), "create_time"),
        (
            entry("bad", vec(1, 2), snapshots=(LatentRef("", "e", 2), LatentRef("", "e", 1))),
            "snapshots",
        ),
        (entry("bad", vec(1, 2), snapshots=(LatentRef("", "no/id", 1),)), "entry_id"),
        (
            entry("bad", vec(1, 2), snapshots=(LatentRef("", "e", 1, spec=NO_SPEC),)),
            "shape",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_entry_is_refused_by_field_and_does_not_fail_its_neighbours(
    index: VectorIndex, bad: VectorEntry, field: str
) -> None:
    first, status, last = index.upsert_entries(
        "", KEY, [entry("e1", vec(1, 0)), bad, entry("e2", vec(0, 1))]
    )
    assert first is None
    assert last is None
    assert isinstance(status, InvalidArgument)
    assert status.field == field
    assert all_ids(index, 10) == ["e1", "e2"]


def test_tiny_and_huge_vectors_are_normalised(index: VectorIndex) -> None:
    put(index, entry("tiny", vec(1e-40, 0)), entry("huge", vec(0, 3e38)))
    assert ids(find(index, vec(1, 0), min_similarity=0.99)) == ["tiny"]
    assert ids(find(index, vec(0, 1), min_similarity=0.99)) == ["huge"]


@pytest.mark.parametrize(
    "query", [vec(0, 0), vec(math.nan, 1), vec(1, math.inf), vec(1, 2, 3)], ids=str
)
def test_a_bad_query_is_refused(index: VectorIndex, query: Vector) -> None:
    put(index, entry("e1", vec(1, 0)))
    with pytest.raises(InvalidArgument):
        index.search_entries("", KEY, [vec(1, 0), query], 5)


@pytest.mark.parametrize("top_k", [0, -1, 1001])
def test_a_top_k_out_of_range_is_refused(index: VectorIndex, top_k: int) -> None:
    with pytest.raises(InvalidArgument, match="top_k"):
        index.search_entries("", KEY, [vec(1, 0)], top_k)


def test_calls_without_work_or_with_bad_names_are_refused(index: VectorIndex) -> None:
    good = [entry("e1", vec(1, 0))]
    for call in (
        lambda: index.upsert_entries("", KEY, []),
        lambda: index.upsert_entries("", KEY, good * 1001),
        lambda: index.upsert_entries("no/name", KEY, good),
        lambda: index.upsert_entries("", "", good),
        lambda: index.search_entries("", KEY, [], 5),
        lambda: index.search_entries("", "", [vec(1, 0)], 5),
        lambda: index.delete_entries("", []),
        lambda: index.delete_partition("no/name"),
        lambda: index.get_stats("no/name"),
        lambda: index.get_entry("", "no/id"),
        lambda: index.list_entries("", "", 1001),
        lambda: index.list_entries("", "", -1),
        lambda: index.list_entries("", "", 10, "no token"),
        lambda: index.list_namespaces(0),
        lambda: index.list_namespaces(10, "no/namespace"),
    ):
        with pytest.raises(InvalidArgument):
            call()
    assert index.get_stats("").entry_count == 0


def test_many_queries_are_answered_in_order(index: VectorIndex) -> None:
    put(index, entry("x", vec(1, 0)), entry("y", vec(0, 1)))
    results = index.search_entries("", KEY, [vec(0, 1), vec(1, 0), vec(0, 2)], 1)
    assert [ids(hits) for hits in results] == [["y"], ["x"], ["y"]]


def test_deleting_removes_from_every_partition_and_tells_what_was_there(
    index: VectorIndex,
) -> None:
    put(index, entry("e1", vec(1, 0)), entry("e2", vec(1, 1)))
    put(index, entry("e1", vec(1, 0)), key="other")
    assert index.delete_entries("", ["e1", "gone", "no/id", "e1"]) == [True, False, False, False]
    assert ids(find(index, vec(1, 0))) == ["e2"]
    assert index.search_entries("", "other", [vec(1, 0)], 5) == [[]]
    with pytest.raises(EntryNotFound):
        index.get_entry("", "e1")


def test_a_deleted_entry_can_be_stored_again(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)), entry("e2", vec(0, 1)))
    index.delete_entries("", ["e1"])
    put(index, entry("e1", vec(1, 0), seed=3))
    assert [hit.entry.seed for hit in find(index, vec(1, 0), 1)] == [3]


def test_a_partition_or_a_namespace_is_deleted_at_once(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)), entry("e2", vec(0, 1)))
    put(index, entry("e3", vec(1, 0)), key="other")
    put(index, entry("e4", vec(1, 0)), namespace="kept")
    assert index.delete_partition("", KEY) == 2
    assert index.delete_partition("", KEY) == 0
    assert find(index, vec(1, 0)) == []
    assert all_ids(index, 10) == ["e3"]
    assert index.delete_partition("") == 1
    stats = index.get_stats("")
    assert (stats.entry_count, stats.partition_count) == (0, 0)
    assert index.get_stats("kept").entry_count == 1


def test_an_entry_in_two_partitions_is_told_from_the_one_that_got_it_last(
    index: VectorIndex,
) -> None:
    put(index, entry("e1", vec(1, 0)), key="one")
    put(index, entry("e1", vec(1, 0)), key="two")
    put(index, entry("e1", vec(1, 0), seed=9), key="one")
    located = index.get_entry("", "e1")
    assert (located.compatibility_key, located.entry.seed) == ("one", 9)


@pytest.mark.parametrize("page_size", [1, 3, 7, 1000])
def test_a_listing_gives_every_entry_once_oldest_first(index: VectorIndex, page_size: int) -> None:
    for i in range(7):
        put(index, entry(f"e{i}", vec(1, i)), key="even" if i % 2 == 0 else "odd")
    assert all_ids(index, page_size) == [f"e{i}" for i in range(7)]
    assert all_ids(index, page_size, "odd") == ["e1", "e3", "e5"]
    assert all_ids(index, page_size, "unknown") == []


def test_a_rewritten_entry_is_listed_once(index: VectorIndex) -> None:
    put(index, *[entry(f"e{i}", vec(1, i)) for i in range(4)])
    first = index.list_entries("", "", 2)
    put(index, entry("e0", vec(0, 1)))
    index.delete_entries("", ["e1"])
    put(index, entry("e1", vec(0, 1)), entry("new", vec(1, 1)))
    rest = index.list_entries("", "", 10, first.next_page_token)
    assert [item.entry_id for item in first.entries] == ["e0", "e1"]
    assert [item.entry_id for item in rest.entries] == ["e2", "e3"]
    assert all_ids(index, 10) == ["e0", "e2", "e3", "e1", "new"]


@pytest.mark.parametrize("field", ["prompt", "embedding_model_id"])
def test_a_listing_of_large_entries_is_complete(index: VectorIndex, field: str) -> None:
    """A page of them would not fit in one message, so pages are shorter than asked."""
    entries = [entry(f"e{i:03}", vec(1, i), **{field: "é" * 10_000}) for i in range(300)]
    for start in range(0, 300, 100):
        put(index, *entries[start : start + 100])
    assert all_ids(index, 1000) == [item.entry.entry_id for item in entries]


@pytest.mark.parametrize("page_size", [1, 2, 100])
def test_every_namespace_with_entries_is_listed_once_in_order(
    index: VectorIndex, page_size: int
) -> None:
    """The orchestrator compares each with the latent store."""
    for name in ("b", "", "a", "emptied", "c"):
        put(index, entry("e1", vec(1, 0)), namespace=name)
    put(index, entry("e1", vec(1, 0)), namespace="a", key="other")
    index.delete_entries("emptied", ["e1"])
    found: list[str] = []
    token = ""
    while not found or token:
        page = index.list_namespaces(page_size, token)
        found += page.namespaces
        token = page.next_page_token
    assert found == ["a", "b", "c", "default"]


def test_an_empty_index_lists_no_namespace(index: VectorIndex) -> None:
    assert index.list_namespaces() == NamespacePage(())


def test_stats_count_live_entries_and_partitions(index: VectorIndex) -> None:
    put(index, entry("e1", vec(1, 0)), entry("e2", vec(0, 1)))
    put(index, entry("e1", vec(1, 0)), key="other")
    stats = index.get_stats("")
    assert (stats.entry_count, stats.partition_count) == (3, 2)
    index.delete_entries("", ["e1"])
    stats = index.get_stats("")
    assert (stats.entry_count, stats.partition_count) == (1, 1)


@pytest.mark.parametrize("index", [make_pgvector, make_milvus, make_qdrant], indirect=True)
def test_an_engine_outside_counts_the_entries_of_all_namespaces(index: VectorIndex) -> None:
    assert isinstance(index, EngineIndex)
    assert index.count_entries() == 0
    put(index, entry("e1", vec(1, 0)), entry("e2", vec(0, 1)))
    put(index, entry("e1", vec(1, 0, 0)), namespace="another", key="other")
    assert index.count_entries() == 3
    index.delete_entries("", ["e1"])
    assert index.count_entries() == 2


def test_capabilities_name_the_engine_and_the_limits(index: VectorIndex) -> None:
    capabilities = index.get_capabilities()
    assert capabilities.engine in ("flat", "hnsw", "pgvector", "milvus", "qdrant")
    assert capabilities.max_top_k == 1000
    assert capabilities.max_batch_size == 1000
    assert capabilities.max_dimension == 8192


def test_searches_are_right_while_others_write(index: VectorIndex) -> None:
    """Every hit is a whole entry: its seed tells which vector it was written with."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((8, 16)).astype(np.float32)
    anchor = rng.standard_normal(16).astype(np.float32)
    put(index, entry("anchor", anchor, seed=99))
    stop = threading.Event()

    def write(worker: int) -> None:
        for round_ in range(20):
            chosen = (worker + round_) % 8
            put(index, *[entry(f"w{worker}-{i}", vectors[chosen], seed=chosen) for i in range(4)])
            index.delete_entries("", [f"w{worker}-{round_ % 4}"])

    def read() -> int:
        count = 0
        while not stop.is_set() or not count:
            count += 1
            assert ids(find(index, anchor, 1)) == ["anchor"]
            for hit in find(index, vectors[0], 50):
                if hit.entry.entry_id != "anchor":
                    vector = vectors[hit.entry.seed]
                    expected = vector @ vectors[0]
                    expected /= np.linalg.norm(vector) * np.linalg.norm(vectors[0])
                    assert hit.similarity == pytest.approx(float(expected), abs=1e-5)
        return count

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        writers = [pool.submit(write, worker) for worker in range(2)]
        try:
            for writer in writers:
                writer.result()
        finally:
            stop.set()
        assert all(reader.result() for reader in readers)
    # Round 19 wrote all four and deleted the last.
    assert sorted(all_ids(index, 100)) == sorted(
        ["anchor", *[f"w{w}-{i}" for w in range(2) for i in range(3)]]
    )
