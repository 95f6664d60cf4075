"""Plans: the same for equal parameters, another for whatever changes latents; models differ."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler, HeunDiscreteScheduler
from tests.unit.denoise.engine_rig import PARAMS, STEPS, Rig, open_rig
from tests.unit.denoise.tiny_pipelines import (
    cogview4_pipeline,
    flux_pipeline,
    pixart_pipeline,
    wan_image_pipeline,
    wan_pipeline,
)
from transformers import CLIPImageProcessor

from skipstone_denoise import fingerprint
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.fingerprint import fingerprint_model
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_shared.config import ConfigError, resolve_settings
from skipstone_shared.denoise_runs import DenoiseRequest, ResumeKind, SchedulerResume
from skipstone_shared.errors import CompatibilityMismatch, InvalidArgument
from skipstone_shared.latents import GuidanceMode, compatibility_key


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with open_rig(cogview4_pipeline()) as rig:
        yield rig


def key(rig: Rig, **changes: Any) -> str:
    return rig.engine.plan(dataclasses.replace(PARAMS, **changes)).compatibility_key


def test_prompt_and_seed_are_not_part_of_the_key(rig: Rig) -> None:
    assert key(rig) == key(rig, prompt="a blue square", seed=None)


@pytest.mark.parametrize(
    "change",
    [
        {"num_inference_steps": STEPS + 1},
        {"guidance_scale": 3.5},
        {"guidance_scale": 1.0},
        {"negative_prompt": "blue"},
        {"height": 32},
        {"width": 32},
        {"shift": 3.0},
    ],
    ids=str,
)
def test_whatever_changes_latents_changes_the_key(rig: Rig, change: dict[str, Any]) -> None:
    assert key(rig) != key(rig, **change)


def test_weights_and_scheduler_change_the_key_and_a_restart_does_not(rig: Rig) -> None:
    with open_rig(cogview4_pipeline()) as same, open_rig(cogview4_pipeline(seed=1)) as other:
        assert key(same) == key(rig) != key(other)
        assert same.engine.plan(PARAMS).instance_id != rig.engine.plan(PARAMS).instance_id
    with open_rig(cogview4_pipeline(FlowMatchEulerDiscreteScheduler(shift=2.0))) as shifted:
        assert key(shifted) != key(rig)
        # The same noise levels by another road are still another schedule's configuration.
        assert shifted.engine.plan(PARAMS).sigmas == _sigmas(rig, shift=2.0)


def settings_flag(pipeline: Any) -> None:
    pipeline.register_to_config(expand_timesteps=True)


def shorter_prompts(pipeline: Any) -> None:
    pipeline.tokenizer.model_max_length = 4


def padding_in_front(pipeline: Any) -> None:
    pipeline.tokenizer.padding_side = "left"


def larger_crops(pipeline: Any) -> None:
    pipeline.register_modules(image_processor=CLIPImageProcessor(crop_size=8))


@pytest.mark.parametrize("change", [settings_flag, shorter_prompts, padding_in_front, larger_crops])
def test_what_a_pipeline_is_built_with_besides_weights_is_in_its_fingerprint(
    change: Callable[[Any], None],
) -> None:
    """The same weights with another cut of the prompt, for one, give another picture."""
    pipeline, other = wan_image_pipeline(), wan_image_pipeline()
    assert fingerprint_model(pipeline, "m", "") == fingerprint_model(other, "m", "")
    change(other)
    assert fingerprint_model(pipeline, "m", "") != fingerprint_model(other, "m", "")


def test_a_library_that_repairs_prompts_is_in_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wan's pipelines use ftfy where it is installed, and encode other words where it is not."""
    pipeline = cogview4_pipeline()
    told = set()
    for installed in ("6.1", "6.2"):
        monkeypatch.setattr(fingerprint, "version", lambda _name, found=installed: found)
        told.add(fingerprint_model(pipeline, "m", "").library_versions)
    assert len(told) == 2


def _sigmas(rig: Rig, **changes: Any) -> tuple[float, ...]:
    return rig.engine.plan(dataclasses.replace(PARAMS, **changes)).sigmas


def test_the_key_is_the_hash_of_the_fingerprint(rig: Rig) -> None:
    plan = rig.engine.plan(PARAMS)
    assert plan.compatibility_key == compatibility_key(plan.fingerprint)
    assert plan.fingerprint.latents.shape == (1, 4, 8, 8)


@pytest.mark.parametrize("steps", [1, 2, 50, 1000])
def test_sigmas_fall_to_zero_in_as_many_steps_as_asked(rig: Rig, steps: int) -> None:
    sigmas = _sigmas(rig, num_inference_steps=steps)
    assert len(sigmas) == steps + 1
    assert sigmas[-1] == 0.0
    assert all(a > b for a, b in itertools.pairwise(sigmas))


@pytest.mark.parametrize("scheduler", [DDIMScheduler(), HeunDiscreteScheduler()])
def test_schedulers_without_one_sigma_a_step_have_noise_levels_too(scheduler: Any) -> None:
    with open_rig(pixart_pipeline(scheduler)) as rig:
        sigmas = _sigmas(rig)
        assert (len(sigmas), sigmas[-1]) == (STEPS + 1, 0.0)
        assert all(a > b for a, b in itertools.pairwise(sigmas))


def test_planning_runs_neither_transformer_nor_text_encoder() -> None:
    with open_rig(cogview4_pipeline()) as rig:
        rig.engine.plan(PARAMS)
        for module in (rig.pipeline.transformer, rig.pipeline.text_encoder):
            module.register_forward_pre_hook(_not_expected)
        rig.engine.plan(dataclasses.replace(PARAMS, prompt="a blue square", height=32))


def _not_expected(*_: Any) -> None:
    raise AssertionError("a plan ran the model")


def test_how_guidance_is_evaluated_is_found_by_watching() -> None:
    modes = []
    for build in (cogview4_pipeline, pixart_pipeline, wan_pipeline):
        with open_rig(build()) as rig:
            modes += [
                rig.engine.plan(
                    dataclasses.replace(PARAMS, guidance_scale=scale)
                ).fingerprint.guidance_mode
                for scale in (3.0, 1.0)
            ]
    separate, batched, none = GuidanceMode.SEPARATE, GuidanceMode.BATCHED, GuidanceMode.NONE
    assert modes == [separate, none, batched, none, separate, none]


def test_true_guidance_needs_a_second_scale_and_a_negative_prompt() -> None:
    """Flux evaluates twice only then; its `guidance_scale` is an input of the model."""
    with open_rig(flux_pipeline()) as rig:
        told = rig.engine.plan(PARAMS).fingerprint
        assert (told.guidance_mode, told.latents.shape) == (GuidanceMode.NONE, (1, 16, 16))
        assert told.latent_packing == "packed"
        guided = dataclasses.replace(PARAMS, guidance_scale_2=4.0, negative_prompt="blue")
        told = rig.engine.plan(guided).fingerprint
        assert (told.guidance_mode, told.guidance_scales) == (GuidanceMode.SEPARATE, (3.0, 4.0))
        assert rig.run(guided).picture != rig.run(PARAMS).picture


def test_capabilities_tell_limits_that_the_pipeline_itself_keeps(rig: Rig) -> None:
    told = rig.engine.get_capabilities()
    assert (told.size_multiple, told.min_size, told.max_size) == (16, 16, 32)
    assert (told.default_height, told.default_width) == (32, 32)
    assert told.scheduler_resume is SchedulerResume.EXACT
    assert told.resume_kinds == (ResumeKind.TRAJECTORY, ResumeKind.RENOISE, ResumeKind.DECODE)
    assert told.block_cache_supported
    largest = dataclasses.replace(PARAMS, height=told.max_size, width=told.max_size)
    assert rig.run(largest).finished.executed_steps == STEPS


def test_settings_override_the_pipelines_own_defaults() -> None:
    settings = {"default_steps": 9, "default_guidance_scale": 1.5, "default_height": 16}
    with open_rig(cogview4_pipeline(), **settings) as rig:
        params = rig.engine.plan(dataclasses.replace(PARAMS, **dict.fromkeys(_DEFAULTED))).params
        assert (params.num_inference_steps, params.guidance_scale) == (9, 1.5)
        assert (params.height, params.width) == (16, 32)


_DEFAULTED = ("num_inference_steps", "guidance_scale", "height", "width")


@pytest.mark.parametrize("setting", [{"default_height": 40}, {"default_steps": 1001}])
def test_a_default_that_the_model_cannot_do_stops_the_start(setting: dict[str, int]) -> None:
    with pytest.raises(ModelUnusable, match=next(iter(setting))):
        Rig(cogview4_pipeline(), **setting)


def test_a_pipeline_whose_transformer_fails_stops_the_start() -> None:
    pipeline = cogview4_pipeline()
    pipeline.transformer.proj_out = torch.nn.Linear(1, 1)
    with pytest.raises(ModelUnusable, match="cannot run a step"):
        Rig(pipeline)


def test_a_run_planned_for_another_key_is_refused(rig: Rig) -> None:
    request = DenoiseRequest("", PARAMS, expected_compatibility_key="0" * 32)
    with pytest.raises(CompatibilityMismatch):
        list(rig.engine.run(request))
    planned = rig.engine.plan(PARAMS).compatibility_key
    assert rig.run(expected_compatibility_key=planned).finished.compatibility_key == planned


def test_a_run_without_a_seed_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match=r"params\.seed"):
        rig.run(dataclasses.replace(PARAMS, seed=None))


def test_a_namespace_that_is_no_name_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="namespace"):
        list(rig.engine.run(DenoiseRequest("a/b", PARAMS)))


def test_more_waiting_requests_than_threads_is_a_configuration_error() -> None:
    argv = ["--max-workers", "8", "--max-queued-requests", "8"]
    with pytest.raises(ConfigError, match="max_workers must be at least 14"):
        resolve_settings(DenoiseSettings, argv, {})
