"""Parts that only some pipelines have: processors, guiders, sound."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLLTX2Audio, FlowMatchEulerDiscreteScheduler, LTX2Pipeline
from diffusers.guiders import ClassifierFreeGuidance
from tests.unit.denoise.engine_rig import PARAMS, Rig, open_rig
from tests.unit.denoise.families.picture_pipelines import flux2
from tests.unit.denoise.families.video_pipelines import (
    cogvideox,
    cogvideox_dpm,
    hunyuan_video_15,
    ltx,
    wan22_5b,
)
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline

from skipstone_denoise.fingerprint import fingerprint_model
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_denoise.pipeline_call import CallHooks, request_pipeline
from skipstone_denoise.pipeline_loader import load_pipeline, prepared_pipeline
from skipstone_denoise.scheduler_view import SchedulerView
from skipstone_shared.denoise_runs import ResumeKind
from skipstone_shared.generation import GenerationParams

pytestmark = pytest.mark.filterwarnings("ignore")


def test_what_a_processor_in_the_place_of_a_tokenizer_says_is_hashed() -> None:
    pipeline = flux2()
    before = fingerprint_model(pipeline, "m", "")
    pipeline.tokenizer.tokenizer.padding_side = "left"
    side = fingerprint_model(pipeline, "m", "")
    pipeline.tokenizer.chat_template = "{{ messages }}"
    template = fingerprint_model(pipeline, "m", "")
    ids = {f.text_encoder_id for f in (before, side, template)}
    assert len(ids) == 3


def test_the_settings_of_a_guider_are_hashed() -> None:
    """It holds the scale, which no parameter of the call does."""
    pipeline = hunyuan_video_15()
    before = fingerprint_model(pipeline, "m", "")
    pipeline.guider = ClassifierFreeGuidance(guidance_scale=7.0, stop=0.5)
    assert fingerprint_model(pipeline, "m", "").weights_hash != before.weights_hash


def test_each_request_has_a_guider_that_counts_the_steps_of_the_whole_schedule() -> None:
    pipeline = hunyuan_video_15()
    mine = [requested(pipeline, skip_steps) for skip_steps in (0, 4)]
    for request in mine:
        # As the pipeline calls it in its first turn.
        request.guider.set_state(step=0, num_inference_steps=6, timestep=None)
    assert pipeline.guider._step is None
    assert [request.guider._step for request in mine] == [0, 4]
    assert [request.guider.num_conditions for request in mine] == [2, 1]


def requested(pipeline: Any, skip_steps: int) -> Any:
    scheduler = type(pipeline.scheduler).from_config(pipeline.scheduler.config)
    scheduler.set_timesteps(6)
    view = SchedulerView(scheduler, skip_steps=skip_steps)
    return request_pipeline(pipeline, view, CallHooks(), nullcontext())


def params(**changes: Any) -> GenerationParams:
    return dataclasses.replace(PARAMS, **changes)


def test_a_pipeline_that_denoises_sound_too_is_refused() -> None:
    """Half of what a resume needs would be missing from a snapshot."""
    absent = dict.fromkeys(("text_encoder", "tokenizer", "connectors", "transformer", "vocoder"))
    hears = AutoencoderKLLTX2Audio(base_channels=32, ch_mult=(1,), num_res_blocks=1)
    coders = {"vae": ltx().vae, "audio_vae": hears}
    pipeline = LTX2Pipeline(FlowMatchEulerDiscreteScheduler(), **coders, **absent)
    with pytest.raises(ModelUnusable, match="denoises sound"):
        prepared_pipeline(pipeline)


def test_an_autoencoder_may_have_finer_weights_where_its_pipeline_can_do_it(
    tmp_path: Path,
) -> None:
    """Wan's pipelines convert the latents before they decode; CogVideoX's do not."""
    finer = {"device": "cpu", "dtype": "bfloat16", "vae_dtype": "float32"}
    wan22_5b().save_pretrained(tmp_path / "wan")
    pipeline = load_pipeline(str(tmp_path / "wan"), **finer)
    types = {pipeline.transformer.dtype, pipeline.text_encoder.dtype}
    assert (types, pipeline.vae.dtype) == ({torch.bfloat16}, torch.float32)
    with open_rig(pipeline) as rig:
        assert rig.run(params(num_frames=5)).picture
    cogvideox().save_pretrained(tmp_path / "cogvideox")
    with pytest.raises(ModelUnusable, match="CogVideoXPipeline cannot decode"):
        Rig(load_pipeline(str(tmp_path / "cogvideox"), **finer))


def test_another_scheduler_is_chosen_when_a_model_is_loaded(tmp_path: Path) -> None:
    """CogVideoX-5b comes with one that draws noise, which no snapshot could tell."""
    cogvideox_dpm().save_pretrained(tmp_path)
    pipeline = load_pipeline(
        str(tmp_path), device="cpu", dtype="float32", scheduler="CogVideoXDDIMScheduler"
    )
    assert pipeline.scheduler.config.prediction_type == "v_prediction"
    with open_rig(pipeline) as rig:
        assert ResumeKind.TRAJECTORY in rig.engine.get_capabilities().resume_kinds
    with pytest.raises(ModelUnusable, match="FastScheduler, which is none of diffusers; some"):
        load_pipeline(str(tmp_path), device="cpu", dtype="float32", scheduler="FastScheduler")


def test_sizes_and_frames_that_the_call_leaves_open_are_those_of_the_transformer() -> None:
    with open_rig(cogvideox()) as rig:
        told = rig.engine.get_capabilities()
    assert (told.default_num_frames, told.default_height, told.default_width) == (9, 16, 16)


def test_a_negative_prompt_of_the_configuration_holds_where_a_request_has_none() -> None:
    with open_rig(cogview4_pipeline(), default_negative_prompt="small") as rig:
        assert rig.engine.plan(params()).fingerprint.negative_prompt == "small"
        assert rig.engine.plan(params(negative_prompt="red")).fingerprint.negative_prompt == "red"
    with pytest.raises(ModelUnusable, match="takes none"):
        Rig(flux2(), default_negative_prompt="small")
