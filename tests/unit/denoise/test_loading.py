"""From a folder to a service: what `__main__` builds serves the model it was given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.denoise.engine_rig import PARAMS, STEPS, Rig, open_rig
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline

from skipstone_client.denoise import DenoiseClient
from skipstone_denoise.__main__ import build
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_denoise.pipeline_loader import load_pipeline
from skipstone_shared.denoise_runs import DenoiseRequest, DenoiseStarted, ResumeFrom, ResumeKind
from skipstone_shared.grpc_server import Mounted, in_process_server
from skipstone_shared.latents import LatentRef


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("model")
    cogview4_pipeline().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with open_rig(cogview4_pipeline()) as rig:
        yield rig


@pytest.fixture(scope="module")
def mounted(folder: Path) -> Iterator[Mounted]:
    mounted = build(DenoiseSettings(model=str(folder), latent_kv_target="127.0.0.1:9"))
    yield mounted
    for stop in mounted.on_stop:
        stop()


def test_a_model_loaded_from_its_folder_is_the_model_that_was_saved(
    mounted: Mounted, rig: Rig
) -> None:
    with (
        in_process_server(Mounted(mounted.register, ())) as target,
        DenoiseClient(target) as client,
    ):
        mine, theirs = rig.engine.plan(PARAMS), client.plan(PARAMS)
        assert theirs.fingerprint.weights_hash == mine.fingerprint.weights_hash
        assert theirs.fingerprint.vae_id == mine.fingerprint.vae_id
        artifact = list(client.run(DenoiseRequest("", PARAMS)))[-2]
        assert artifact in rig.run().events


def test_a_store_that_nobody_serves_is_named_in_the_refusal(mounted: Mounted) -> None:
    donor = LatentRef("default", "donor", 2)
    request = DenoiseRequest("", PARAMS, resume=ResumeFrom(donor, 2, ResumeKind.TRAJECTORY))
    with (
        in_process_server(Mounted(mounted.register, ())) as target,
        DenoiseClient(target) as client,
    ):
        started = next(client.run(request))
    assert isinstance(started, DenoiseStarted)
    # On a loaded machine the refused connection may show only after the time for the read.
    assert started.refusal_reason in ("STORE_UNAVAILABLE", "STORE_TIMEOUT")


def test_metrics_tell_runs_and_steps(mounted: Mounted) -> None:
    with (
        in_process_server(Mounted(mounted.register, ())) as target,
        DenoiseClient(target) as client,
    ):
        before = client.get_stats()
        list(client.run(DenoiseRequest("", PARAMS)))
    registry = CollectorRegistry()
    for collector in mounted.collectors:
        registry.register(collector)
    text = generate_latest(registry).decode()
    assert f'skipstone_denoise_runs_total{{end="finished"}} {before.finished_count + 1}.0' in text
    steps = before.executed_steps + STEPS
    assert f'skipstone_denoise_steps_total{{kind="executed"}} {steps}.0' in text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model_index.json", {"_class_name": "NoSuchPipeline", "vae": ["diffusers", "NoSuchVae"]}),
        ("transformer/config.json", {"_class_name": "CogView4Transformer2DModel", "num_layers": 0}),
    ],
)
def test_a_model_that_does_not_load_is_one_sentence(
    folder: Path, tmp_path: Path, name: str, content: dict[str, object]
) -> None:
    model = shutil.copytree(folder, tmp_path / "broken")
    (model / name).write_text(json.dumps(content))
    with pytest.raises(ModelUnusable) as raised:
        Rig(load_pipeline(str(model), device="cpu", dtype="float32"))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


def test_weights_that_are_pickles_are_refused(folder: Path, tmp_path: Path) -> None:
    """They could run any code; the loader must not fall back to them."""
    model = shutil.copytree(folder, tmp_path / "pickled")
    weights = model / "transformer/diffusion_pytorch_model.safetensors"
    weights.rename(weights.with_suffix(".bin"))
    with pytest.raises(ModelUnusable, match="cannot be loaded"):
        load_pipeline(str(model), device="cpu", dtype="float32")
