"""A graph on disk spares its build, and is never trusted where it does not fit the log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.full_disk import largest_file
from tests.unit.vector_index.test_hnsw_index import clustered, fill, recall, search, tombstones

from skipstone_vector_index.adaptive_vectors import AdaptiveOptions
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.graph_files import GraphFiles, open_graph_files
from skipstone_vector_index.graph_vectors import GraphOptions, GraphVectors
from skipstone_vector_index.hnsw_index import HnswIndex
from skipstone_vector_index.record_log import RecordLog
from skipstone_vector_index.vectors import Labels, Matrix

COUNT = 400
Open = Callable[..., HnswIndex]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Vectors that were added to graphs, call by call: what a build costs."""
    sizes: list[int] = []
    put = GraphVectors.put

    def counted(self: GraphVectors, labels: Labels, vectors: Matrix) -> None:
        sizes.append(len(labels))
        put(self, labels, vectors)

    monkeypatch.setattr(GraphVectors, "put", counted)
    return sizes


@pytest.fixture
def open_index(tmp_path: Path) -> Iterator[Open]:
    opened: list[HnswIndex] = []

    def open_(graph: GraphOptions | None = None, share: float = 0.05) -> HnswIndex:
        for index in opened:
            index.close()
        options = AdaptiveOptions(100, save_change_share=share, graph=graph or GraphOptions())
        log = RecordLog(tmp_path, 1 << 26, fsync=False)
        files = GraphFiles(tmp_path / "graphs", log.log_id())
        opened.append(HnswIndex(log, options, graph_files=files))
        return opened[-1]

    yield open_
    for index in opened:
        index.close()


def graphs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "graphs").iterdir())


def settled(index: HnswIndex) -> HnswIndex:
    """The index when its builds, and the saves that they ask for, are done."""
    for _ in range(3):
        index.wait_for_builds()
    return index


def test_a_start_adds_nothing_to_a_graph_that_is_on_disk(
    open_index: Open, added: list[int]
) -> None:
    vectors = clustered(COUNT, 16)
    index = open_index()
    fill(index, vectors)
    before = search(settled(index), vectors[:20], 10)
    added.clear()
    again = settled(open_index())
    assert sum(added) == 0
    assert tombstones(again) == 0
    assert search(again, vectors[:20], 10) == before


def test_what_changed_after_the_graph_was_saved_is_brought_up_to_date(
    open_index: Open, added: list[int]
) -> None:
    """Replaced, removed and new vectors, none of which were enough to save it anew."""
    index, reference = open_index(share=1.0), FlatIndex()
    for target in (index, reference):
        fill(target, clustered(COUNT, 16))
    settled(index)
    for target in (index, reference):
        target.delete_entries("", [f"e{i:05}" for i in range(30)])
        fill(target, clustered(20, 16, seed=2), start=100)
        fill(target, clustered(10, 16, seed=3), start=1000)
    added.clear()
    again = settled(open_index(share=1.0))
    assert sum(added) == 30, "replaced and new"
    assert tombstones(again) == 50, "it goes on as a graph, with what was removed and replaced"
    assert recall(again, reference, clustered(60, 16, seed=4)) >= 0.99
    queries = np.concatenate([clustered(20, 16, seed=2), clustered(10, 16, seed=3)])
    assert recall(again, reference, queries, top_k=1) == 1.0


def test_writes_between_a_start_and_its_graph_are_in_the_graph(open_index: Open) -> None:
    index, reference = open_index(), FlatIndex()
    for target in (index, reference):
        fill(target, clustered(COUNT, 16))
    settled(index)
    again = open_index()
    for target in (again, reference):
        fill(target, clustered(20, 16, seed=2), start=100)
        target.delete_entries("", ["e00001"])
    settled(again)
    assert recall(again, reference, clustered(20, 16, seed=2), top_k=1) == 1.0
    assert again.get_stats("").entry_count == COUNT - 1


def test_a_graph_is_saved_again_when_enough_of_it_has_changed(
    open_index: Open, added: list[int]
) -> None:
    index = open_index(share=0.1)
    fill(index, clustered(COUNT, 16))
    settled(index)
    for start in range(0, 90, 10):
        fill(index, clustered(10, 16, seed=5 + start), start=1000 + start)
        settled(index)
    added.clear()
    settled(open_index(share=0.1))
    assert 0 < sum(added) <= 50


def damages(path: Path) -> Iterator[bytes]:
    """A file with a byte changed in each of many places, and cut off in many."""
    good = path.read_bytes()
    for position in [*range(0, 700, 23), *range(700, len(good), len(good) // 20)]:
        yield good[:position] + bytes([good[position] ^ 0x20]) + good[position + 1 :]
    for size in (0, 1, 20, 30, 500, len(good) // 2, len(good) - 1):
        yield good[:size]


def test_no_damaged_file_is_ever_used(tmp_path: Path) -> None:
    vectors = clustered(200, 8)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    graph = GraphVectors(8, GraphOptions())
    graph.put(np.arange(200), vectors)
    files = GraphFiles(tmp_path, "log")
    files.save(1, "model/ü", 7, graph.copy())
    (saved,) = files.find(7)
    good = saved.path.read_bytes()
    for bad in damages(saved.path):
        saved.path.write_bytes(bad)
        for found in files.find(7):
            assert files.load(found) is None
        assert not saved.path.exists()
        saved.path.write_bytes(good)
    state = files.load(saved)
    assert state is not None
    restored = GraphVectors.restored(8, GraphOptions(), state)
    assert restored is not None
    assert restored.nearest(vectors, 1)[7] == [7]


def test_a_damaged_graph_is_built_from_the_log(
    open_index: Open, tmp_path: Path, added: list[int]
) -> None:
    vectors = clustered(COUNT, 16)
    index = open_index()
    fill(index, vectors)
    before = search(settled(index), vectors[:20], 10)
    index.close()
    (path,) = graphs(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    added.clear()
    again = settled(open_index())
    assert sum(added) == COUNT
    assert search(again, vectors[:20], 10) == before
    assert graphs(tmp_path) == [path], "and saved anew"


def test_a_graph_ahead_of_a_log_that_was_put_back_is_not_used(
    open_index: Open, tmp_path: Path, added: list[int]
) -> None:
    index = open_index()
    fill(index, clustered(COUNT, 16))
    index.close()
    shutil.copy(tmp_path / "records.mdb", tmp_path / "backup")
    index = open_index()
    fill(index, clustered(COUNT, 16, seed=1))
    settled(index).close()
    shutil.copy(tmp_path / "backup", tmp_path / "records.mdb")
    reference = FlatIndex()
    fill(reference, clustered(COUNT, 16))
    added.clear()
    again = settled(open_index())
    assert sum(added) == COUNT
    assert recall(again, reference, clustered(COUNT, 16)[:50], top_k=1) == 1.0


@pytest.mark.parametrize("field", ["log", "hnswlib"])
def test_a_graph_of_another_log_or_version_is_removed(tmp_path: Path, field: str) -> None:
    graph = GraphVectors(8, GraphOptions())
    graph.put(np.arange(100), clustered(100, 8))
    GraphFiles(tmp_path, "log").save(1, "m", 7, graph.copy())
    (path,) = tmp_path.iterdir()
    head, text = path.read_bytes()[:24], path.read_bytes()[24:]
    end = text.index(b"}", text.index(b'"arrays"')) + 1
    header = json.loads(text[:end])
    header[field] = "other"
    path.write_bytes(head[:16] + len(json.dumps(header)).to_bytes(8, "little"))
    with path.open("ab") as file:
        file.write(json.dumps(header).encode() + text[end:])
    assert GraphFiles(tmp_path, "log").find(7) == []
    assert list(tmp_path.iterdir()) == []


def test_other_settings_of_graphs_build_them_anew(open_index: Open, added: list[int]) -> None:
    index = open_index()
    fill(index, clustered(COUNT, 16))
    settled(index)
    for options, expected in [
        (GraphOptions(ef_search=50), 0),
        (GraphOptions(m=8, ef_search=50), COUNT),
        (GraphOptions(m=8, ef_construction=100), COUNT),
    ]:
        added.clear()
        settled(open_index(options))
        assert sum(added) == expected, options


def test_a_partition_that_is_dropped_takes_its_graph_with_it(
    open_index: Open, tmp_path: Path
) -> None:
    index = open_index()
    fill(index, clustered(COUNT, 16))
    settled(index)
    assert len(graphs(tmp_path)) == 1
    index.delete_partition("")
    assert graphs(tmp_path) == []


def test_a_full_disk_leaves_the_graph_saved_before(tmp_path: Path) -> None:
    graph = GraphVectors(8, GraphOptions())
    graph.put(np.arange(100), clustered(100, 8))
    files = GraphFiles(tmp_path, "log")
    files.save(1, "m", 7, graph.copy())
    before = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    graph.put(np.arange(100, 200), clustered(100, 8, seed=1))
    with largest_file(1 << 13), pytest.raises(OSError, match="large"):
        files.save(1, "m", 8, graph.copy())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == before


def test_graphs_that_are_no_longer_wanted_do_not_lie_in_wait(tmp_path: Path) -> None:
    graph = GraphVectors(8, GraphOptions())
    graph.put(np.arange(100), clustered(100, 8))
    directory = tmp_path / "graphs"
    GraphFiles(directory, "log").save(1, "m", 7, graph.copy())
    assert open_graph_files(directory, "log", keep=False) is None
    again = open_graph_files(directory, "log", keep=True)
    assert again is not None
    assert again.find(7) == []


def test_an_index_whose_graphs_cannot_be_saved_goes_on(open_index: Open, tmp_path: Path) -> None:
    index = open_index()
    (tmp_path / "graphs").rmdir()
    vectors = clustered(COUNT, 16)
    fill(index, vectors)
    settled(index)
    assert len(search(index, vectors[:1], 1000)[0]) == COUNT
