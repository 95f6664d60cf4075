"""Checks the parameters of a generation and fills in the model's defaults."""

from __future__ import annotations

import dataclasses
import math

from skipstone_denoise.model_profile import ModelProfile
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    MAX_PROMPT_BYTES,
    MAX_REFERENCE_BYTES,
    MAX_SEED,
    AdapterSelection,
    BlockCacheConfig,
    GenerationParams,
    ReferenceInput,
    VideoFormat,
)

_TOLD_MORE = BlockCacheConfig(report_residual_diffs=True)

MAX_GUIDANCE_SCALE = 100.0
MAX_SHIFT = 100.0
MAX_ADAPTER_SCALE = 10.0
PICTURE_MEDIA_TYPES = ("image/png", "image/jpeg")


def filled_parameters(params: GenerationParams, profile: ModelProfile) -> GenerationParams:
    """The parameters with every default filled in, except the seed.

    Raises:
        InvalidArgument: a parameter is out of range; names the field and what is allowed.
    """
    return dataclasses.replace(
        params,
        prompt=_checked_prompt(params.prompt),
        negative_prompt=_checked_negative_prompt(params.negative_prompt, profile)
        or profile.default_negative_prompt,
        num_inference_steps=_checked_int(
            "num_inference_steps",
            params.num_inference_steps,
            profile.default_steps,
            1,
            profile.max_steps,
        ),
        guidance_scale=_checked_guidance(params, profile),
        guidance_scale_2=_checked_second_guidance(params, profile),
        height=_checked_size("height", params.height, profile.default_height, profile),
        width=_checked_size("width", params.width, profile.default_width, profile),
        num_frames=_checked_num_frames(params.num_frames, profile),
        seed=checked_seed(params.seed),
        reference_inputs=_checked_references(params.reference_inputs, profile),
        adapters=_checked_adapters(params.adapters, profile),
        # Checked by the planner, which knows the schedule and the blocks.
        block_cache=_block_cache(params.block_cache, profile.default_block_cache),
        shift=_checked_shift(params.shift, profile),
        video_format=_checked_video_format(params.video_format, profile),
    )


def _block_cache(
    asked: BlockCacheConfig | None, default: BlockCacheConfig | None
) -> BlockCacheConfig | None:
    """What a request asks for; who asks only to be told more keeps the default."""
    if asked is None:
        return default
    if asked == _TOLD_MORE and default is not None:
        return dataclasses.replace(default, report_residual_diffs=True)
    return asked


def checked_seed(seed: int | None) -> int | None:
    """The seed, which may be unset.

    Raises:
        InvalidArgument: it is out of range.
    """
    return None if seed is None else _checked_int("seed", seed, 0, 0, MAX_SEED)


def _wrong(field: str, problem: str, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"params.{field} {problem}", field=f"params.{field}", allowed=allowed)


def _checked_prompt(prompt: str) -> str:
    allowed = f"1 to {MAX_PROMPT_BYTES} bytes that are not all white space"
    if not prompt.strip():
        raise _wrong("prompt", "is empty" if not prompt else "is all white space", allowed)
    return _checked_length("prompt", prompt, allowed)


def _checked_negative_prompt(text: str, profile: ModelProfile) -> str:
    if text and not profile.takes_negative_prompt:
        raise _wrong("negative_prompt", "is given, but this model takes none", "empty")
    return _checked_length("negative_prompt", text, f"0 to {MAX_PROMPT_BYTES} bytes")


def _checked_length(field: str, text: str, allowed: str) -> str:
    size = len(text.encode())
    if size > MAX_PROMPT_BYTES:
        raise _wrong(field, f"has {size} bytes", allowed)
    return text


def _checked_int(field: str, value: int | None, default: int, lowest: int, highest: int) -> int:
    if value is None:
        return default
    if not lowest <= value <= highest:
        raise _wrong(field, f"is {value}", f"{lowest} to {highest}")
    return value


def _checked_guidance(params: GenerationParams, profile: ModelProfile) -> float:
    value = params.guidance_scale
    if value is None:
        return profile.default_guidance_scale
    if not profile.takes_guidance_scale:
        # What was filled in comes back when a plan is run.
        if value != profile.default_guidance_scale:
            raise _wrong("guidance_scale", "is given, but this model takes none", "unset")
        return value
    return _checked_scale("guidance_scale", value)


def _checked_second_guidance(params: GenerationParams, profile: ModelProfile) -> float | None:
    value = params.guidance_scale_2
    if value is None:
        return profile.default_second_guidance
    if not profile.second_guidance:
        raise _wrong("guidance_scale_2", "is given, but this model has no second scale", "unset")
    return _checked_scale("guidance_scale_2", value)


def _checked_scale(field: str, value: float) -> float:
    # NaN fails every comparison, so the range check refuses it too.
    if not 0.0 <= value <= MAX_GUIDANCE_SCALE:
        raise _wrong(field, f"is {value}", f"a finite number from 0 to {MAX_GUIDANCE_SCALE:g}")
    return value


def _checked_size(field: str, value: int | None, default: int, profile: ModelProfile) -> int:
    if value is None:
        return default
    if value % profile.size_multiple or not profile.min_size <= value <= profile.max_size:
        allowed = (
            f"multiples of {profile.size_multiple} from {profile.min_size} to {profile.max_size}"
        )
        raise _wrong(field, f"is {value}", allowed)
    return value


def _checked_num_frames(value: int | None, profile: ModelProfile) -> int:
    if value is None:
        return profile.default_num_frames
    if not profile.is_video and value != 1:
        raise _wrong("num_frames", f"is {value}, but this model makes pictures", "1 or unset")
    if not 1 <= value <= profile.max_num_frames or (value - 1) % profile.frame_step:
        allowed = f"1 to {profile.max_num_frames}"
        if profile.frame_step > 1:
            allowed += f", one more than a multiple of {profile.frame_step}"
        raise _wrong("num_frames", f"is {value}", allowed)
    return value


def _checked_video_format(value: VideoFormat | None, profile: ModelProfile) -> VideoFormat | None:
    if profile.is_video:
        return value or profile.default_video_format
    if value is not None:
        raise _wrong("video_format", "is given, but this model makes pictures", "unset")
    return None


def _checked_references(
    references: tuple[ReferenceInput, ...], profile: ModelProfile
) -> tuple[ReferenceInput, ...]:
    allowed = ", ".join(role.value for role in profile.reference_parameters) or "none"
    for reference in references:
        if reference.role not in profile.reference_parameters:
            problem = f"has a {reference.role.value}, which this model does not take"
            raise _wrong("reference_inputs", problem, allowed)
        if reference.media_type not in PICTURE_MEDIA_TYPES:
            problem = f"has media type {reference.media_type[:80]!r}"
            raise _wrong("reference_inputs.media_type", problem, ", ".join(PICTURE_MEDIA_TYPES))
        if not 0 < len(reference.data) <= MAX_REFERENCE_BYTES:
            problem = f"has {len(reference.data)} bytes"
            raise _wrong("reference_inputs.data", problem, f"1 to {MAX_REFERENCE_BYTES} bytes")
    roles = [reference.role for reference in references]
    if len(set(roles)) != len(roles):
        raise _wrong("reference_inputs", "has two of the same role", "one of each role")
    missing = sorted(role.value for role in profile.required_references.difference(roles))
    if missing:
        raise _wrong("reference_inputs", f"lacks the {missing[0]} this model needs", allowed)
    return references


def _checked_adapters(
    adapters: tuple[AdapterSelection, ...], profile: ModelProfile
) -> tuple[AdapterSelection, ...]:
    allowed = ", ".join(profile.adapters) or "none, this executor has no adapters loaded"
    for adapter in adapters:
        if adapter.name not in profile.adapters:
            raise _wrong("adapters", f"names {adapter.name[:80]!r}, which is not loaded", allowed)
        if not -MAX_ADAPTER_SCALE <= adapter.scale <= MAX_ADAPTER_SCALE:
            range_text = f"a finite number from {-MAX_ADAPTER_SCALE:g} to {MAX_ADAPTER_SCALE:g}"
            raise _wrong("adapters.scale", f"is {adapter.scale}", range_text)
    return adapters


def _checked_shift(value: float | None, profile: ModelProfile) -> float | None:
    if value is None:
        return None
    if not profile.shift_key:
        raise _wrong("shift", "is given, but this model's scheduler takes none", "unset")
    if not 0.0 < value <= MAX_SHIFT or not math.isfinite(value):
        raise _wrong("shift", f"is {value}", f"a finite number above 0 and up to {MAX_SHIFT:g}")
    return value
