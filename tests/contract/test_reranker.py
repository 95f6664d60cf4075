"""The promises of `Reranker`, kept by every reranker and by the client of a remote one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.test_encoder import PICTURE
from tests.servers.remote_models import RemoteModels, serve_remote_models
from tests.unit.embedding.tiny_rerankers import write_tiny_cross_encoder, write_tiny_qwen3_vl

from skipstone_client.embedding import EmbeddingClient
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.cross_encoder import CrossEncoder
from skipstone_embedding.loading import load_reranker
from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_embedding.model_files import find_model
from skipstone_embedding.qwen3_vl import Qwen3VLReranker
from skipstone_embedding.remote_service import RemoteOptions, RemoteService
from skipstone_embedding.reranker import Reranker
from skipstone_embedding.server import mount
from skipstone_embedding.tei_reranker import Scores, TeiReranker, TeiRerankerOptions
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.errors import FailedPrecondition, InvalidArgument
from skipstone_shared.grpc_server import in_process_server


class RemoteReranker:
    """The client as a `Reranker`."""

    def __init__(self, client: EmbeddingClient) -> None:
        self._client = client
        capabilities = client.get_capabilities()
        self.reranker_id = capabilities.reranker_id
        self.max_candidates = capabilities.max_candidates

    def rerank(
        self, query: EmbeddingInput, candidates: list[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        return self._client.rerank(query, candidates, instruction)


def make_bundled(directory: Path, stack: ExitStack) -> Reranker:
    reranker = load_reranker(EmbeddingSettings())
    assert reranker is not None
    return reranker


def make_cross_encoder(directory: Path, stack: ExitStack) -> Reranker:
    return CrossEncoder(find_model(str(write_tiny_cross_encoder(directory, labels=1))))


def make_cross_encoder_of_two_labels(directory: Path, stack: ExitStack) -> Reranker:
    return CrossEncoder(find_model(str(write_tiny_cross_encoder(directory, labels=2))))


def make_qwen3_vl(directory: Path, stack: ExitStack) -> Reranker:
    return Qwen3VLReranker(find_model(str(write_tiny_qwen3_vl(directory))))


def make_remote(directory: Path, stack: ExitStack) -> Reranker:
    mounted = mount(load_minilm(), make_bundled(directory, stack))
    target = stack.enter_context(in_process_server(mounted))
    return RemoteReranker(stack.enter_context(EmbeddingClient(target)))  # type: ignore[return-value]


def make_tei(directory: Path, stack: ExitStack) -> Reranker:
    return make_http(make_cross_encoder(directory, stack), stack, "normalised")


def make_tei_of_logits(directory: Path, stack: ExitStack) -> Reranker:
    return make_http(make_cross_encoder(directory, stack), stack, "logits")


def make_http(served: Reranker, stack: ExitStack, scores: Scores) -> Reranker:
    models = RemoteModels(load_minilm(), served)
    models.info["model_type"] = {"reranker": {"id2label": {"0": "LABEL_0"}}}
    models.ignores_raw_scores = scores == "logits"
    stack.enter_context(serve_remote_models(models))
    service = RemoteService(RemoteOptions(url=models.url, timeout_s=30.0))
    stack.callback(service.close)
    return TeiReranker(service, TeiRerankerOptions(scores=scores))


MAKERS = [
    make_bundled,
    make_cross_encoder,
    make_cross_encoder_of_two_labels,
    make_qwen3_vl,
    make_remote,
    make_tei,
    make_tei_of_logits,
]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def reranker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reranker]:
    make: Callable[[Path, ExitStack], Reranker] = request.param
    with ExitStack() as stack:
        yield make(tmp_path_factory.mktemp("reranker"), stack)


def texts(*values: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text=value) for value in values]


QUERY = EmbeddingInput(text="a red fox in snow")


def test_there_is_one_score_of_0_to_1_per_candidate(reranker: Reranker) -> None:
    scores = reranker.rerank(QUERY, texts("a red fox", "a blue fox in snow", "snow"))
    assert len(scores) == 3
    assert all(0.0 <= score <= 1.0 for score in scores)


def test_a_score_does_not_depend_on_the_other_candidates(reranker: Reranker) -> None:
    candidates = ["a red fox", "a blue fox in snow in snow in snow", "snow", "a red fox in snow"]
    together = reranker.rerank(QUERY, texts(*candidates))
    alone = [reranker.rerank(QUERY, texts(candidate))[0] for candidate in candidates]
    assert together == pytest.approx(alone, abs=1e-5)


def test_equal_calls_give_equal_scores_from_many_threads(reranker: Reranker) -> None:
    candidates = texts("a red fox", "a blue fox in snow", "a fox")
    expected = reranker.rerank(QUERY, candidates)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: reranker.rerank(QUERY, candidates), range(12)))
    assert all(scores == pytest.approx(expected, abs=1e-6) for scores in found)


def test_as_many_candidates_as_are_told_may_be_sent(reranker: Reranker) -> None:
    assert reranker.max_candidates >= 100, "the orchestrator may ask about 100"
    candidates = [f"a fox {number}" for number in range(reranker.max_candidates)]
    assert len(reranker.rerank(QUERY, texts(*candidates))) == len(candidates)


@pytest.mark.parametrize("bad", [EmbeddingInput(text=" "), EmbeddingInput(frames=(PICTURE,))])
def test_what_is_no_text_is_refused(reranker: Reranker, bad: EmbeddingInput) -> None:
    with pytest.raises(InvalidArgument):
        reranker.rerank(bad, texts("a fox"))
    with pytest.raises(InvalidArgument):
        reranker.rerank(QUERY, [*texts("a fox"), bad])


def test_a_reranker_has_a_name(reranker: Reranker) -> None:
    assert reranker.reranker_id


def test_a_service_without_a_reranker_says_so() -> None:
    with in_process_server(mount(load_minilm())) as target, EmbeddingClient(target) as client:
        assert client.get_capabilities().reranker_id == ""
        with pytest.raises(FailedPrecondition, match="no reranker"):
            client.rerank(QUERY, texts("a fox"))
