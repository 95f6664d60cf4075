"""Parameters cross the wire unchanged: what is unset stays unset, what is 0 stays 0."""

from __future__ import annotations

import dataclasses
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.generation.v1 import generation_pb2
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    AdapterSelection,
    BlockCacheConfig,
    BlockCachePreset,
    BlockCacheReport,
    BranchReport,
    GenerationParams,
    ReferenceInput,
    ReferenceRole,
    ScmMaskPolicy,
    ScmMaskSource,
    ScmStepsPolicy,
    StepProgress,
    TaylorSeerCacheType,
    VideoFormat,
)
from skipstone_shared.generation_messages import (
    block_cache_from_message,
    block_cache_report_from_message,
    block_cache_report_to_message,
    block_cache_to_message,
    enum_to_message,
    params_from_message,
    params_to_message,
    progress_from_message,
    progress_to_message,
)
from skipstone_shared.orchestration import CacheOptions
from skipstone_shared.orchestration_messages import cache_options_to_message

_INT32 = st.none() | st.integers(-(2**31), 2**31 - 1)
_DOUBLE = st.none() | st.floats(allow_nan=False)
_BINS = st.lists(st.integers(0, 100), max_size=4).map(tuple)


def _optional(kind: type[Enum]) -> st.SearchStrategy[Enum | None]:
    return st.none() | st.sampled_from(kind)


def _block_caches(secondary: st.SearchStrategy[BlockCacheConfig | None]) -> st.SearchStrategy:
    return st.builds(
        BlockCacheConfig,
        preset=_optional(BlockCachePreset),
        fn_compute_blocks=_INT32,
        max_cached_steps=_INT32,
        residual_diff_threshold=_DOUBLE,
        enable_taylorseer=st.none() | st.booleans(),
        scm_steps_mask_policy=_optional(ScmMaskPolicy),
        scm_steps_policy=_optional(ScmStepsPolicy),
        scm_mask_source=_optional(ScmMaskSource),
        compute_bins=_BINS,
        cache_bins=_BINS,
        report_residual_diffs=st.booleans(),
        secondary=secondary,
        max_accumulated_residual_diff_threshold=_DOUBLE,
        cfg_diff_compute_separate=st.none() | st.booleans(),
        taylorseer_cache_type=_optional(TaylorSeerCacheType),
    )


BLOCK_CACHES = _block_caches(st.none() | _block_caches(st.none()))
PARAMS = st.builds(
    GenerationParams,
    prompt=st.text(max_size=50),
    negative_prompt=st.text(max_size=50),
    num_inference_steps=_INT32,
    guidance_scale=_DOUBLE,
    guidance_scale_2=_DOUBLE,
    height=_INT32,
    num_frames=_INT32,
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    reference_inputs=st.lists(
        st.builds(ReferenceInput, st.sampled_from(ReferenceRole), st.text(max_size=9), st.binary()),
        max_size=2,
    ).map(tuple),
    adapters=st.lists(
        st.builds(AdapterSelection, st.text(max_size=9), st.floats(allow_nan=False)), max_size=2
    ).map(tuple),
    block_cache=st.none() | BLOCK_CACHES,
    shift=_DOUBLE,
    video_format=_optional(VideoFormat),
)


@given(PARAMS)
def test_parameters_come_back_as_they_were_sent(params: GenerationParams) -> None:
    assert params_from_message(params_to_message(params)) == params


def test_an_adapter_without_a_scale_has_scale_one() -> None:
    message = generation_pb2.GenerationParams(
        prompt="p", adapters=[generation_pb2.AdapterSelection(name="style")]
    )
    assert params_from_message(message).adapters == (AdapterSelection("style", 1.0),)


@pytest.mark.parametrize(
    "kind",
    [ReferenceRole, BlockCachePreset, ScmMaskPolicy, ScmStepsPolicy, ScmMaskSource, VideoFormat],
)
def test_every_value_of_an_enum_has_a_message_value_of_its_own(kind: type[Enum]) -> None:
    numbers = {enum_to_message(member) for member in kind}
    assert len(numbers) == len(kind)
    assert 0 not in numbers


def test_an_unknown_enum_value_is_refused_with_its_field() -> None:
    message = generation_pb2.BlockCacheConfig()
    # An enum value of a later version, as it arrives over the wire.
    message.MergeFromString(b"\x08\x63")
    with pytest.raises(InvalidArgument) as caught:
        block_cache_from_message(message)
    assert caught.value.field == "block_cache.preset"
    assert "quality" in str(caught.value)


def test_a_reference_input_without_a_role_is_refused() -> None:
    message = generation_pb2.GenerationParams(
        prompt="p", reference_inputs=[generation_pb2.ReferenceInput(data=b"x")]
    )
    with pytest.raises(InvalidArgument) as caught:
        params_from_message(message)
    assert caught.value.field == "reference_inputs.role"


def test_a_secondary_inside_a_secondary_is_refused() -> None:
    inner = BlockCacheConfig(secondary=BlockCacheConfig(secondary=BlockCacheConfig()))
    with pytest.raises(InvalidArgument):
        block_cache_from_message(block_cache_to_message(inner))


def test_reports_come_back_as_they_were_sent() -> None:
    report = BlockCacheReport(
        branches=(BranchReport("transformer", "cond", (0, 1), (2,), {"threshold": 1}, (0.5,)),),
        block_calls=17,
        block_calls_full=24,
        notes=("transformer never reuses a block",),
    )
    assert block_cache_report_from_message(block_cache_report_to_message(report)) == report
    progress = StepProgress(3, 30, 0.125, block_cache_reused=True)
    assert progress_from_message(progress_to_message(progress)) == progress


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_inference_steps", 99_999_999_999),
        ("height", -99_999_999_999),
        ("seed", 2**63),
        ("prompt", "a \udcff"),
        ("negative_prompt", "a \udcff"),
    ],
)
def test_a_value_that_no_message_holds_is_bad_input_that_names_the_field(
    field: str, value: object
) -> None:
    params = dataclasses.replace(GenerationParams("a fox"), **{field: value})
    with pytest.raises(InvalidArgument) as caught:
        params_to_message(params)
    assert caught.value.field == field


def test_a_cache_option_that_no_message_holds_is_bad_input_too() -> None:
    with pytest.raises(InvalidArgument, match="max_skip_steps"):
        cache_options_to_message(CacheOptions(max_skip_steps=2**40))
