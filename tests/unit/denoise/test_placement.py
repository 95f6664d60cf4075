"""Where a model lives and by what means it computes: what a CPU can show of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from diffusers.models.attention_dispatch import attention_backend
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, Rig, open_rig, trajectory
from tests.unit.denoise.families.picture_pipelines import sd35, sdxl
from tests.unit.denoise.families.video_pipelines import cogvideox
from tests.unit.denoise.tiny_pipelines import (
    cogview4_pipeline,
    flux_pipeline,
    pixart_pipeline,
    wan_pipeline,
)

from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.fingerprint import module_hash
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_denoise.placement import check_placement, place
from skipstone_shared.config import resolve_settings

pytestmark = pytest.mark.filterwarnings("ignore")


def plan_key(rig: Rig) -> str:
    return rig.engine.plan(PARAMS).compatibility_key


@pytest.fixture(autouse=True)
def _attention_of_others() -> Iterator[None]:
    """Models choose the attention of the whole process, and other tests compare bits."""
    with attention_backend():
        yield


@pytest.fixture(scope="module")
def plain_key() -> str:
    with open_rig(flux_pipeline()) as rig:
        return plan_key(rig)


@pytest.mark.parametrize(
    "settings",
    [
        {"attention_backend": "_native_math", "max_concurrent_requests": 1},
        {"vae_tiling": True, "vae_slicing": True},
    ],
)
def test_what_changes_numbers_is_in_the_key_and_a_run_still_resumes_exactly(
    settings: dict[str, Any], plain_key: str
) -> None:
    with open_rig(flux_pipeline(), **settings) as rig:
        assert plan_key(rig) != plain_key
        full = rig.run(snapshots=EVERY_STEP)
        assert rig.run(resume=trajectory(full.refs[3])).picture == full.picture


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("compile_", "build"), [("blocks", wan_pipeline), ("whole", flux_pipeline)]
)
def test_a_compiled_denoiser_is_another_key_and_resumes_exactly(
    compile_: str, build: Callable[[], Any]
) -> None:
    with open_rig(build()) as rig:
        plain_key = plan_key(rig)
    with open_rig(build(), compile=compile_) as rig:
        assert plan_key(rig) != plain_key
        # One frame, where it is a video.
        params = dataclasses.replace(PARAMS, num_frames=1)
        full = rig.run(params, snapshots=EVERY_STEP)
        assert rig.run(params, resume=trajectory(full.refs[3])).picture == full.picture


def test_a_model_whose_blocks_diffusers_does_not_name_is_not_compiled_block_by_block() -> None:
    with pytest.raises(ModelUnusable, match="compile is blocks, which CogView4Pipeline cannot"):
        place(cogview4_pipeline(), DenoiseSettings(compile="blocks"))


def test_tiling_reaches_the_autoencoder() -> None:
    pipeline = wan_pipeline()
    place(pipeline, DenoiseSettings(vae_tiling=True, vae_slicing=True))
    assert (pipeline.vae.use_tiling, pipeline.vae.use_slicing) == (True, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_backend": "fast"}, "attention_backend is fast, allowed are flash"),
        ({"attention_backend": "flash_hub"}, "set allow_download or install"),
        ({"device": "cuda"}, "device is cuda, but what torch sees here is the CPU only"),
        ({"device": "cuda:1", "device_map": "balanced"}, "device is cuda:1"),
        ({"device": "cuda", "offload": "model", "max_concurrent_requests": 1}, "CPU only"),
    ],
)
@pytest.mark.skipif(torch.accelerator.is_available(), reason="with an accelerator it is possible")
def test_what_this_machine_lacks_is_told_before_weights_are_read(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelUnusable, match=message):
        check_placement(DenoiseSettings(**settings))


def test_attention_that_the_environment_switches_is_in_the_key_and_wants_to_be_alone(
    plain_key: str,
) -> None:
    """As DIFFUSERS_ATTN_BACKEND does, which diffusers reads when it is imported."""
    with attention_backend("_native_math"):
        with open_rig(flux_pipeline(), max_concurrent_requests=1) as rig:
            assert plan_key(rig) != plain_key
        with pytest.raises(ModelUnusable, match=r"must be 1: the transformer .* by _native_math"):
            Rig(flux_pipeline(), max_concurrent_requests=2)


@pytest.mark.parametrize("build", [pixart_pipeline, sd35, cogvideox, sdxl])
def test_an_attention_backend_that_no_attention_goes_through_is_refused(
    build: Callable[[], Any],
) -> None:
    """It would do nothing, and be in the key."""
    with pytest.raises(ModelUnusable, match=r"attention_backend is native, but no attention of .*"):
        place(build(), DenoiseSettings(attention_backend="native"))


def test_one_that_the_environment_sets_for_such_a_model_changes_nothing() -> None:
    with open_rig(pixart_pipeline(), max_concurrent_requests=2) as rig:
        plain = plan_key(rig)
    with (
        attention_backend("_native_math"),
        open_rig(pixart_pipeline(), max_concurrent_requests=2) as rig,
    ):
        assert plan_key(rig) == plain


def test_what_a_device_map_keeps_in_main_memory_is_for_one_request_at_a_time() -> None:
    pipeline = flux_pipeline()
    cpu_offload(pipeline.transformer, execution_device=torch.device("cpu"))
    with pytest.raises(ModelUnusable, match="must be 1: weights are kept in main memory"):
        Rig(pipeline, max_concurrent_requests=2)


def test_weights_that_a_device_map_keeps_elsewhere_are_hashed_all_the_same() -> None:
    transformer = cogview4_pipeline().transformer
    before = module_hash(transformer)
    cpu_offload(transformer, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in transformer.parameters())
    assert module_hash(transformer) == before


def test_an_attention_whose_package_is_missing_is_one_sentence() -> None:
    with pytest.raises(ModelUnusable, match="attention_backend is sage, which FluxPipeline cannot"):
        place(flux_pipeline(), DenoiseSettings(attention_backend="sage"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"offload": "model"}, "device is cpu"),
        ({"offload": "group", "device": "cuda"}, "max_concurrent_requests must be 1"),
        ({"attention_backend": "_native_math"}, "max_concurrent_requests must be 1"),
        ({"device_map": "balanced"}, "device must be cuda"),
        ({"device_memory": {"0": "70GiB"}}, "only for device_map"),
        (
            {
                "offload": "model",
                "device_map": "balanced",
                "device": "cuda",
                "max_concurrent_requests": 1,
            },
            "exclude each other",
        ),
        ({"compile": "all"}, "'none', 'blocks' or 'whole'"),
        ({"video_format": "webm"}, "'mp4' or 'gif'"),
    ],
)
def test_settings_that_cannot_be_together_are_errors(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DenoiseSettings(**settings)


def test_memory_of_devices_is_set_by_a_variable_too() -> None:
    variables = {
        "SKIPSTONE_DENOISE_DEVICE": "cuda",
        "SKIPSTONE_DENOISE_DEVICE_MAP": "balanced",
        "SKIPSTONE_DENOISE_DEVICE_MEMORY": json.dumps({"0": "70GiB", "cpu": "100GiB"}),
    }
    settings, _ = resolve_settings(DenoiseSettings, [], variables)
    assert settings.device_memory == {"0": "70GiB", "cpu": "100GiB"}
