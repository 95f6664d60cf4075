"""Block-cache settings as other projects' users have them, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone_shared.block_cache_json import (
    block_cache_as_json,
    block_cache_from_text,
    parse_block_cache,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    BlockCacheConfig,
    BlockCachePreset,
    ScmMaskPolicy,
    ScmMaskSource,
    ScmStepsPolicy,
    TaylorSeerCacheType,
)

_integers = st.none() | st.integers(min_value=-(2**31) + 1, max_value=2**31 - 1)
_numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
_booleans = st.none() | st.booleans()
_bins = st.lists(st.integers(min_value=-3, max_value=50), max_size=4).map(tuple)


def _configs(secondary: st.SearchStrategy[Any]) -> st.SearchStrategy[BlockCacheConfig]:
    return st.builds(
        BlockCacheConfig,
        preset=st.none() | st.sampled_from(BlockCachePreset),
        fn_compute_blocks=_integers,
        bn_compute_blocks=_integers,
        max_warmup_steps=_integers,
        warmup_interval=_integers,
        max_cached_steps=_integers,
        max_continuous_cached_steps=_integers,
        residual_diff_threshold=_numbers,
        enable_taylorseer=_booleans,
        taylorseer_order=_integers,
        enable_divided_difference=_booleans,
        scm_steps_mask_policy=st.none() | st.sampled_from(ScmMaskPolicy),
        scm_steps_policy=st.none() | st.sampled_from(ScmStepsPolicy),
        scm_mask_source=st.none() | st.sampled_from(ScmMaskSource),
        compute_bins=_bins,
        cache_bins=_bins,
        report_residual_diffs=st.booleans(),
        secondary=secondary,
        max_accumulated_residual_diff_threshold=_numbers,
        cfg_diff_compute_separate=_booleans,
        taylorseer_cache_type=st.none() | st.sampled_from(TaylorSeerCacheType),
    )


@given(_configs(st.none() | _configs(st.none())))
def test_settings_come_back_from_json_as_they_were(config: BlockCacheConfig) -> None:
    assert parse_block_cache(json.dumps(block_cache_as_json(config))) == config
    assert parse_block_cache(block_cache_as_json(config)) == config


def test_vllm_omnis_defaults_work_as_they_are() -> None:
    text = """{"Fn_compute_blocks": 1, "Bn_compute_blocks": 0, "max_warmup_steps": 4,
        "max_cached_steps": 20, "residual_diff_threshold": 0.24, "max_continuous_cached_steps": 3,
        "enable_taylorseer": false, "taylorseer_order": 1, "scm_steps_mask_policy": null,
        "scm_steps_policy": "dynamic", "num_inference_steps": null,
        "force_refresh_step_hint": null, "force_refresh_step_policy": "once"}"""
    assert block_cache_from_text(text) == BlockCacheConfig(
        fn_compute_blocks=1,
        bn_compute_blocks=0,
        max_warmup_steps=4,
        max_cached_steps=20,
        residual_diff_threshold=0.24,
        max_continuous_cached_steps=3,
        enable_taylorseer=False,
        taylorseer_order=1,
        scm_steps_policy=ScmStepsPolicy.DYNAMIC,
    )


def test_cache_dits_names_work_as_they_are() -> None:
    config = parse_block_cache(
        {
            "cache_config": {
                "cache_type": "DBCache",
                "Fn_compute_blocks": 8,
                "warmup_interval": 2,
                "max_accumulated_residual_diff_threshold": 1,
                "enable_separate_cfg": True,
                "cfg_compute_first": False,
                "cfg_diff_compute_separate": False,
                "num_inference_steps": 6,
                "steps_computation_mask": [1, 1, 1, 0, 0, 1],
                "steps_computation_policy": "static",
                "enable_encoder_taylorseer": True,
            },
            "calibrator_config": {
                "enable_calibrator": True,
                "enable_encoder_calibrator": True,
                "calibrator_type": "taylorseer",
                "calibrator_cache_type": "hidden_states",
                "taylorseer_order": 2,
            },
        }
    )
    assert config == BlockCacheConfig(
        fn_compute_blocks=8,
        warmup_interval=2,
        max_accumulated_residual_diff_threshold=1.0,
        cfg_diff_compute_separate=False,
        compute_bins=(3, 1),
        cache_bins=(2,),
        scm_steps_policy=ScmStepsPolicy.STATIC,
        enable_taylorseer=True,
        taylorseer_cache_type=TaylorSeerCacheType.HIDDEN_STATES,
        taylorseer_order=2,
    )


def test_sglangs_environment_works_as_it_is() -> None:
    environment = {
        "SGLANG_CACHE_DIT_ENABLED": "true",
        "SGLANG_CACHE_DIT_FN": "1",
        "SGLANG_CACHE_DIT_BN": "0",
        "SGLANG_CACHE_DIT_WARMUP": "8",
        "SGLANG_CACHE_DIT_RDT": "0.35",
        "SGLANG_CACHE_DIT_MC": "3",
        "SGLANG_CACHE_DIT_TAYLORSEER": "true",
        "SGLANG_CACHE_DIT_TS_ORDER": "1",
        "SGLANG_CACHE_DIT_SCM_PRESET": "none",
        "SGLANG_CACHE_DIT_SCM_COMPUTE_BINS": "8,3,3,2,2",
        "SGLANG_CACHE_DIT_SCM_CACHE_BINS": "1, 2, 2, 2, 3",
        "SGLANG_CACHE_DIT_SCM_POLICY": "dynamic",
        "SGLANG_CACHE_DIT_DMD": "false",
        "SGLANG_CACHE_DIT_SECONDARY_FN": "2",
        "SGLANG_CACHE_DIT_SECONDARY_BN": "1",
        "SGLANG_CACHE_DIT_SECONDARY_RDT": "0.25",
        "SGLANG_CACHE_DIT_SECONDARY_TAYLORSEER": "0",
    }
    assert parse_block_cache(environment) == BlockCacheConfig(
        fn_compute_blocks=1,
        bn_compute_blocks=0,
        max_warmup_steps=8,
        residual_diff_threshold=0.35,
        max_continuous_cached_steps=3,
        enable_taylorseer=True,
        taylorseer_order=1,
        scm_steps_mask_policy=ScmMaskPolicy.NONE,
        compute_bins=(8, 3, 3, 2, 2),
        cache_bins=(1, 2, 2, 2, 3),
        scm_steps_policy=ScmStepsPolicy.DYNAMIC,
        secondary=BlockCacheConfig(
            fn_compute_blocks=2,
            bn_compute_blocks=1,
            residual_diff_threshold=0.25,
            enable_taylorseer=False,
        ),
    )


def test_sglangs_request_parameters_work_as_they_are() -> None:
    request = {
        "enable_cache_dit": True,
        "cache_dit_params": {
            "residual_diff_threshold": 0.12,
            "scm_preset": "fast",
            "secondary": {"max_warmup_steps": 2},
        },
    }
    assert parse_block_cache(request) == BlockCacheConfig(
        residual_diff_threshold=0.12,
        scm_steps_mask_policy=ScmMaskPolicy.FAST,
        secondary=BlockCacheConfig(max_warmup_steps=2),
    )


def test_a_switch_alone_is_the_defaults_or_off() -> None:
    on = parse_block_cache({"SGLANG_CACHE_DIT_ENABLED": "1"})
    assert on == BlockCacheConfig(fn_compute_blocks=1)
    off = parse_block_cache({"enable_cache_dit": False, "Fn_compute_blocks": 4})
    assert off.preset is BlockCachePreset.NONE


def test_a_named_mask_of_cache_dit_is_the_policy() -> None:
    config = parse_block_cache({"steps_computation_mask": "Medium", "num_inference_steps": 28})
    assert config == BlockCacheConfig(scm_steps_mask_policy=ScmMaskPolicy.MEDIUM)


def test_our_own_names_work_in_any_case() -> None:
    assert parse_block_cache({"FN_COMPUTE_BLOCKS": 2}) == BlockCacheConfig(fn_compute_blocks=2)
    assert parse_block_cache({"preset": "fast", "scm_mask_source": "compat"}) == BlockCacheConfig(
        preset=BlockCachePreset.FAST, scm_mask_source=ScmMaskSource.COMPAT
    )


@pytest.mark.parametrize("preset", list(BlockCachePreset))
def test_a_preset_is_a_word(preset: BlockCachePreset) -> None:
    assert block_cache_from_text(f" {preset.value.upper()}\n") == BlockCacheConfig(preset=preset)


@pytest.mark.parametrize("text", ["", "blanced", "[1]", "1", "null"])
def test_what_is_neither_word_nor_object_says_what_may_be(text: str) -> None:
    with pytest.raises(InvalidArgument, match="none, quality, balanced, fast"):
        block_cache_from_text(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ('{"Fn_compute_blocks": 1,}', "not JSON"),
        ('{"Fn_compute_blocks": 1, "Fn_compute_blocks": 2}', "'Fn_compute_blocks' is given twice"),
        ('{"cache_config": ' * 100_000, "not JSON"),
        ("[1, 2]", "a JSON object"),
    ],
)
def test_text_that_is_no_json_object_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        parse_block_cache(text)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("Fn_compute_block", "Fn_compute_blocks"),
        ("residual_threshold", "residual_diff_threshold"),
        ("max_warmup_step", "max_warmup_steps"),
        ("enable_taylor_seer", "enable_taylorseer"),
        ("SGLANG_CACHE_DIT_WARM_UP", "SGLANG_CACHE_DIT_WARMUP"),
        ("SGLANG_CACHE_DIT_SECONDARY_FNN", "SGLANG_CACHE_DIT_SECONDARY_FN"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_alone(key: str, nearest: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_block_cache({"preset": "fast", key: 1})
    assert caught.value.field == key
    assert f"did you mean {nearest}?" in str(caught.value)
    assert caught.value.allowed is None, "the nearest would drown in all that there are"


def test_an_unknown_key_near_nothing_still_lists_what_is_known() -> None:
    with pytest.raises(InvalidArgument, match=r"unknown key hush.*Fn_compute_blocks"):
        parse_block_cache({"hush": 0.2})


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("Fn_compute_blocks", True, "a whole number"),
        ("Fn_compute_blocks", 1.0, "a whole number"),
        ("Fn_compute_blocks", "1", "a whole number"),
        ("Fn_compute_blocks", 2**31, "a whole number of at most 2147483647"),
        ("max_cached_steps", -(2**31), "a whole number"),
        ("residual_diff_threshold", float("nan"), "a finite number"),
        ("residual_diff_threshold", float("inf"), "a finite number"),
        ("residual_diff_threshold", 10**400, "a finite number"),
        ("residual_diff_threshold", "0.2", "a finite number"),
        ("residual_diff_threshold", False, "a finite number"),
        ("enable_taylorseer", 1, "true or false"),
        ("enable_taylorseer", "true", "true or false"),
        ("enable_cache_dit", "yes", "true or false"),
        ("enable_separate_cfg", "both", "true or false"),
        ("num_inference_steps", "28", "a whole number"),
        ("scm_steps_mask_policy", "faster", "none, slow, medium, fast, ultra"),
        ("scm_steps_policy", 1, "dynamic, static"),
        ("preset", "best", "none, quality, balanced, fast"),
        ("taylorseer_cache_type", "hidden", "residual, hidden_states"),
        ("compute_bins", 4, "a list of whole numbers"),
        ("compute_bins", "4,2", "a list of whole numbers"),
        ("compute_bins", [4, 2.5], "a whole number"),
        ("compute_bins", [4, True], "a whole number"),
        ("secondary", [], "a JSON object"),
        ("cache_config", 3, "a JSON object"),
        ("steps_computation_mask", [1, 2, 0], "a list of 1"),
        ("steps_computation_mask", 110, "a list of 1"),
        ("steps_computation_mask", "fastest", "none, slow, medium, fast, ultra"),
        ("steps_computation_mask", [0, 1, 1], "1 first and a 0 somewhere"),
        ("steps_computation_mask", [1, 1, 1], "preset none"),
        ("steps_computation_mask", [], "1 first and a 0 somewhere"),
        ("force_refresh_step_hint", 14, "null"),
        ("force_refresh_step_policy", "often", '"once" or "repeat" or null'),
        ("cache_type", "DBPrune", '"DBCache" or null'),
        ("enable_dmd", True, "false or null"),
        ("enable_foca", 0, "false or null"),
        ("SGLANG_CACHE_DIT_FN", "one", "a number"),
        ("SGLANG_CACHE_DIT_RDT", "nan", "a finite number"),
        ("SGLANG_CACHE_DIT_TAYLORSEER", "maybe", "true or false"),
        ("SGLANG_CACHE_DIT_SCM_COMPUTE_BINS", "8;3", "whole numbers with commas"),
        ("SGLANG_CACHE_DIT_SECONDARY_DMD", "true", "false or null"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_key(
    key: str, value: object, allowed: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_block_cache({key: value})
    assert caught.value.field == key
    assert key in str(caught.value)
    assert allowed in (caught.value.allowed or "")


def test_a_key_inside_the_secondary_is_named_with_its_path() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_block_cache({"secondary": {"Fn_compute_blocks": "2"}})
    assert caught.value.field == "secondary.Fn_compute_blocks"
    with pytest.raises(InvalidArgument, match=r"unknown key secondary\.Fn_blocks"):
        parse_block_cache({"secondary": {"Fn_blocks": 2}})
    with pytest.raises(InvalidArgument, match="no model has a third"):
        parse_block_cache({"secondary": {"secondary": {}}})


@pytest.mark.parametrize(
    "settings",
    [
        {"Fn_compute_blocks": 1, "fn_compute_blocks": 2},
        {"Fn_compute_blocks": 1, "SGLANG_CACHE_DIT_FN": "2"},
        {"scm_steps_policy": "static", "steps_computation_policy": "dynamic"},
        {"compute_bins": [3, 1], "cache_bins": [1], "steps_computation_mask": [1, 1, 0, 0, 1]},
        {"secondary": {"max_warmup_steps": 1}, "SGLANG_CACHE_DIT_SECONDARY_WARMUP": "2"},
    ],
    ids=str,
)
def test_two_names_that_contradict_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="leave one out"):
        parse_block_cache(settings)


def test_two_names_that_agree_are_one() -> None:
    both = {"Fn_compute_blocks": 1, "SGLANG_CACHE_DIT_FN": "1"}
    assert parse_block_cache(both) == BlockCacheConfig(fn_compute_blocks=1)


@pytest.mark.parametrize(
    "mask",
    [
        {"compute_bins": [8, 3], "cache_bins": [1]},
        {"steps_computation_mask": [1] * 8 + [0] + [1] * 3},
    ],
    ids=str,
)
def test_a_mask_for_another_number_of_steps_is_refused(mask: dict[str, object]) -> None:
    assert parse_block_cache({**mask, "num_inference_steps": 12}).cache_bins == (1,)
    with pytest.raises(InvalidArgument, match="cover 12 steps, but num_inference_steps is 20"):
        parse_block_cache({**mask, "num_inference_steps": 20})


@pytest.mark.parametrize(
    "settings",
    [
        {"cache_config": {"cache_type": "DBCache"}},
        {"num_inference_steps": 28, "enable_separate_cfg": True},
        {"enable_dmd": False},
    ],
    ids=str,
)
def test_options_without_an_effect_here_turn_caching_on_as_elsewhere(
    settings: dict[str, object],
) -> None:
    """Who hands over the settings of a cache and gets none would never be told."""
    assert parse_block_cache(settings) == parse_block_cache({"enable_cache_dit": True})
    assert parse_block_cache(settings) != BlockCacheConfig()
    off = parse_block_cache({**settings, "enable_cache_dit": False})
    assert off.preset is BlockCachePreset.NONE


def test_null_leaves_a_field_to_its_default() -> None:
    nothing = {
        "Fn_compute_blocks": None,
        "secondary": None,
        "cache_config": None,
        "enable_dmd": None,
    }
    assert parse_block_cache(nothing) == BlockCacheConfig()
    assert parse_block_cache({"secondary": {}}).secondary == BlockCacheConfig()
