"""Inner products and float16: what an index answers, refuses and keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.unit.vector_index.test_hnsw_index import KEY, clustered, fill, recall, search

from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.errors import FailedPrecondition, InvalidArgument
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.index_entries import IndexEntry, Vector, VectorEntry
from skipstone_vector_index.adaptive_vectors import AdaptiveOptions
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.index import VectorIndex
from skipstone_vector_index.record_codec import decode_record, encode_record, make_record
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.server import mount
from skipstone_vector_index.vector_form import Metric, VectorForm

INNER = Metric.INNER_PRODUCT
Make = Callable[[Path, ExitStack], VectorIndex]


def make_flat(path: Path, stack: ExitStack) -> VectorIndex:
    return FlatIndex(form=VectorForm(INNER))


def make_hnsw(path: Path, stack: ExitStack) -> VectorIndex:
    return open_index(path, metric=INNER)


def make_client(path: Path, stack: ExitStack) -> VectorIndex:
    target = stack.enter_context(in_process_server(mount(make_hnsw(path, stack))))
    return stack.enter_context(VectorIndexClient(target))


def open_index(
    path: Path, *, exact: int = 4096, metric: Metric = Metric.COSINE, half: bool = False
) -> HnswIndex:
    log = RecordLog(path, 1 << 28, fsync=False, metric=metric)
    return HnswIndex(log, AdaptiveOptions(exact), half=half)


@pytest.fixture(params=[make_flat, make_hnsw, make_client], ids=lambda make: make.__name__)
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorIndex]:
    """An index of every kind that compares by inner product."""
    with ExitStack() as stack:
        made: VectorIndex = request.param(tmp_path, stack)
        yield made
        made.close()


def vec(*elements: float) -> Vector:
    return np.array(elements, np.float32)


def put(index: VectorIndex, **vectors: Vector) -> None:
    entries = [VectorEntry(IndexEntry(name), vector) for name, vector in vectors.items()]
    assert index.upsert_entries("", KEY, entries) == [None] * len(entries)


def test_an_inner_product_counts_norms_and_has_no_bounds(inner: VectorIndex) -> None:
    put(inner, long=vec(30, 40), near=vec(3, 0), far=vec(-500, 0))
    (hits,) = inner.search_entries("", KEY, [vec(2, 0)], 5)
    assert [(hit.entry.entry_id, hit.similarity) for hit in hits] == [
        ("long", 60.0),
        ("near", 6.0),
        ("far", -1000.0),
    ]
    (hits,) = inner.search_entries("", KEY, [vec(2, 0)], 5, 6.0)
    assert [hit.entry.entry_id for hit in hits] == ["long", "near"]
    assert inner.get_capabilities().metric == "inner_product"


@pytest.mark.parametrize(
    "bad", [vec(0, 0), vec(math.nan, 1), vec(1, math.inf), vec(1e19, 0)], ids=str
)
def test_vectors_that_have_no_inner_product_are_refused(inner: VectorIndex, bad: Vector) -> None:
    (status,) = inner.upsert_entries("", KEY, [VectorEntry(IndexEntry("a"), bad)])
    assert isinstance(status, InvalidArgument)
    assert status.field == "vector"
    with pytest.raises(InvalidArgument, match="queries"):
        inner.search_entries("", KEY, [bad], 1)


def test_an_index_tells_that_it_compares_by_cosine(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    assert index.get_capabilities().metric == FlatIndex().get_capabilities().metric == "cosine"
    index.close()


def test_ties_at_the_edge_come_by_id_whatever_their_norm(inner: VectorIndex) -> None:
    """An exact search must tell rounding from a difference at norms of a thousand too."""
    rng = np.random.default_rng(0)
    vector = (1000 * rng.standard_normal(64)).astype(np.float32)
    put(inner, **{f"e{i:02}": vector for i in range(30)})
    (hits,) = inner.search_entries("", KEY, [vector], 5)
    assert [hit.entry.entry_id for hit in hits] == [f"e{i:02}" for i in range(5)]


def test_a_graph_finds_the_largest_inner_products(tmp_path: Path) -> None:
    vectors = clustered(1000, 16) * np.random.default_rng(3).uniform(0.5, 2.0, (1000, 1))
    index = open_index(tmp_path, exact=0, metric=INNER)
    reference = FlatIndex(form=VectorForm(INNER))
    for target in (index, reference):
        fill(target, vectors.astype(np.float32))
    index.wait_for_builds()
    assert recall(index, reference, clustered(50, 16, seed=1)) >= 0.95
    index.close()


def test_a_directory_keeps_its_metric(tmp_path: Path) -> None:
    open_index(tmp_path, metric=INNER).close()
    index = open_index(tmp_path)  # without entries any metric will do
    put(index, a=vec(1, 2))
    index.close()
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="metric cosine, configured is inner_product"):
            open_index(tmp_path, metric=INNER)
    open_index(tmp_path).close()


def test_half_precision_takes_half_the_bytes_and_reads_back_the_same() -> None:
    form = VectorForm(half=True)
    vector = form.stored(clustered(1, 384)[0], None)
    sizes = {}
    for half in (False, True):
        data = encode_record(make_record(IndexEntry("a"), vector, 1, half=half), b"key")
        read = decode_record(data, b"key")
        np.testing.assert_array_equal(read.vector, vector)
        assert read.version == (6 if half else 5)
        assert encode_record(read, b"key") == data
        sizes[half] = len(data)
    assert sizes[False] - sizes[True] == 2 * 384


@pytest.mark.parametrize("exact", [0, 4096])
def test_half_precision_finds_the_same_before_and_after_a_restart(
    tmp_path: Path, exact: int
) -> None:
    vectors, queries = clustered(600, 32), clustered(40, 32, seed=1)
    index, reference = open_index(tmp_path, exact=exact, half=True), FlatIndex()
    fill(index, vectors)
    fill(reference, vectors)
    index.wait_for_builds()
    found, wanted = search(index, queries, 10), search(reference, queries, 10)
    shared = [mine.keys() & exact.keys() for mine, exact in zip(found, wanted, strict=True)]
    assert sum(map(len, shared)) >= 0.98 * 400
    for mine, true, ids in zip(found, wanted, shared, strict=True):
        assert all(mine[id_] == pytest.approx(true[id_], abs=1e-3) for id_ in ids)
    index.close()
    again = open_index(tmp_path, exact=exact, half=True)
    again.wait_for_builds()
    assert search(again, queries, 10) == found
    again.close()


def test_a_directory_may_hold_both_precisions(tmp_path: Path) -> None:
    for half in (False, True, False):
        index = open_index(tmp_path, half=half)
        fill(index, clustered(20, 16, seed=int(half)), prefix=f"half{half}-")
        index.close()
    index = open_index(tmp_path)
    for half in (False, True):
        (best,) = search(index, clustered(20, 16, seed=int(half))[:1], 1)
        assert best == {f"half{half}-00000": pytest.approx(1.0, abs=1e-6)}
    index.close()


@pytest.mark.parametrize("bad", [vec(7e4, 1), vec(1e-9, 0)], ids=str)
def test_what_float16_cannot_hold_is_refused(tmp_path: Path, bad: Vector) -> None:
    index = open_index(tmp_path, metric=INNER, half=True)
    (status,) = index.upsert_entries("", KEY, [VectorEntry(IndexEntry("a"), bad)])
    assert isinstance(status, InvalidArgument)
    assert "float16" in status.message
    index.close()
