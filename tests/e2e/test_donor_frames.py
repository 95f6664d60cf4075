"""A clip is found by its frames: real services, a video model, and an encoder that sees."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from tests.e2e.processes import BY_TABLE, PATIENT, Cluster, running_service, wait_until
from tests.e2e.telefuser_host import Host, write_pipeline_file
from tests.unit.denoise.tiny_pipelines import wan_pipeline
from tests.unit.embedding.tiny_vision import write_tiny_clip

from skipstone_client import EmbeddingClient, OrchestratorClient, VectorIndexClient
from skipstone_shared.embeddings import Embedding, EmbeddingInput
from skipstone_shared.frame_samples import sampled_frames
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import GenerateResult, HitTier

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

PROMPT = "a red fox in the snow"
REWORDED = "in the snow a red fox"
TOLD = "a fox"
"""Of random weights, but near to the host's pictures."""
BY_FRAMES = (
    "--donor-vectors=frames",
    "--donor-frames=3",
    "--min-similarity=0",
    *BY_TABLE,
    *PATIENT,
)


@dataclasses.dataclass(frozen=True)
class Site:
    """An orchestrator that finds donors by frames, and its encoder."""

    client: OrchestratorClient
    encoder: EmbeddingClient
    index: VectorIndexClient
    latent_kv_target: str

    def generate(self, prompt: str, seed: int, namespace: str) -> GenerateResult:
        params = GenerationParams(prompt, seed=seed, num_inference_steps=10)
        return self.client.generate(params, namespace=namespace)

    def cosine(self, prompt: str, video: bytes) -> float:
        """Of a prompt and the first, the middle and the last frame of a file of five."""
        with av.open(io.BytesIO(video)) as file:
            pictures = [frame.to_image() for frame in file.decode(video=0)]
        frames = sampled_frames([pictures[0], pictures[2], pictures[4]], 3)
        inputs = [EmbeddingInput(text=prompt), EmbeddingInput(frames=frames)]
        text, clip = self.encoder.embed(inputs)
        assert isinstance(text, Embedding)
        assert isinstance(clip, Embedding)
        return float(text.vector @ clip.vector)


@pytest.fixture(scope="module")
def site(_shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Clips of 5 frames, and a tiny CLIP."""
    folder: Path = tmp_path_factory.mktemp("models")
    wan_pipeline().save_pretrained(folder / "wan")
    store = f"--latent-kv-target={_shared_cluster.targets['latent_kv']}"
    form = ("--default-height=16", "--default-width=32", "--default-num-frames=5")
    others = [f for f in _shared_cluster.backend_flags() if "denoise" not in f and "embed" not in f]
    with (
        running_service("embedding", f"--model={write_tiny_clip(folder)}") as embedding,
        running_service("denoise", f"--model={folder / 'wan'}", store, *form) as denoise,
        running_service(
            "orchestrator",
            *others,
            *BY_FRAMES,
            f"--denoise-target={denoise}",
            f"--embedding-target={embedding}",
        ) as target,
        OrchestratorClient(target) as client,
        EmbeddingClient(embedding) as encoder,
    ):
        targets = _shared_cluster.targets
        yield Site(client, encoder, _shared_cluster.index, targets["latent_kv"])


def test_a_reworded_prompt_starts_from_the_clip_whose_frames_it_is_near_to(
    site: Site, namespace: str
) -> None:
    first = site.generate(PROMPT, 1, namespace)
    wait_until(lambda: bool(site.index.list_entries(namespace).entries), "the clip is saved")
    (stored,) = site.index.list_entries(namespace).entries
    assert stored.embedding_model_id.endswith("#frames")
    again = site.generate(REWORDED, 2, namespace).provenance
    assert again.tier is HitTier.APPROXIMATE
    assert again.donor_entry_id == first.provenance.saved_entry_id
    # The file was compressed as a video and the frames as pictures.
    assert again.similarity == pytest.approx(site.cosine(REWORDED, first.artifact.data), abs=0.1)
    assert site.generate(PROMPT, 1, namespace).artifact.data == first.artifact.data
    # The gate reads prompts, however near the frames are.
    assert site.generate("a blue fox in the snow", 3, namespace).provenance.tier is HitTier.MISS


def test_the_frames_that_telefuser_hands_over_are_what_its_runs_are_found_by(
    site: Site, namespace: str, tmp_path: Path
) -> None:
    file = write_pipeline_file(
        tmp_path,
        enable_latent_cache=True,
        skipstone_orchestrator_target=site.client.target,
        skipstone_latent_kv_target=site.latent_kv_target,
        skipstone_namespace=namespace,
        skipstone_lookup_timeout_s=30.0,
        skipstone_read_timeout_s=30.0,
    )
    host = Host(file, cache_mode="read_write")
    try:
        assert host.run(TOLD).skip_step == 0
        assert host.service._session is not None
        assert host.service._session.flush(60.0)
        (stored,) = site.index.list_entries(namespace).entries
        assert stored.embedding_model_id.endswith("#frames")
        assert host.run(TOLD).skip_step > 0
    finally:
        host.service.shutdown()
