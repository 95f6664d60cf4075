"""Whatever a remote reranker does, no score is made up: a call fails or its scores are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from tests.contract.test_remote_encoder import Clock
from tests.servers.remote_models import RemoteModels, as_json, serve_remote_models

from skipstone_client.embedding import EmbeddingClient
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.encoder import Encoder
from skipstone_embedding.loading import load_reranker
from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_embedding.remote_service import RemoteOptions, RemoteService
from skipstone_embedding.remote_watch import CHECK_INTERVAL_S
from skipstone_embedding.server import mount
from skipstone_embedding.tei_reranker import TeiReranker, TeiRerankerOptions
from skipstone_shared.config import ConfigError, resolve_settings
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    Unavailable,
)
from skipstone_shared.grpc_server import in_process_server

QUERY = EmbeddingInput(text="a red fox")


class SharedWords:
    """A real reranker that needs no weights: the share of words that both texts have."""

    reranker_id = "words"
    max_candidates = 128

    def __init__(self, bonus: float = 0.0) -> None:
        self._bonus = bonus

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        return [self._score(query.text, candidate.text) for candidate in candidates]

    def _score(self, left: str, right: str) -> float:
        a, b = set(left.split()), set(right.split())
        return min(1.0, self._bonus + len(a & b) / len(a | b))


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return load_minilm()


@pytest.fixture
def models(minilm: Encoder) -> Iterator[RemoteModels]:
    models = RemoteModels(minilm, SharedWords())
    models.info["model_type"] = {"reranker": {"id2label": {"0": "LABEL_0"}}}
    with serve_remote_models(models):
        yield models


@pytest.fixture
def connect(models: RemoteModels) -> Iterator[Callable[..., TeiReranker]]:
    with ExitStack() as stack:

        def start(
            clock: Clock | None = None, timeout_s: float = 30.0, **options: object
        ) -> TeiReranker:
            service = RemoteService(RemoteOptions(models.url, timeout_s=timeout_s, attempts=1))
            stack.callback(service.close)
            return TeiReranker(service, TeiRerankerOptions(**options), clock or Clock())  # type: ignore[arg-type]

        yield start


def texts(*words: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text=word) for word in words]


def test_scores_come_in_the_order_of_the_candidates(connect: Callable[..., TeiReranker]) -> None:
    """The service answers the best first."""
    scores = connect().rerank(QUERY, texts("snow", "a red fox", "a fox"))
    assert scores == pytest.approx([0.0, 1.0, 2 / 3], abs=1e-6)


def test_candidates_are_asked_about_in_requests_that_the_service_takes(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    models.max_batch = models.info["max_client_batch_size"] = 10
    reranker = connect()
    before = models.count("/rerank")
    assert len(reranker.rerank(QUERY, texts(*["a fox"] * 100))) == 100
    assert models.count("/rerank") == before + 10


def test_a_pair_that_is_too_long_scores_0_and_the_others_do_not(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    reranker = connect()
    models.max_words = 6
    scores = reranker.rerank(QUERY, texts("a red fox", "a red fox " * 3, "a fox"))
    assert scores == pytest.approx([1.0, 0.0, 2 / 3], abs=1e-6)


def test_raw_scores_are_taken_only_when_they_are_declared(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    models.ignores_raw_scores = True
    with pytest.raises(FailedPrecondition, match="reranker_scores to logits"):
        connect()
    reranker = connect(scores="logits")
    assert reranker.rerank(QUERY, texts("a fox")) == pytest.approx([2 / 3])
    assert "/logits/" in reranker.reranker_id


def test_scores_that_are_normalised_whatever_is_asked_for_are_refused(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    """What their scale is cannot be known."""
    models.fault = lambda path, body: (
        as_json([{"index": i, "score": 0.5} for i in range(3)]) if path == "/rerank" else None
    )
    with pytest.raises(FailedPrecondition, match="not the sigmoid"):
        connect()


@pytest.mark.parametrize(
    "ranks",
    [
        [{"index": 0, "score": 1.5}, {"index": 1, "score": 0.5}],
        [{"index": 0, "score": -0.1}, {"index": 1, "score": 0.5}],
        [{"index": 0, "score": float("nan")}, {"index": 1, "score": 0.5}],
        [{"index": 0, "score": None}, {"index": 1, "score": 0.5}],
        [{"index": 0, "score": "1"}, {"index": 1, "score": 0.5}],
        [{"index": 0, "score": True}, {"index": 1, "score": 0.5}],
        [{"index": 0, "score": 0.5}],
        [{"index": 0, "score": 0.5}, {"index": 0, "score": 0.5}],
        [{"index": 0, "score": 0.5}, {"index": 2, "score": 0.5}],
        [{"index": 0}, {"index": 1, "score": 0.5}],
        [0.5, 0.5],
        {"results": [{"index": 0, "relevance_score": 0.5}]},
        None,
    ],
)
def test_an_answer_that_is_none_gives_no_score(
    models: RemoteModels, connect: Callable[..., TeiReranker], ranks: object
) -> None:
    reranker = connect()
    models.fault = lambda path, body: as_json(ranks)
    with pytest.raises(Internal):
        reranker.rerank(QUERY, texts("a fox", "snow"))


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_a_reranker_that_fails_gives_no_score_to_anybody(
    models: RemoteModels, connect: Callable[..., TeiReranker], status: int
) -> None:
    """One request of several fails: the scores of the others are of no use."""
    reranker = connect(batch_size=1)
    models.fault = lambda path, body: (
        as_json({"error": "no"}, status) if body and body["texts"] == ["snow"] else None
    )
    with (
        in_process_server(mount(models.encoder, reranker)) as target,
        EmbeddingClient(target) as client,
        pytest.raises((FailedPrecondition, Unavailable)),
    ):
        client.rerank(QUERY, texts("a red fox", "snow", "a fox"))


def test_a_slow_reranker_is_left_at_the_deadline(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    reranker = connect(timeout_s=0.3)
    models.drips = True
    with pytest.raises(DeadlineExceeded):
        reranker.rerank(QUERY, texts(*["a fox"] * 30))


def test_another_model_has_another_id_and_the_call_that_notices_fails(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    clock = Clock()
    reranker = connect(clock)
    before = reranker.reranker_id
    models.info["model_sha"] = "fedcba9876543210"
    clock.now += CHECK_INTERVAL_S
    with pytest.raises(Unavailable, match="another model"):
        reranker.rerank(QUERY, texts("a fox"))
    assert reranker.reranker_id != before
    assert len(reranker.rerank(QUERY, texts("a fox"))) == 1


def test_the_same_model_that_tells_of_another_limit_keeps_its_id(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    """It was started anew: only the size of requests changes."""
    clock = Clock()
    reranker = connect(clock)
    before = reranker.reranker_id
    models.max_batch = models.info["max_client_batch_size"] = 3
    clock.now += CHECK_INTERVAL_S
    with pytest.raises(Unavailable):
        reranker.rerank(QUERY, texts("a fox"))
    asked = models.count("/rerank")
    assert len(reranker.rerank(QUERY, texts(*["a fox"] * 6))) == 6
    assert models.count("/rerank") == asked + 2
    assert reranker.reranker_id == before


def test_scores_that_change_under_one_id_are_refused(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    models.info["model_sha"] = None
    clock = Clock()
    reranker = connect(clock)
    models.reranker = SharedWords(bonus=0.3)
    clock.now += CHECK_INTERVAL_S
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="reranker_revision"):
            reranker.rerank(QUERY, texts("a fox"))


def test_a_service_without_info_needs_a_name(
    models: RemoteModels, connect: Callable[..., TeiReranker]
) -> None:
    models.fault = lambda path, body: as_json({}, 404) if path == "/info" else None
    with pytest.raises(FailedPrecondition):
        connect()
    assert connect(model="my-reranker").reranker_id.startswith("my-reranker/")


@pytest.mark.parametrize(
    ("info", "options"),
    [
        ({"model_type": {"embedding": {"pooling": "cls"}}}, {}),
        ({"model_id": None}, {}),
        ({}, {"model": "another/name"}),
    ],
)
def test_a_service_with_another_model_than_wanted_ends_the_start(
    models: RemoteModels,
    connect: Callable[..., TeiReranker],
    info: dict[str, object],
    options: dict[str, object],
) -> None:
    models.info |= info
    with pytest.raises(FailedPrecondition):
        connect(**options)


def test_the_settings_choose_it(models: RemoteModels) -> None:
    argv = ["--reranker-engine", "tei", "--reranker-url", models.url]
    with ExitStack() as stack:
        settings, _ = resolve_settings(EmbeddingSettings, argv, {})
        reranker = load_reranker(settings, stack.callback)
        assert reranker is not None
        assert reranker.reranker_id == "tests/tiny@0123456789ab/normalised/float32"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--engine", "tei"), "url and one of the engines"),
        (("--url", "http://host:80"), "url and one of the engines"),
        (("--engine", "openai", "--url", "http://host/v1"), "needs model"),
        (("--engine", "tei", "--url", "http://name:secret@host:80"), "url must be"),
        (("--engine", "tei", "--url", "ftp://host"), "url must be"),
        (("--reranker-engine", "tei"), "reranker_url"),
        (("--reranker-url", "http://host:80"), "reranker_engine"),
        (("--api-key", "sk-1"), "did you mean --api-key-file"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve_settings(EmbeddingSettings, argv, {})
    assert ":secret" not in str(caught.value)
