"""A deployment whose vectors and scores come from services behind HTTP, which fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.generations import LOOSELY_REWORDED, REWORDED, generate, generate_saved
from tests.e2e.processes import PATIENT, Cluster, wait_until
from tests.servers.remote_models import RemoteModels, as_json, serve_remote_models

from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_reranker
from skipstone_embedding.minilm_encoder import load_minilm
from skipstone_shared.orchestration import GenerateResult, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def models() -> Iterator[RemoteModels]:
    """MiniLM and the bundled gate, as services."""
    models = RemoteModels(load_minilm(), load_reranker(EmbeddingSettings()))
    models.info["model_type"] = {"reranker": {"id2label": {"0": "LABEL_0"}}}
    with serve_remote_models(models):
        yield models


@pytest.fixture
def remote_cluster(tmp_path: Path, tiny_model: Path, models: RemoteModels) -> Iterator[Cluster]:
    flags = ("--engine", "openai", "--url", f"{models.url}/v1", "--model", "tiny")
    flags += ("--reranker-engine", "tei", "--reranker-url", models.url)
    flags += ("--remote-attempts", "1")
    with Cluster(tmp_path, tiny_model, {"orchestrator": PATIENT, "embedding": flags}) as cluster:
        yield cluster


def test_remote_models_find_donors_and_no_request_fails_when_they_do(
    remote_cluster: Cluster, models: RemoteModels, namespace: str
) -> None:
    def ask(prompt: str, seed: int) -> GenerateResult:
        return generate(remote_cluster.client, namespace, prompt, seed=seed)

    def is_hit(seed: int) -> bool:
        return ask(REWORDED, seed).provenance.tier is HitTier.APPROXIMATE

    generate_saved(remote_cluster, namespace)
    found = ask(REWORDED, 2).provenance
    assert found.tier is HitTier.APPROXIMATE
    assert models.count("/rerank") > 0 < models.count("/v1/embeddings")

    # A reranker that is away gives no score: no approximate hit.
    models.fault = lambda path, body: as_json({}, 503) if path == "/rerank" else None
    missed = ask(LOOSELY_REWORDED, 3).provenance
    assert missed.tier is HitTier.MISS
    assert [fallback.stage for fallback in missed.fallbacks] == ["rerank"]

    # Without a vector nothing is looked for; the request runs from noise.
    models.fault = lambda path, body: as_json({}, 503)
    missed = ask(LOOSELY_REWORDED, 4).provenance
    assert missed.tier is HitTier.MISS
    assert missed.fallbacks

    models.fault = lambda path, body: None
    seeds = iter(range(5, 1000))
    wait_until(lambda: is_hit(next(seeds)), "remote models that are back serve hits")
