"""A remote service that hangs or gets another model: nobody waits for a question of another call.

Everything here runs over a real HTTP server whose requests are held by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests.contract.test_remote_encoder import Clock, join_questions, tiny
from tests.contract.test_tei_reranker import SharedWords
from tests.servers.remote_models import Answer, RemoteModels, as_json, serve_remote_models

from skipstone_client.embedding import EmbeddingClient
from skipstone_embedding.encoder import Encoder
from skipstone_embedding.remote_apis import TeiApi
from skipstone_embedding.remote_encoder import RemoteEncoder
from skipstone_embedding.remote_probe import PROBES
from skipstone_embedding.remote_service import RemoteOptions, RemoteService
from skipstone_embedding.remote_watch import CHECK_INTERVAL_S
from skipstone_embedding.reranker import Reranker
from skipstone_embedding.server import mount
from skipstone_embedding.tei_reranker import TeiReranker
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import DeadlineExceeded, SkipstoneError, Unavailable
from skipstone_shared.grpc_server import InProcessSettings, in_process_server
from skipstone_shared.request_context import request_scope

LONG_S = 60.0
FOX = EmbeddingInput(text="a red fox")

Chooses = Callable[[str, Any], bool]
"""Tells requests apart by path and body."""


class Hold:
    """A fault of the server: it holds some requests until they are let go, then answers them."""

    def __init__(self, chooses: Chooses) -> None:
        self._chooses = chooses
        self._held = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, path: str, body: Any) -> Answer | None:
        if self._chooses(path, body):
            self._held.release()
            self.go.wait(LONG_S)
        return None

    def wait(self, count: int = 1) -> None:
        """Until so many more are held."""
        assert all(self._held.acquire(timeout=LONG_S) for _ in range(count))


class Watched:
    """A remote encoder or reranker, and the server it asks."""

    def __init__(self, kind: str, models: RemoteModels, others: tuple[Encoder, Reranker]) -> None:
        self.kind = kind
        self.models = models
        self.clock = Clock()
        self._others = others
        if kind == "reranker":
            models.info["model_type"] = {"reranker": {}}
        self.service = RemoteService(RemoteOptions(models.url, timeout_s=LONG_S, attempts=1))
        self.encoder, self.reranker = models.encoder, models.reranker
        if kind == "reranker":
            self.reranker = TeiReranker(self.service, clock=self.clock)
        else:
            self.encoder = RemoteEncoder(self.service, TeiApi(), clock=self.clock)

    def call(self, item: EmbeddingInput = FOX) -> object:
        """Asks for one vector or score."""
        if self.kind == "encoder":
            (found,) = self.encoder.encode([item])
            assert isinstance(found, Embedding)
            return found
        assert self.reranker is not None
        return self.reranker.rerank(item, [item])

    def ask(self, client: EmbeddingClient) -> object:
        """The same through the service."""
        if self.kind == "encoder":
            return client.embed_text(FOX.text, timeout_s=LONG_S)
        return client.rerank(FOX, [FOX], timeout_s=LONG_S)

    def ask_other(self, client: EmbeddingClient) -> object:
        """What the model in the process gives."""
        if self.kind == "reranker":
            return client.embed_text(FOX.text, timeout_s=LONG_S)
        return client.rerank(FOX, [FOX], timeout_s=LONG_S)

    def model_id(self) -> str:
        if self.kind == "encoder":
            return self.encoder.get_capabilities().model_id
        assert self.reranker is not None
        return self.reranker.reranker_id

    def check(self, path: str, body: Any) -> bool:
        """Whether a request asks if the model is still there."""
        if self.kind == "encoder":
            return path == "/embed" and body["inputs"] == list(PROBES)
        return path == "/info"

    def look(self, path: str, body: Any) -> bool:
        """Whether a request asks which model is there now."""
        if self.kind == "encoder":
            return path == "/info"
        return path == "/rerank" and bool(body["raw_scores"])

    def wanted(self, path: str, body: Any) -> bool:
        """Whether a request is of a caller and no question of ours."""
        return path in ("/embed", "/rerank") and FOX.text in (body.get("inputs") or body["texts"])

    def change_model(self) -> None:
        self.models.encoder, self.models.reranker = self._others
        self.models.info["model_sha"] = "fedcba9876543210"


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> list[Encoder]:
    directory = tmp_path_factory.mktemp("models")
    return [tiny(directory, seed) for seed in (0, 1)]


@pytest.fixture(params=["encoder", "reranker"])
def watched(request: pytest.FixtureRequest, encoders: list[Encoder]) -> Iterator[Watched]:
    with ExitStack() as stack:
        models = RemoteModels(encoders[0], SharedWords())
        stack.enter_context(serve_remote_models(models))
        rig = Watched(request.param, models, (encoders[1], SharedWords(0.1)))
        stack.callback(rig.service.close)
        yield rig


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@contextmanager
def held(watched: Watched, chooses: Chooses) -> Iterator[Hold]:
    """A block in which the server holds the chosen requests."""
    hold = Hold(chooses)
    watched.models.fault = hold
    try:
        yield hold
    finally:
        watched.models.fault = lambda path, body: None
        hold.go.set()


def test_while_one_call_asks_for_the_model_the_others_go_on(
    watched: Watched, threads: ThreadPoolExecutor
) -> None:
    watched.clock.now += CHECK_INTERVAL_S
    with held(watched, watched.check) as hold:
        asking = threads.submit(watched.call)
        hold.wait()
        seen = len(watched.models.requests)
        watched.call()
        assert not asking.done()
        new = watched.models.requests[seen:]
        assert not any(watched.check(path, body) for path, body in new), "one asks at a time"
    asking.result(LONG_S)


def test_while_another_model_is_looked_at_nobody_waits_and_nothing_has_a_wrong_id(
    watched: Watched, threads: ThreadPoolExecutor
) -> None:
    before = watched.model_id()
    watched.change_model()
    watched.clock.now += CHECK_INTERVAL_S
    with held(watched, watched.look) as hold:
        looking = threads.submit(watched.call)
        hold.wait()
        with pytest.raises(Unavailable, match="another model"):
            watched.call()
        assert not looking.done()
    with pytest.raises(Unavailable, match="another model"):
        looking.result(LONG_S)
    watched.call()
    assert watched.model_id() != before


def test_a_call_under_way_when_another_model_is_found_fails(
    watched: Watched, threads: ThreadPoolExecutor
) -> None:
    """Which of both gave its answer, nobody knows."""
    with held(watched, watched.wanted) as hold:
        under_way = threads.submit(watched.call)
        hold.wait()
        watched.change_model()
        watched.clock.now += CHECK_INTERVAL_S
        with pytest.raises(Unavailable):
            watched.call(EmbeddingInput(text="snow"))
        assert not under_way.done()
    with pytest.raises(Unavailable, match="another model"):
        under_way.result(LONG_S)


def test_a_call_ends_at_its_own_deadline_but_what_it_asked_goes_on(watched: Watched) -> None:
    """Else a service that takes longer than its callers wait would never be known again."""
    before = watched.model_id()
    watched.change_model()
    watched.clock.now += CHECK_INTERVAL_S
    with held(watched, watched.look), request_scope(timeout_s=0.2):
        with pytest.raises(DeadlineExceeded):
            watched.call()
    join_questions()
    assert watched.model_id() != before
    watched.call()


def test_a_model_that_cannot_be_told_for_long_is_not_trusted(
    watched: Watched, threads: ThreadPoolExecutor
) -> None:
    """Its answers would be right only if nothing had changed since."""
    watched.clock.now += CHECK_INTERVAL_S
    watched.models.fault = lambda path, body: (
        as_json({}, 503) if watched.check(path, body) else None
    )
    with pytest.raises(Unavailable, match="answered 503"):
        watched.call()
    with held(watched, watched.check) as hold:
        asking = threads.submit(watched.call)
        hold.wait()
        watched.call()
        watched.clock.now += CHECK_INTERVAL_S
        with pytest.raises(Unavailable, match="another model"):
            watched.call()
    asking.result(LONG_S)
    watched.call()


def test_a_remote_model_that_hangs_takes_no_thread_of_the_other_one(
    watched: Watched, threads: ThreadPoolExecutor
) -> None:
    mounted = mount(watched.encoder, watched.reranker, max_workers=2)
    with (
        in_process_server(mounted, InProcessSettings(max_workers=2)) as target,
        EmbeddingClient(target) as client,
    ):
        with held(watched, watched.wanted) as hold:
            hanging: list[Future[object]] = [threads.submit(watched.ask, client) for _ in range(5)]
            hold.wait(2)
            assert watched.ask_other(client)
            assert client.get_capabilities().reranker_id
            assert not any(call.done() for call in hanging)
        assert all(call.result(LONG_S) for call in hanging)


class Switching:
    """An encoder and reranker that becomes another one with every call."""

    max_candidates = 8

    def __init__(self) -> None:
        self.reranker_id = "0"

    def _switch(self) -> None:
        self.reranker_id = str(int(self.reranker_id) + 1)

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        self._switch()
        return [Unavailable("none") for _ in inputs]

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        self._switch()
        return [0.5] * len(candidates)

    def get_capabilities(self) -> EmbeddingCapabilities:
        return EmbeddingCapabilities(self.reranker_id, dimension=2)


def test_what_is_given_while_the_model_changes_gets_the_id_of_neither() -> None:
    """Vectors and scores of different ids must never be compared."""
    model = Switching()
    with in_process_server(mount(model, model)) as target, EmbeddingClient(target) as client:
        with pytest.raises(Unavailable, match="changed meanwhile"):
            client.embed([FOX])
        with pytest.raises(Unavailable, match="changed meanwhile"):
            client.rerank(FOX, [FOX])
