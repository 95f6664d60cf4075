"""What `QdrantCollections` promises beyond the contract suite.

No registry has a server of Qdrant: what is asked of one goes to a stub that records it.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    ResourceExhausted,
    Unavailable,
)
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_vector_index.collection_engine import CollectionEngine, Filter, Point
from skipstone_vector_index.engine import PartitionName, Row
from skipstone_vector_index.engine_index import EngineIndex
from skipstone_vector_index.qdrant_collections import QdrantCollections
from skipstone_vector_index.vector_form import VectorForm

# The stub speaks no TLS, and the client minds.
pytestmark = pytest.mark.filterwarnings("ignore:Api key is used:UserWarning")

KEY = "a1" * 16
Answer = tuple[int, Any]


class Stub(ThreadingHTTPServer):
    """Gives requests the first answers and then always the same, and keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), StubHandler)
        self.answer = answer
        self.first_answers: list[Answer] = []
        self.asked: list[tuple[str, str, Any, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://:the-api-key@127.0.0.1:{self.server_port}"


class StubHandler(BaseHTTPRequestHandler):
    server: Stub

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        asked = json.loads(body) if body else None
        self.server.asked.append((self.command, self.path, asked, self.headers.get("api-key")))
        first = self.server.first_answers
        status, result = first.pop(0) if first else self.server.answer
        text = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = _answer  # noqa: N815 - the names that http.server looks for

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@contextmanager
def stub(answer: Answer) -> Iterator[Stub]:
    server = Stub(answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_local_mode_keeps_its_entries_in_its_directory(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/qdrant"
    vector = np.array([1, 2, 3], np.float32)
    with closing(EngineIndex(CollectionEngine(QdrantCollections(url, "t")), VectorForm())) as index:
        index.upsert_entries("", KEY, [VectorEntry(IndexEntry("e1", prompt="a fox"), vector)])
    with closing(EngineIndex(CollectionEngine(QdrantCollections(url, "t")), VectorForm())) as index:
        ((hit,),) = index.search_entries("", KEY, [vector], 3)
    assert (hit.entry.prompt, hit.similarity) == ("a fox", 1.0)


def test_a_search_asks_the_server_for_one_partition_and_takes_the_vector_as_it_is() -> None:
    vector = np.array([0.1, 0.7, -0.3], np.float32)
    point = {
        "id": str(uuid.uuid4()),
        "version": 3,
        "score": 0.5,
        "payload": {"entry_id": "e1", "packed": "YWJj"},
        "vector": vector.tolist(),
    }
    with stub((200, [{"points": [point]}])) as server:
        collections = QdrantCollections(server.url, "t")
        where = Filter(partition="ab" * 16, model="cd" * 16)
        ((row,),) = collections.nearest(3, where, vector[None], 10)
        collections.close()
    assert (row.entry_id, row.packed) == ("e1", b"abc")
    assert row.vector.tobytes() == vector.tobytes()
    ((method, path, asked, key),) = server.asked
    assert (method, path, key) == ("POST", "/collections/t_3/points/query/batch", "the-api-key")
    (search,) = asked["searches"]
    assert search["filter"]["must"] == [
        {"key": "partition", "match": {"value": "ab" * 16}},
        {"key": "model", "match": {"value": "cd" * 16}},
    ]
    assert search["limit"] == 10
    assert search["params"]["hnsw_ef"] == 384


def test_a_write_waits_until_the_server_has_applied_it() -> None:
    row = Row("e1", b"abc", np.array([0.6, 0.8], np.float32))
    point = Point("ab" * 16, PartitionName("default", KEY), "cd" * 16, 2**53 - 1, 7, row)
    with stub((200, {"operation_id": 1, "status": "completed"})) as server:
        collections = QdrantCollections(server.url, "t")
        collections.upsert(2, [point])
        collections.close()
    ((method, path, asked, _),) = server.asked
    assert (method, path) == ("PUT", "/collections/t_2/points?wait=true")
    (sent,) = asked["points"]
    assert sent["payload"]["label"] == 2**53 - 1
    assert np.array(sent["vector"], np.float32).tobytes() == row.vector.tobytes()


def test_a_collection_has_a_graph_in_each_partition_and_its_fields_are_indexed() -> None:
    with stub((200, {"operation_id": 1, "status": "completed"})) as server:
        server.first_answers = [(200, True)]
        collections = QdrantCollections(server.url, "t")
        collections.create(3)
        collections.close()
    (_, path, created, _), *rest = server.asked
    assert path == "/collections/t_3"
    assert created["vectors"] == {"size": 3, "distance": "Dot"}
    assert created["hnsw_config"] == {"m": 0, "payload_m": 16, "ef_construct": 200}
    fields = {asked["field_name"]: asked["field_schema"] for _, _, asked, _ in rest}
    assert fields["partition"] == {"type": "keyword", "is_tenant": True}
    assert {"namespace", "entry_id", "model", "label"} < fields.keys()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, FailedPrecondition),
        (403, FailedPrecondition),
        (429, ResourceExhausted),
        (503, Unavailable),
        (504, DeadlineExceeded),
    ],
)
def test_what_the_server_refuses_says_what_to_do(status: int, kind: type[Exception]) -> None:
    with stub((status, None)) as server:
        collections = QdrantCollections(server.url, "t")
        with pytest.raises(kind) as caught:
            collections.dimensions()
        collections.close()
    assert "the-api-key" not in str(caught.value)


def test_a_server_that_is_away_is_unavailable_at_once() -> None:
    collections = QdrantCollections("http://:the-api-key@127.0.0.1:1", "t")
    with pytest.raises(Unavailable) as caught:
        collections.dimensions()
    collections.close()
    assert "the-api-key" not in f"{caught.value} {caught.value.__cause__!r}"


def test_a_url_of_something_else_is_refused_without_being_shown() -> None:
    with pytest.raises(FailedPrecondition) as caught:
        QdrantCollections("qdrant://:the-api-key@host", "t")
    assert "the-api-key" not in str(caught.value)
