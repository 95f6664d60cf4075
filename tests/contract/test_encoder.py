"""The promises of `Encoder`, kept by every encoder and by the client of a remote one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.servers.remote_models import RemoteModels, serve_remote_models
from tests.unit.embedding.conftest import write_tiny_model
from tests.unit.embedding.tiny_rerankers import write_tiny_qwen3_vl
from tests.unit.embedding.tiny_vision import picture, write_tiny_clip, write_tiny_siglip

from skipstone.embedding.v1 import embedding_pb2 as pb
from skipstone.embedding.v1 import embedding_pb2_grpc
from skipstone_client.embedding import EmbeddingClient
from skipstone_embedding.batching import BatchingEncoder
from skipstone_embedding.contrastive_encoder import ContrastiveEncoder
from skipstone_embedding.encoder import Encoder
from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_embedding.model_files import find_model
from skipstone_embedding.qwen3_vl_encoder import Qwen3VLEncoder
from skipstone_embedding.remote_apis import EmbeddingApi, OpenAIApi, TeiApi
from skipstone_embedding.remote_encoder import RemoteEncoder
from skipstone_embedding.remote_service import RemoteOptions, RemoteService
from skipstone_embedding.server import mount
from skipstone_embedding.transformers_encoder import EncoderOptions, TransformersEncoder
from skipstone_shared.embeddings import (
    Embedding,
    EmbeddingCapabilities,
    EmbeddingInput,
    EncodedImage,
)
from skipstone_shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    QueueFull,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.grpc_server import in_process_server

TIMEOUT_S = 30.0
PICTURE = EncodedImage("image/png", b"\x89PNG")


class EncoderOfClient:
    """The client as an `Encoder`."""

    def __init__(self, client: EmbeddingClient) -> None:
        self._client = client

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        return self._client.embed(inputs, instruction)

    def get_capabilities(self) -> EmbeddingCapabilities:
        return self._client.get_capabilities()


def make_minilm(directory: Path, stack: ExitStack) -> Encoder:
    return load_minilm()


def make_tiny(directory: Path, stack: ExitStack) -> Encoder:
    options = EncoderOptions(pooling="last")
    return TransformersEncoder(find_model(str(write_tiny_model(directory))), options)


def make_batching(directory: Path, stack: ExitStack) -> Encoder:
    encoder = BatchingEncoder(
        make_tiny(directory, stack), max_batch_size=16, max_wait_s=0.001, max_queue_size=256
    )
    stack.callback(encoder.close)
    return encoder


def make_client(directory: Path, stack: ExitStack) -> Encoder:
    target = stack.enter_context(in_process_server(mount(make_batching(directory, stack))))
    return EncoderOfClient(stack.enter_context(EmbeddingClient(target)))


def make_openai(directory: Path, stack: ExitStack) -> Encoder:
    return make_http(make_tiny(directory, stack), "/v1", OpenAIApi("tiny"), stack)


def make_tei(directory: Path, stack: ExitStack) -> Encoder:
    return make_http(make_tiny(directory, stack), "", TeiApi(), stack)


def make_clip(directory: Path, stack: ExitStack) -> Encoder:
    return ContrastiveEncoder(find_model(str(write_tiny_clip(directory))))


def make_siglip(directory: Path, stack: ExitStack) -> Encoder:
    return ContrastiveEncoder(find_model(str(write_tiny_siglip(directory))))


def make_qwen3_vl(directory: Path, stack: ExitStack) -> Encoder:
    options = EncoderOptions(max_tokens=512, max_image_pixels=1 << 12)
    return Qwen3VLEncoder(find_model(str(write_tiny_qwen3_vl(directory))), options)


def make_http(served: Encoder, path: str, api: EmbeddingApi, stack: ExitStack) -> Encoder:
    models = stack.enter_context(serve_remote_models(RemoteModels(served)))
    service = RemoteService(RemoteOptions(url=models.url + path, timeout_s=TIMEOUT_S))
    stack.callback(service.close)
    return RemoteEncoder(service, api)


IMPLEMENTATIONS: list[Callable[[Path, ExitStack], Encoder]] = [
    make_minilm,
    make_tiny,
    make_batching,
    make_client,
    make_openai,
    make_tei,
    make_clip,
    make_siglip,
    make_qwen3_vl,
]


@pytest.fixture(
    scope="module", params=IMPLEMENTATIONS, ids=lambda make: make.__name__.removeprefix("make_")
)
def encoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Encoder]:
    with ExitStack() as stack:
        yield request.param(tmp_path_factory.mktemp("model"), stack)


def texts(*words: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text=word) for word in words]


def embed(encoder: Encoder, *words: str) -> list[Embedding]:
    results = encoder.encode(texts(*words))
    assert all(isinstance(result, Embedding) for result in results)
    return results  # type: ignore[return-value]


def test_vectors_are_float32_finite_and_of_norm_1(encoder: Encoder) -> None:
    dimension = encoder.get_capabilities().dimension
    for result in embed(encoder, "a red fox", "fox", "blue " * 300):
        assert result.vector.dtype == np.float32
        assert result.vector.shape == (dimension,)
        assert np.isfinite(result.vector).all()
        assert abs(float(np.linalg.norm(result.vector)) - 1) < 1e-5


def test_results_come_in_the_order_of_the_inputs(encoder: Encoder) -> None:
    words = ["snow", "a red fox in snow", "fox", "a blue fox"]
    alone = [embed(encoder, word)[0].vector for word in words]
    together = [result.vector for result in embed(encoder, *words)]
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_vector_does_not_depend_on_its_neighbours(encoder: Encoder) -> None:
    (alone,) = embed(encoder, "a red fox")
    for neighbours in (["fox"] * 9, ["snow " * 200], ["a red fox"] * 3):
        first, *_, last = embed(encoder, "a red fox", *neighbours, "a red fox")
        np.testing.assert_allclose(first.vector, alone.vector, atol=1e-5)
        np.testing.assert_allclose(last.vector, alone.vector, atol=1e-5)


def test_different_texts_have_different_vectors(encoder: Encoder) -> None:
    red, blue = embed(encoder, "a red fox", "a blue fox")
    assert float(red.vector @ blue.vector) < 0.9999


def test_tokens_are_counted_and_a_cut_is_told(encoder: Encoder) -> None:
    short, long = embed(encoder, "a red fox", "fox " * 1000)
    if short.num_tokens == 0:
        # Neither HTTP API counts the tokens of a text; a server that cuts unasked does not tell.
        assert isinstance(encoder, RemoteEncoder)
        return
    around = short.num_tokens - 3  # what stands around the words, a chat for some models
    assert around >= 0
    (shorter,) = embed(encoder, "fox")
    assert (shorter.num_tokens, shorter.truncated) == (around + 1, False)
    assert (long.num_tokens, long.truncated) == (encoder.get_capabilities().max_tokens, True)


@pytest.mark.parametrize(
    "bad",
    [
        EmbeddingInput(text=""),
        EmbeddingInput(text=" \t\n\u3000"),
        EmbeddingInput(text="é" * 10_001),
        EmbeddingInput(frames=(PICTURE,)),
        EmbeddingInput(frames=(PICTURE, PICTURE)),
    ],
    ids=["empty", "white", "long", "image", "frames"],
)
def test_a_bad_input_is_refused_and_does_not_fail_its_neighbours(
    encoder: Encoder, bad: EmbeddingInput
) -> None:
    first, error, last = encoder.encode([*texts("fox"), bad, *texts("snow")])
    assert isinstance(first, Embedding)
    assert isinstance(last, Embedding)
    assert isinstance(error, InvalidArgument)
    assert error.allowed
    if bad.kind == "text":
        assert error.field == "text"
    elif bad.kind in encoder.get_capabilities().input_kinds:
        assert error.field in ("image.data", "frames.frames[0].data")
    else:
        assert (error.field, error.allowed) == ("content", "text")


def test_concurrent_callers_get_their_own_vectors(encoder: Encoder) -> None:
    words = ["a", "red", "blue", "fox", "in", "snow", "a fox", "a red fox"]
    alone = [embed(encoder, word)[0].vector for word in words]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            found = list(pool.map(lambda word: embed(encoder, word)[0].vector, words))
            np.testing.assert_allclose(found, alone, atol=1e-5)


def test_capabilities_name_the_model_and_the_limits(encoder: Encoder) -> None:
    capabilities = encoder.get_capabilities()
    assert re.fullmatch(r"[^/]+(/[^/]+)?/[0-9a-f]{8,16}/(float32|remote)", capabilities.model_id)
    assert capabilities.input_kinds in (("text",), ("text", "image", "frames"))
    assert capabilities.max_batch_size >= 16
    assert capabilities.max_tokens >= 0
    assert (capabilities.reranker_id, capabilities.max_candidates) == ("", 0)


def pictures(*seeds: int) -> EmbeddingInput:
    return EmbeddingInput(frames=tuple(picture(seed) for seed in seeds))


def test_pictures_and_clips_have_vectors_in_the_space_of_texts(encoder: Encoder) -> None:
    """A prompt finds frames; what stands beside an input in a call changes nothing."""
    if "image" not in encoder.get_capabilities().input_kinds:
        (error,) = encoder.encode([pictures(0)])
        assert isinstance(error, InvalidArgument)
        return
    inputs = [*texts("a red fox"), pictures(0), pictures(0, 1, 2), pictures(3), *texts("snow")]
    together = encoder.encode(inputs)
    for item, found in zip(inputs, together, strict=True):
        (alone,) = encoder.encode([item])
        assert isinstance(found, Embedding)
        assert isinstance(alone, Embedding)
        assert found.vector.shape == (encoder.get_capabilities().dimension,)
        assert abs(float(np.linalg.norm(found.vector)) - 1) < 1e-5
        np.testing.assert_allclose(found.vector, alone.vector, atol=1e-5)
    vectors = [found.vector for found in together if isinstance(found, Embedding)]
    cosines = np.stack(vectors) @ np.stack(vectors).T
    assert cosines[np.triu_indices(len(vectors), 1)].max() < 0.9999, "all differ"


class WordReranker:
    """A real reranker that needs no model: the share of the query's words in a candidate."""

    reranker_id = "words/1"
    max_candidates = 3

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        if not query.text.strip():
            raise InvalidArgument("the query is empty", field="query", allowed="a text")
        words = set(query.text.split())
        return [len(words & set(c.text.split())) / len(words) for c in candidates]


class Refusing:
    """An encoder whose every call fails as a whole."""

    def __init__(self, error: SkipstoneError) -> None:
        self._error = error

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        raise self._error

    def get_capabilities(self) -> EmbeddingCapabilities:
        return EmbeddingCapabilities("none/float32", 1)


class Moving:
    """An encoder whose model becomes another one during every call."""

    def __init__(self) -> None:
        self._calls = 0

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        self._calls += 1
        return [Embedding(np.ones(1, np.float32)) for _ in inputs]

    def get_capabilities(self) -> EmbeddingCapabilities:
        return EmbeddingCapabilities(f"model-{self._calls}/float32", 1)


def test_no_vector_is_answered_under_the_id_of_another_model(
    connect: Callable[..., EmbeddingClient],
) -> None:
    """A remote model may change while its vectors are under way."""
    with pytest.raises(Unavailable, match="model has changed"):
        connect(Moving()).embed(texts("fox"), timeout_s=TIMEOUT_S)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., EmbeddingClient]]:
    """Serves an encoder and maybe a reranker, and returns a client of it."""
    with ExitStack() as stack:

        def start(encoder: Encoder | None = None, **options: object) -> EmbeddingClient:
            mounted = mount(encoder or make_tiny(tmp_path, stack), **options)  # type: ignore[arg-type]
            target = stack.enter_context(in_process_server(mounted))
            return stack.enter_context(EmbeddingClient(target, timeout_s=TIMEOUT_S))

        yield start


def test_rerank_without_a_reranker_is_refused(connect: Callable[..., EmbeddingClient]) -> None:
    client = connect()
    with pytest.raises(FailedPrecondition, match="no reranker is configured"):
        client.rerank(texts("fox")[0], texts("a fox"))


def test_rerank_gives_the_scores_of_the_reranker(connect: Callable[..., EmbeddingClient]) -> None:
    client = connect(reranker=WordReranker())
    capabilities = client.get_capabilities()
    assert (capabilities.reranker_id, capabilities.max_candidates) == ("words/1", 3)
    query = texts("red fox")[0]
    assert client.rerank(query, texts("a fox", "a red fox", "snow")) == [0.5, 1.0, 0.0]
    for bad in (
        lambda: client.rerank(query, []),
        lambda: client.rerank(query, texts("a", "b", "c", "d")),
        lambda: client.rerank(texts(" ")[0], texts("a")),
    ):
        with pytest.raises(InvalidArgument):
            bad()


def test_calls_without_inputs_with_too_many_or_a_bad_namespace_are_refused(
    connect: Callable[..., EmbeddingClient],
) -> None:
    client = connect()
    limit = client.get_capabilities().max_batch_size
    assert len(client.embed(texts(*["fox"] * limit))) == limit
    for bad in (
        lambda: client.embed([]),
        lambda: client.embed(texts(*["fox"] * (limit + 1))),
        lambda: client.embed(texts("fox"), namespace="no/name"),
    ):
        with pytest.raises(InvalidArgument):
            bad()


def test_a_message_without_content_is_an_error_of_its_item(
    connect: Callable[..., EmbeddingClient],
) -> None:
    """The client cannot send one; another language's can."""
    with grpc.insecure_channel(connect().target) as channel:
        request = pb.EmbedRequest(inputs=[pb.EmbeddingInput(text="fox"), pb.EmbeddingInput()])
        answer = embedding_pb2_grpc.EmbeddingStub(channel).Embed(request, timeout=TIMEOUT_S)
    assert [result.status.code for result in answer.results] == [0, 3]
    assert answer.results[0].vector.dimension == 16
    assert not answer.results[1].HasField("vector")
    assert answer.model_id.startswith("tiny/")


@pytest.mark.parametrize("error", [QueueFull("full"), DeadlineExceeded("late")], ids=repr)
def test_a_call_that_fails_as_a_whole_raises_the_same_error_at_the_client(
    connect: Callable[..., EmbeddingClient], error: SkipstoneError
) -> None:
    client = connect(Refusing(error))
    with pytest.raises(type(error), match=error.message):
        client.embed(texts("fox"))


def test_a_vector_says_which_model_it_is_of(connect: Callable[..., EmbeddingClient]) -> None:
    client = connect()
    model_id = client.get_capabilities().model_id
    assert client.embed_text("fox").model_id == model_id
    assert math.isclose(float(np.linalg.norm(client.embed_text("fox").vector)), 1, abs_tol=1e-5)
