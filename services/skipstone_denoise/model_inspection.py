"""Finds out what a loaded pipeline takes and does: builds its `ModelProfile`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from PIL import Image

from skipstone_client.torch_arrays import dtype_of
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.guiders import guiders_of, remembers_steps
from skipstone_denoise.model_families import native_frame_rate
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_denoise.model_profile import ModelProfile
from skipstone_denoise.pipeline_call import call_arguments
from skipstone_denoise.pipeline_probe import PLACEHOLDER_PROMPT, PipelineProbe, denoisers
from skipstone_shared.generation import GenerationParams, ReferenceRole, VideoFormat

_REFERENCE_PARAMETERS: Mapping[ReferenceRole, str] = MappingProxyType(
    {
        ReferenceRole.IMAGE: "image",
        ReferenceRole.MASK: "mask_image",
        ReferenceRole.LAST_FRAME: "last_image",
    }
)
_STEPS_WITHOUT_DEFAULT = 50
_LATENTS_EDGE = 64  # of models that tell no size, in elements
_GUIDED_SCALE = 2.0


def inspect_model(pipeline: Any, settings: DenoiseSettings, probe: PipelineProbe) -> ModelProfile:
    """Builds the profile of a pipeline; runs one step and the decoder at a small size.

    Raises:
        ModelUnusable: the pipeline cannot run, or a configured default is out of its range.
    """
    profile = _accepted(pipeline, _profile_of_signature(pipeline, settings), probe)
    multiple = profile.size_multiple
    profile = dataclasses.replace(
        profile,
        min_size=-(-(settings.min_size or multiple) // multiple) * multiple,
        max_size=profile.max_size // multiple * multiple,
    )
    _check_defaults(profile, settings)
    try:
        step = probe.first_step(
            copy.deepcopy(pipeline.scheduler), small_call(pipeline, profile, multiple)
        )
    except Exception as error:
        # Whatever a model raises in its first step, it would raise in every request.
        raise ModelUnusable(f"{type(pipeline).__name__} cannot run a step: {error}") from error
    try:
        probe.decode(copy.deepcopy(pipeline.scheduler), small_call(pipeline, profile, multiple))
    except Exception as error:
        # Told now, and not after the steps of the first request.
        raise ModelUnusable(f"{type(pipeline).__name__} cannot decode: {error}") from error
    return dataclasses.replace(
        profile,
        guided_mode=step.guidance_mode,
        loop_dtype=dtype_of(step.latents.dtype),
        default_block_cache=settings.default_block_cache,
        default_negative_prompt=settings.default_negative_prompt,
        frame_rate=settings.frame_rate or native_frame_rate(pipeline),
        default_video_format=VideoFormat(settings.video_format),
    )


def placeholder_pictures(profile: ModelProfile, height: int, width: int) -> dict[str, Any]:
    """A grey picture for every reference input the pipeline cannot do without."""
    grey = Image.new("RGB", (width, height), "grey")
    return {profile.reference_parameters[role]: grey for role in profile.required_references}


def _profile_of_signature(pipeline: Any, settings: DenoiseSettings) -> ModelProfile:
    parameters = inspect.signature(type(pipeline).__call__).parameters

    def default(name: str) -> Any:
        value = parameters[name].default if name in parameters else None
        return None if value is inspect.Parameter.empty else value

    references = {r: name for r, name in _REFERENCE_PARAMETERS.items() if name in parameters}
    required = {r for r, n in references.items() if parameters[n].default is parameters[n].empty}
    height, width = _default_size(pipeline)
    is_video = "num_frames" in parameters
    train_steps = pipeline.scheduler.config.get("num_train_timesteps", settings.max_steps)
    return ModelProfile(
        call_parameters=frozenset(parameters),
        default_steps=settings.default_steps
        or default("num_inference_steps")
        or _STEPS_WITHOUT_DEFAULT,
        max_steps=min(settings.max_steps, train_steps),
        default_guidance_scale=_first_set(
            settings.default_guidance_scale, default("guidance_scale"), 0.0
        ),
        default_height=settings.default_height or default("height") or height,
        default_width=settings.default_width or default("width") or width,
        size_multiple=_least_multiple(pipeline),
        min_size=settings.min_size or 1,
        max_size=min(settings.max_size, _largest_size(pipeline)),
        second_guidance=_second_guidance(pipeline, parameters),
        default_second_guidance=default(_second_guidance(pipeline, parameters)),
        default_num_frames=(
            settings.default_num_frames or default("num_frames") or _trained_frames(pipeline)
        )
        if is_video
        else 1,
        max_num_frames=settings.max_num_frames if is_video else 1,
        frame_step=_frame_step(pipeline) if is_video else 1,
        reference_parameters=MappingProxyType(references),
        required_references=frozenset(required),
        shift_key=_shift_key(pipeline.scheduler.config),
        starts_from_noise="strength" not in parameters,
        remembers_steps=any(map(remembers_steps, guiders_of(pipeline).values())),
    )


def _first_set(*values: float | None) -> float:
    return next(float(value) for value in values if value is not None)


def _spatial_factor(pipeline: Any) -> int:
    """Pixels of one latent element, under the names that pipelines use."""
    for name in ("vae_scale_factor_spatial", "vae_scale_factor", "vae_spatial_compression_ratio"):
        if hasattr(pipeline, name):
            return int(getattr(pipeline, name))
    raise ModelUnusable(f"{type(pipeline).__name__} does not tell its autoencoder's scale")


def _patch_size(pipeline: Any) -> int:
    for config in _denoiser_configs(pipeline):
        patch = config.get("patch_size", 1)
        return int(patch[-1] if isinstance(patch, list | tuple) else patch or 1)
    raise ModelUnusable(f"{type(pipeline).__name__} has neither a transformer nor a unet")


def _least_multiple(pipeline: Any) -> int:
    # Pipelines that pack 2x2 patches themselves do not say so in the transformer's configuration.
    patch = max(_patch_size(pipeline), 2 if hasattr(pipeline, "_pack_latents") else 1)
    return _spatial_factor(pipeline) * patch


def _default_size(pipeline: Any) -> tuple[int, int]:
    """Height and width, in pixels, where the call itself has no default."""
    factor = _spatial_factor(pipeline)
    sample = getattr(pipeline, "default_sample_size", None)
    for config in _denoiser_configs(pipeline):
        if config.get("sample_height") and config.get("sample_width"):
            return int(config["sample_height"]) * factor, int(config["sample_width"]) * factor
        sample = sample or config.get("sample_size")
    height, width = sample if isinstance(sample, list | tuple) else (sample, sample)
    return int(height or _LATENTS_EDGE) * factor, int(width or _LATENTS_EDGE) * factor


def _trained_frames(pipeline: Any) -> int:
    """Frames of the videos a model was trained on, as CogVideoX tells; 1 when nothing is told."""
    told = [config.get("sample_frames") for config in _denoiser_configs(pipeline)]
    return int(next((frames for frames in told if frames), 1))


def _denoiser_configs(pipeline: Any) -> list[Mapping[str, Any]]:
    return [module.config for module in denoisers(pipeline).values()]  # type: ignore[misc]


def _largest_size(pipeline: Any) -> int:
    """The size that a table of absolute positions covers; unbounded without one."""
    sizes = [
        int(config["pos_embed_max_size"])
        for config in _denoiser_configs(pipeline)
        if config.get("pos_embed_max_size")
    ]
    return min(sizes) * _least_multiple(pipeline) if sizes else 1 << 30


def _frame_step(pipeline: Any) -> int:
    for name in ("vae_scale_factor_temporal", "vae_temporal_compression_ratio"):
        if hasattr(pipeline, name):
            return int(getattr(pipeline, name))
    return 1


def _second_guidance(pipeline: Any, parameters: Mapping[str, Any]) -> str:
    if "guidance_scale_2" in parameters and pipeline.config.get("boundary_ratio") is not None:
        return "guidance_scale_2"
    return "true_cfg_scale" if "true_cfg_scale" in parameters else ""


def _shift_key(config: Mapping[str, Any]) -> str:
    if config.get("use_dynamic_shifting"):
        return ""  # the pipeline computes the shift from the size
    if "shift" in config:
        return "shift"
    return "flow_shift" if config.get("use_flow_sigmas") and "flow_shift" in config else ""


def _accepted(pipeline: Any, profile: ModelProfile, probe: PipelineProbe) -> ModelProfile:
    """The profile with the smallest size step that the pipeline's own checks accept.

    A picture that the signature calls optional but no call succeeds without (LTX) is required.
    """
    required = profile.required_references
    picture = frozenset({ReferenceRole.IMAGE}).intersection(profile.reference_parameters)
    least = profile.size_multiple
    refusals = []
    for references in dict.fromkeys((required, required | picture)):
        tried = dataclasses.replace(profile, required_references=references)
        for multiple in (least, 2 * least, 4 * least, 8 * least):
            try:
                probe.prepare(
                    copy.deepcopy(pipeline.scheduler), small_call(pipeline, tried, multiple)
                )
            except Exception as error:  # noqa: BLE001 - what is not there breaks calls in any way
                refusals.append(error)
            else:
                return dataclasses.replace(tried, size_multiple=multiple)
    raise ModelUnusable(f"{type(pipeline).__name__} accepts no size: {refusals[-1]}")


def small_call(pipeline: Any, profile: ModelProfile, size: int) -> dict[str, Any]:
    """Arguments of a guided call at one size step; it is never let past its first step."""
    params = GenerationParams(
        prompt=PLACEHOLDER_PROMPT,
        negative_prompt=PLACEHOLDER_PROMPT if profile.has_true_guidance else "",
        num_inference_steps=min(profile.default_steps, profile.max_steps),
        guidance_scale=max(profile.default_guidance_scale, _GUIDED_SCALE),
        guidance_scale_2=_GUIDED_SCALE if profile.second_guidance else None,
        height=size,
        width=size,
        num_frames=1,
    )
    generator = torch.Generator("cpu").manual_seed(0)
    return call_arguments(params, profile, generator, placeholder_pictures(profile, size, size))


def _check_defaults(profile: ModelProfile, settings: DenoiseSettings) -> None:
    if settings.default_negative_prompt and not profile.takes_negative_prompt:
        raise ModelUnusable("default_negative_prompt is set, but this model takes none")
    sizes = {"default_height": profile.default_height, "default_width": profile.default_width}
    for name, value in sizes.items():
        if value % profile.size_multiple or not profile.min_size <= value <= profile.max_size:
            raise ModelUnusable(
                f"{name} is {value}, allowed are multiples of {profile.size_multiple} from "
                f"{profile.min_size} to {profile.max_size}"
            )
    frames = profile.default_num_frames
    if not 1 <= frames <= profile.max_num_frames or (frames - 1) % profile.frame_step:
        raise ModelUnusable(
            f"default_num_frames is {frames}, allowed are 1 to {profile.max_num_frames} "
            f"(max_num_frames), one more than a multiple of {profile.frame_step}"
        )
    if not 1 <= profile.default_steps <= profile.max_steps:
        raise ModelUnusable(
            f"default_steps is {profile.default_steps}, allowed is 1 to {profile.max_steps}"
        )
