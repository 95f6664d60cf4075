"""The service behind real servers of the APIs it speaks: infinity and llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from tests.servers.real_remotes import KEY, as_gguf, infinity, llama_server
from transformers import AutoTokenizer, BertForSequenceClassification

from skipstone_client.embedding import EmbeddingClient
from skipstone_embedding.__main__ import build
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_embedding.model_files import find_minilm
from skipstone_shared.config import resolve_settings
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.errors import FailedPrecondition
from skipstone_shared.grpc_server import in_process_server

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

PROMPTS = [
    "a large green ring in the center, teal background",
    "Ein roter Fuchs im Schnee, naïve painting, 4k 🦊",
    *(f"picture {number} of a lighthouse {'at night ' * (number % 7)}" for number in range(40)),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(stack: ExitStack, *argv: str, **keys: str) -> EmbeddingClient:
    """A client of a whole embedding service with these settings."""
    environ = {f"SKIPSTONE_EMBEDDING_{name.upper()}": key for name, key in keys.items()}
    mounted = build(resolve_settings(EmbeddingSettings, argv, environ)[0])
    for callback in reversed(mounted.on_stop):
        stack.callback(callback)
    target = stack.enter_context(in_process_server(mounted))
    return stack.enter_context(EmbeddingClient(target, timeout_s=60.0))


@pytest.mark.parametrize("server", ["infinity", "llama.cpp"])
def test_vectors_of_a_real_openai_endpoint_are_those_of_its_model(
    stack: ExitStack, tmp_path: Path, server: str
) -> None:
    """MiniLM there and here: texts, order, batches and scale all arrive."""
    model = find_minilm().directory
    if server == "infinity":
        url = stack.enter_context(infinity(model, "minilm-there", tmp_path / "log"))
    else:
        options = ["--embedding", "--pooling", "mean", "--alias", "minilm-there"]
        gguf = as_gguf(model, tmp_path / "minilm.gguf")
        url = stack.enter_context(llama_server(gguf, options, tmp_path / "log")) + "/v1"
    argv = ["--engine", "openai", "--url", url, "--model", "minilm-there"]
    argv += ["--remote-timeout-s", "30", "--remote-batch-size", "8"]
    client = serve(stack, *argv, api_key=KEY)
    capabilities = client.get_capabilities()
    assert capabilities.model_id.startswith("minilm-there/")
    assert capabilities.dimension == 384
    inputs = [EmbeddingInput(text=prompt) for prompt in PROMPTS]
    there = client.embed(inputs)
    here = load_minilm().encode(inputs)
    for one, other in zip(there, here, strict=True):
        assert isinstance(one, Embedding)
        assert isinstance(other, Embedding)
        assert float(one.vector @ other.vector) > 0.9999
    again = serve(stack, *argv, api_key=KEY).get_capabilities().model_id
    assert again == capabilities.model_id
    with pytest.raises(FailedPrecondition, match="API key"):
        serve(stack, *argv, api_key="sk-wrong")


def test_scores_of_a_real_server_of_teis_rerank_are_those_of_its_model(
    stack: ExitStack, tmp_path: Path
) -> None:
    """llama.cpp answers TEI's requests with logits, whatever they ask for, and has no /info.

    It puts pairs together in another way than transformers does, so that its own API is the judge.
    """
    folder = write_cross_encoder(tmp_path / "cross-encoder")
    gguf = as_gguf(folder, tmp_path / "cross-encoder.gguf")
    url = stack.enter_context(llama_server(gguf, ["--reranking"], tmp_path / "log"))
    argv = ["--reranker-engine", "tei", "--reranker-url", url, "--reranker", "cross-encoder"]
    argv += ["--remote-timeout-s", "30", "--remote-batch-size", "8"]
    with pytest.raises(FailedPrecondition, match="reranker_scores to logits"):
        serve(stack, *argv, reranker_api_key=KEY)
    client = serve(stack, *argv, "--reranker-scores", "logits", reranker_api_key=KEY)
    assert client.get_capabilities().reranker_id == "cross-encoder/logits/remote"
    query = EmbeddingInput(text=PROMPTS[0])
    found = client.rerank(query, [EmbeddingInput(text=prompt) for prompt in PROMPTS])
    native = httpx.post(
        f"{url}/v1/rerank",
        json={"query": PROMPTS[0], "documents": PROMPTS},
        headers={"authorization": f"Bearer {KEY}"},
        timeout=60,
        trust_env=False,
    ).json()["results"]
    logits = {rank["index"]: rank["relevance_score"] for rank in native}
    expected = [1 / (1 + math.exp(-logits[place])) for place in range(len(PROMPTS))]
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert np.ptp(expected) > 0.1, "equal scores would show no order"


def write_cross_encoder(folder: Path) -> Path:
    """Writes MiniLM with a random classifier behind it."""
    minilm = find_minilm().directory
    torch.manual_seed(0)
    model = BertForSequenceClassification.from_pretrained(minilm, num_labels=1)
    torch.nn.init.normal_(model.bert.pooler.dense.weight, std=0.1)
    torch.nn.init.normal_(model.classifier.weight, std=0.3)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    return folder
