"""Bad parameters are refused by name, with what is allowed; defaults are filled in."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from skipstone_denoise.model_profile import ModelProfile
from skipstone_denoise.parameters import filled_parameters
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    AdapterSelection,
    BlockCacheConfig,
    BlockCachePreset,
    GenerationParams,
    ReferenceInput,
    ReferenceRole,
    VideoFormat,
)

PICTURES = ModelProfile(
    call_parameters=frozenset({"prompt", "negative_prompt", "guidance_scale"}),
    default_steps=30,
    max_steps=1000,
    default_guidance_scale=5.0,
    default_height=64,
    default_width=64,
    size_multiple=16,
    min_size=32,
    max_size=128,
)
VIDEOS = dataclasses.replace(
    PICTURES,
    call_parameters=PICTURES.call_parameters | {"num_frames"},
    second_guidance="guidance_scale_2",
    default_num_frames=81,
    max_num_frames=129,
    frame_step=4,
    shift_key="flow_shift",
    adapters=("ink",),
    reference_parameters={ReferenceRole.IMAGE: "image"},
)
FROM_PICTURE = dataclasses.replace(VIDEOS, required_references=frozenset({ReferenceRole.IMAGE}))
DISTILLED = dataclasses.replace(PICTURES, call_parameters=frozenset({"prompt"}))
PNG = ReferenceInput(ReferenceRole.IMAGE, "image/png", b"x")


@pytest.mark.parametrize(
    ("profile", "field", "value", "allowed"),
    [
        (PICTURES, "prompt", "", "1 to 20000 bytes"),
        (PICTURES, "prompt", " \n\t", "not all white space"),
        (PICTURES, "prompt", "x" * 20_001, "1 to 20000 bytes"),
        (PICTURES, "prompt", "é" * 10_001, "1 to 20000 bytes"),
        (PICTURES, "negative_prompt", "x" * 1_000_000, "0 to 20000 bytes"),
        (DISTILLED, "negative_prompt", "blue", "empty"),
        (PICTURES, "num_inference_steps", 0, "1 to 1000"),
        (PICTURES, "num_inference_steps", 100_000, "1 to 1000"),
        (PICTURES, "num_inference_steps", -5, "1 to 1000"),
        (PICTURES, "guidance_scale", float("nan"), "0 to 100"),
        (PICTURES, "guidance_scale", float("inf"), "0 to 100"),
        (PICTURES, "guidance_scale", -1.0, "0 to 100"),
        (PICTURES, "guidance_scale", 100.5, "0 to 100"),
        (DISTILLED, "guidance_scale", 3.0, "unset"),
        (PICTURES, "guidance_scale_2", 3.0, "unset"),
        (VIDEOS, "guidance_scale_2", float("nan"), "0 to 100"),
        (PICTURES, "height", 72, "multiples of 16 from 32 to 128"),
        (PICTURES, "height", 16, "from 32 to 128"),
        (PICTURES, "width", 144, "from 32 to 128"),
        (PICTURES, "width", 0, "from 32 to 128"),
        (PICTURES, "width", -64, "from 32 to 128"),
        (PICTURES, "num_frames", 2, "1 or unset"),
        (VIDEOS, "num_frames", 0, "1 to 129"),
        (PICTURES, "video_format", VideoFormat.GIF, "unset"),
        (VIDEOS, "num_frames", 133, "1 to 129"),
        (VIDEOS, "num_frames", 80, "one more than a multiple of 4"),
        (PICTURES, "seed", -1, "0 to 9223372036854775807"),
        (PICTURES, "seed", 2**63, "0 to 9223372036854775807"),
        (PICTURES, "adapters", (AdapterSelection("ink"),), "no adapters loaded"),
        (VIDEOS, "adapters", (AdapterSelection("oil"),), "ink"),
        (VIDEOS, "adapters.scale", (AdapterSelection("ink", 11.0),), "-10 to 10"),
        (VIDEOS, "adapters.scale", (AdapterSelection("ink", float("nan")),), "-10 to 10"),
        (PICTURES, "reference_inputs", (PNG,), "none"),
        (VIDEOS, "reference_inputs", (PNG, PNG), "one of each role"),
        (
            VIDEOS,
            "reference_inputs",
            (ReferenceInput(ReferenceRole.MASK, "image/png", b"x"),),
            "image",
        ),
        (
            VIDEOS,
            "reference_inputs.media_type",
            (ReferenceInput(ReferenceRole.IMAGE, "text/html", b"x"),),
            "image/png, image/jpeg",
        ),
        (
            VIDEOS,
            "reference_inputs.data",
            (ReferenceInput(ReferenceRole.IMAGE, "image/png", b""),),
            "1 to 3145728 bytes",
        ),
        (FROM_PICTURE, "reference_inputs", (), "image"),
        (PICTURES, "shift", 3.0, "unset"),
        (VIDEOS, "shift", 0.0, "above 0 and up to 100"),
        (VIDEOS, "shift", float("inf"), "above 0 and up to 100"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(
    profile: ModelProfile, field: str, value: Any, allowed: str
) -> None:
    params = GenerationParams(**{"prompt": "a red circle", field.partition(".")[0]: value})
    with pytest.raises(InvalidArgument) as raised:
        filled_parameters(params, profile)
    assert raised.value.field == f"params.{field}"
    assert allowed in str(raised.value)
    # A megabyte of prompt must not come back in the message.
    assert len(str(raised.value)) < 300


def test_defaults_are_filled_in_except_for_the_seed() -> None:
    filled = filled_parameters(GenerationParams("a red circle"), VIDEOS)
    assert filled == GenerationParams(
        "a red circle",
        num_inference_steps=30,
        guidance_scale=5.0,
        height=64,
        width=64,
        num_frames=81,
        video_format=VideoFormat.MP4,
    )


@pytest.mark.parametrize("config", [BlockCacheConfig(), BlockCacheConfig(BlockCachePreset.NONE)])
def test_block_caching_that_is_turned_off_stays_off_whatever_the_default(
    config: BlockCacheConfig,
) -> None:
    """Filled parameters are filled again when the orchestrator sends them back."""
    default = BlockCacheConfig(BlockCachePreset.FAST)
    profile = dataclasses.replace(PICTURES, default_block_cache=default)
    params = GenerationParams("a red circle", block_cache=config)
    assert filled_parameters(params, profile).block_cache == config
    silent = GenerationParams("a red circle")
    assert filled_parameters(silent, profile).block_cache == default


def test_who_asks_only_to_be_told_the_differences_keeps_the_default() -> None:
    default = BlockCacheConfig(BlockCachePreset.FAST)
    profile = dataclasses.replace(PICTURES, default_block_cache=default)
    told = BlockCacheConfig(report_residual_diffs=True)
    params = GenerationParams("a red circle", block_cache=told)
    kept = dataclasses.replace(default, report_residual_diffs=True)
    assert filled_parameters(params, profile).block_cache == kept
    assert filled_parameters(params, PICTURES).block_cache == told


def test_values_at_the_ends_of_their_ranges_are_accepted() -> None:
    params = GenerationParams(
        "x" * 20_000,
        num_inference_steps=1000,
        guidance_scale=0.0,
        height=128,
        width=32,
        num_frames=129,
        video_format=VideoFormat.GIF,
        seed=2**63 - 1,
        adapters=(AdapterSelection("ink", -10.0),),
        shift=100.0,
    )
    assert filled_parameters(params, VIDEOS) == params
