"""What `MilvusCollections` promises beyond the contract suite, against a server of Milvus Lite."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from pymilvus import MilvusClient
from tests.servers.milvus_lite import INSTALL, MilvusLite, is_installed, shared_milvus_lite

from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
)
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.latents import LatentRef
from skipstone_vector_index import milvus_collections
from skipstone_vector_index.collection_engine import CollectionEngine
from skipstone_vector_index.engine_index import EngineIndex
from skipstone_vector_index.milvus_collections import MilvusCollections
from skipstone_vector_index.vector_form import Matrix, Metric, VectorForm

KEY = "a1" * 16


@pytest.fixture
def server() -> MilvusLite:
    return shared_milvus_lite()


@pytest.fixture(scope="module")
def own_server() -> Iterator[MilvusLite]:
    """One that tests may end, if they start it again."""
    if not is_installed():
        pytest.skip(INSTALL)
    server = MilvusLite()
    yield server
    server.remove()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def new_prefix() -> str:
    return f"t{uuid.uuid4().hex}"


def opened(
    stack: ExitStack,
    server: MilvusLite,
    prefix: str | None = None,
    form: VectorForm | None = None,
    timeout_s: float = 5.0,
) -> EngineIndex:
    collections = MilvusCollections(server.url, prefix or new_prefix(), timeout_s)
    index = EngineIndex(CollectionEngine(collections), form or VectorForm())
    stack.callback(index.close)
    return index


def vectors(count: int, dimension: int = 8) -> Matrix:
    return np.random.default_rng(0).standard_normal((count, dimension)).astype(np.float32)


def items(rows: Matrix, first: int = 0) -> list[VectorEntry]:
    return [VectorEntry(IndexEntry(f"e{first + i}"), row) for i, row in enumerate(rows)]


@pytest.mark.parametrize("broken_at", ["create_index", "load_collection"])
def test_a_collection_that_was_left_half_made_is_completed_by_the_next_write(
    server: MilvusLite, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, broken_at: str
) -> None:
    index, rows = opened(stack, server, prefix := new_prefix()), vectors(2)
    call = MilvusCollections._call

    def breaks_off(
        self: MilvusCollections, method: str, *args: object, **options: object
    ) -> object:
        if method == broken_at:
            raise DeadlineExceeded("milvus took too long")
        return call(self, method, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MilvusCollections, "_call", breaks_off)
        with pytest.raises(DeadlineExceeded):
            index.upsert_entries("", KEY, items(rows))
    for each in (index, opened(stack, server, prefix)):
        assert each.upsert_entries("", KEY, items(rows)) == [None, None]
        ((hit, _),) = each.search_entries("", KEY, [rows[1]], 2)
        assert hit.entry.entry_id == "e1"
    client = MilvusClient(server.url)
    stack.callback(client.close)
    assert client.list_indexes(f"{prefix}_8", field_name="vector") == ["vector"]


def test_processes_that_share_a_milvus_see_each_others_entries(
    server: MilvusLite, stack: ExitStack
) -> None:
    prefix = new_prefix()
    one, two = (opened(stack, server, prefix) for _ in range(2))
    rows = vectors(4)
    one.upsert_entries("", KEY, items(rows[:2]))
    (hits,) = two.search_entries("", KEY, [rows[0]], 1)
    assert [hit.entry.entry_id for hit in hits] == ["e0"]
    two.upsert_entries("", KEY, items(rows[2:], first=2))
    assert [e.entry_id for e in one.list_entries("").entries] == ["e0", "e1", "e2", "e3"]
    assert two.delete_partition("") == 4
    assert one.list_namespaces().namespaces == ()


def test_a_listing_goes_on_where_milvus_gives_no_more_rows(
    server: MilvusLite, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives 16,384 at most, in no order: longer listings are read in stretches of labels."""
    index = opened(stack, server)
    rows = vectors(60)
    for start in range(0, 60, 20):
        index.upsert_entries("", KEY, items(rows[start : start + 20], first=start))
    monkeypatch.setattr(milvus_collections, "_MAX_ROWS", 15)
    found: list[str] = []
    token = ""
    while not found or token:
        page = index.list_entries("", "", 7, token)
        found += [entry.entry_id for entry in page.entries]
        token = page.next_page_token
    assert found == [f"e{i}" for i in range(60)]


def test_inner_products_count_with_the_norms(server: MilvusLite, stack: ExitStack) -> None:
    index = opened(stack, server, form=VectorForm(Metric.INNER_PRODUCT))
    index.upsert_entries("", KEY, items(np.array([[3, 0], [0, 1], [1, 1]], np.float32)))
    (hits,) = index.search_entries("", KEY, [np.array([2, 1], np.float32)], 10)
    assert [(hit.entry.entry_id, hit.similarity) for hit in hits] == [
        ("e0", 6.0),
        ("e2", 3.0),
        ("e1", 1.0),
    ]


def test_an_entry_that_milvus_cannot_keep_is_refused_by_field(
    server: MilvusLite, stack: ExitStack
) -> None:
    refs = tuple(LatentRef("default", "x" * 128, step, store="y" * 100) for step in range(400))
    large = VectorEntry(IndexEntry("large", snapshots=refs), vectors(1)[0])
    (status,) = opened(stack, server).upsert_entries("", KEY, [large])
    assert isinstance(status, InvalidArgument)
    assert status.field == "entry"


def test_a_milvus_that_is_killed_and_returns_is_used_again_with_all_that_was_acknowledged(
    own_server: MilvusLite, stack: ExitStack
) -> None:
    now = [100.0]
    collections = MilvusCollections(own_server.url, new_prefix())
    index = EngineIndex(CollectionEngine(collections), VectorForm(), monotonic=lambda: now[0])
    stack.callback(index.close)
    rows = vectors(5)
    index.upsert_entries("", KEY, items(rows))
    own_server.kill()
    with pytest.raises(Unavailable, match="milvus"):
        index.search_entries("", KEY, [rows[0]], 3)
    with pytest.raises(Unavailable, match="just now"):
        index.get_stats("")
    own_server.start()
    now[0] += 1
    (hits,) = index.search_entries("", KEY, [rows[0]], 1)
    assert [hit.entry.entry_id for hit in hits] == ["e0"]
    assert index.get_stats("").entry_count == 5


def test_a_milvus_that_hangs_ends_a_call_at_its_deadline(
    own_server: MilvusLite, stack: ExitStack
) -> None:
    index = opened(stack, own_server, timeout_s=3.0)
    index.upsert_entries("", KEY, items(vectors(2)))
    own_server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises((DeadlineExceeded, Unavailable)):
            index.get_stats("")
    finally:
        own_server.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://user:secret-word@127.0.0.1:1", Unavailable),
        ("http://user:secret-word@:port", FailedPrecondition),
        ("milvus://user:secret-word@127.0.0.1", FailedPrecondition),
    ],
)
def test_no_error_shows_the_password(url: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        MilvusCollections(url, new_prefix())
    assert "secret-word" not in f"{caught.value} {caught.value.__cause__!r}"
