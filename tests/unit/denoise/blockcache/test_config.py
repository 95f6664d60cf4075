"""Block-cache settings of a request become settings of each transformer, or a helpful error."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone_denoise.blockcache.config import BlockCachePlan, ModelFacts, resolve_block_cache
from skipstone_denoise.blockcache.presets import PRESETS
from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.step_mask import compat_mask, own_mask, split_mask
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    BlockCacheConfig,
    BlockCachePreset,
    ScmMaskPolicy,
    ScmMaskSource,
    ScmStepsPolicy,
    TaylorSeerCacheType,
)

SINGLE = ModelFacts({"transformer": (10,)}, 28)
DUAL = ModelFacts({"transformer": (10,), "transformer_2": (6,)}, 28, 9)
FAST_MASK = own_mask(ScmMaskPolicy.FAST, 28)


def resolved(model: ModelFacts = SINGLE, **fields: Any) -> BlockCachePlan:
    plan = resolve_block_cache(BlockCacheConfig(**fields), model)
    assert plan is not None
    return plan


def settings(model: ModelFacts = SINGLE, **fields: Any) -> DBCacheSettings:
    return resolved(model, **fields).settings["transformer"]


def refused(model: ModelFacts = SINGLE, **fields: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        resolve_block_cache(BlockCacheConfig(**fields), model)
    assert caught.value.allowed
    return caught.value


@pytest.mark.parametrize(
    "config",
    [
        None,
        BlockCacheConfig(),
        BlockCacheConfig(preset=BlockCachePreset.NONE),
        BlockCacheConfig(preset=BlockCachePreset.NONE, fn_compute_blocks=2),
    ],
)
def test_nothing_asked_for_and_preset_none_are_off(config: BlockCacheConfig | None) -> None:
    assert resolve_block_cache(config, SINGLE) is None
    assert resolve_block_cache(config, DUAL) is None


def test_unset_fields_take_the_documented_defaults() -> None:
    plan = resolved(fn_compute_blocks=1)
    assert plan == BlockCachePlan(
        settings={
            "transformer": DBCacheSettings(
                fn_compute_blocks=1,
                bn_compute_blocks=0,
                max_warmup_steps=4,
                warmup_interval=1,
                max_cached_steps=-1,
                max_continuous_cached_steps=3,
                residual_diff_threshold=0.24,
                taylor_order=1,
            )
        },
        first_steps={"transformer": 0},
    )


def test_every_field_arrives() -> None:
    assert settings(
        fn_compute_blocks=2,
        bn_compute_blocks=3,
        max_warmup_steps=8,
        warmup_interval=2,
        max_cached_steps=6,
        max_continuous_cached_steps=-1,
        residual_diff_threshold=0.12,
        max_accumulated_residual_diff_threshold=1.0,
        enable_taylorseer=True,
        taylorseer_order=2,
        taylorseer_cache_type=TaylorSeerCacheType.HIDDEN_STATES,
        cfg_diff_compute_separate=False,
        scm_steps_mask_policy=ScmMaskPolicy.FAST,
        scm_steps_policy=ScmStepsPolicy.STATIC,
    ) == DBCacheSettings(
        fn_compute_blocks=2,
        bn_compute_blocks=3,
        max_warmup_steps=8,
        warmup_interval=2,
        max_cached_steps=6,
        max_continuous_cached_steps=-1,
        residual_diff_threshold=0.12,
        max_accumulated_residual_diff=1.0,
        forecast=Forecast.TAYLOR,
        taylor_order=2,
        forecast_hidden=True,
        steps_mask=FAST_MASK,
        static_mask=True,
        share_branch_diff=True,
    )


def test_residual_diffs_are_reported_on_demand_and_turn_nothing_else_on() -> None:
    assert resolved(fn_compute_blocks=1, report_residual_diffs=True).report_residual_diffs
    alone = BlockCacheConfig(report_residual_diffs=True)
    assert resolve_block_cache(alone, SINGLE) is None
    assert not resolved(fn_compute_blocks=1).report_residual_diffs
    plan = resolved(
        DUAL, max_warmup_steps=1, secondary=BlockCacheConfig(report_residual_diffs=True)
    )
    assert plan.report_residual_diffs


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_is_the_same_as_its_settings(preset: BlockCachePreset) -> None:
    spelled_out = dataclasses.asdict(PRESETS[preset])
    assert resolved(preset=preset) == resolved(**spelled_out)


def test_forecasts_go_by_their_own_names() -> None:
    assert settings(enable_taylorseer=True).forecast is Forecast.TAYLOR
    assert settings(enable_taylorseer=True).taylor_order == 1
    assert settings(enable_divided_difference=True).forecast is Forecast.DIVIDED_DIFFERENCE
    both = settings(enable_taylorseer=True, enable_divided_difference=True)
    assert both.forecast is Forecast.DIVIDED_DIFFERENCE
    # As vLLM-Omni's defaults have it: an order beside a forecast that is off.
    assert settings(enable_taylorseer=False, taylorseer_order=1).forecast is Forecast.REPEAT


def test_masks_come_from_our_rule_or_from_cache_dit() -> None:
    policy = ScmMaskPolicy.MEDIUM
    assert settings(scm_steps_mask_policy=policy).steps_mask == own_mask(policy, 28)
    compat = settings(scm_steps_mask_policy=policy, scm_mask_source=ScmMaskSource.COMPAT)
    assert compat.steps_mask == compat_mask(policy, 28)
    assert settings(scm_steps_mask_policy=ScmMaskPolicy.NONE).steps_mask is None


def test_bins_override_a_policy() -> None:
    bins = {"compute_bins": (8, 10), "cache_bins": (3, 7)}
    mask = settings(scm_steps_mask_policy=ScmMaskPolicy.ULTRA, **bins).steps_mask
    assert mask == (True,) * 8 + (False,) * 3 + (True,) * 10 + (False,) * 7


def test_a_dual_model_splits_the_mask_where_the_second_transformer_takes_over() -> None:
    plan = resolved(DUAL, scm_steps_mask_policy=ScmMaskPolicy.FAST)
    first, second = split_mask(FAST_MASK, 9)
    assert plan.settings["transformer"].steps_mask == first
    assert plan.settings["transformer_2"].steps_mask == second
    assert plan.first_steps == {"transformer": 0, "transformer_2": 9}


def test_a_dual_models_bins_cover_the_whole_schedule() -> None:
    plan = resolved(DUAL, compute_bins=(8, 4), cache_bins=(4, 12))
    assert plan.settings["transformer"].steps_mask == (True,) * 8 + (False,)
    second = plan.settings["transformer_2"].steps_mask
    assert second == (True, False, False) + (True,) * 4 + (False,) * 12


def test_cache_dits_masks_are_made_for_each_transformers_own_steps() -> None:
    """As the recorded traces of dual models have them."""
    policy = ScmMaskPolicy.MEDIUM
    plan = resolved(DUAL, scm_steps_mask_policy=policy, scm_mask_source=ScmMaskSource.COMPAT)
    assert plan.settings["transformer"].steps_mask == compat_mask(policy, 9)
    assert plan.settings["transformer_2"].steps_mask == compat_mask(policy, 19)


def test_the_second_transformer_takes_over_what_its_own_settings_leave_unset() -> None:
    plan = resolved(
        DUAL,
        fn_compute_blocks=3,
        residual_diff_threshold=0.1,
        enable_taylorseer=True,
        secondary=BlockCacheConfig(fn_compute_blocks=2, max_warmup_steps=6),
    )
    first = DBCacheSettings(
        fn_compute_blocks=3, residual_diff_threshold=0.1, forecast=Forecast.TAYLOR
    )
    assert plan.settings == {
        "transformer": first,
        "transformer_2": dataclasses.replace(first, fn_compute_blocks=2, max_warmup_steps=6),
    }


def test_an_empty_secondary_is_the_same_as_none() -> None:
    policy = ScmMaskPolicy.SLOW
    same = resolved(DUAL, scm_steps_mask_policy=policy, secondary=BlockCacheConfig())
    assert same == resolved(DUAL, scm_steps_mask_policy=policy)


def test_a_secondary_with_a_preset_starts_from_it() -> None:
    secondary = BlockCacheConfig(preset=BlockCachePreset.QUALITY, bn_compute_blocks=1)
    plan = resolved(DUAL, residual_diff_threshold=0.5, secondary=secondary)
    assert plan.settings["transformer"].residual_diff_threshold == 0.5
    second = plan.settings["transformer_2"]
    quality = PRESETS[BlockCachePreset.QUALITY]
    assert second.residual_diff_threshold == quality.residual_diff_threshold
    assert second.bn_compute_blocks == 1


def test_a_secondary_with_preset_none_is_not_cached() -> None:
    off = BlockCacheConfig(preset=BlockCachePreset.NONE)
    plan = resolved(DUAL, preset=BlockCachePreset.BALANCED, secondary=off)
    assert list(plan.settings) == list(plan.first_steps) == ["transformer"]


@pytest.mark.parametrize(
    ("secondary", "mask"),
    [
        ({"scm_steps_mask_policy": ScmMaskPolicy.SLOW}, own_mask(ScmMaskPolicy.SLOW, 19)),
        ({"scm_steps_mask_policy": ScmMaskPolicy.NONE}, None),
        ({"scm_mask_source": ScmMaskSource.COMPAT}, compat_mask(ScmMaskPolicy.FAST, 19)),
        ({"compute_bins": (9,), "cache_bins": (10,)}, (True,) * 9 + (False,) * 10),
    ],
    ids=str,
)
def test_a_mask_of_its_own_is_for_the_second_transformers_steps(
    secondary: dict[str, Any], mask: tuple[bool, ...] | None
) -> None:
    plan = resolved(
        DUAL,
        scm_steps_mask_policy=ScmMaskPolicy.FAST,
        secondary=BlockCacheConfig(**secondary),
    )
    assert plan.settings["transformer"].steps_mask == FAST_MASK[:9]
    assert plan.settings["transformer_2"].steps_mask == mask


@pytest.mark.parametrize("boundary", [0, 28])
def test_a_transformer_without_steps_is_no_trouble(boundary: int) -> None:
    model = dataclasses.replace(DUAL, second_from_step=boundary)
    for source in ScmMaskSource:
        plan = resolved(model, scm_steps_mask_policy=ScmMaskPolicy.FAST, scm_mask_source=source)
        assert plan.notes == ()


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"fn_compute_blocks": 0}, "fn_compute_blocks", "at least 1"),
        ({"fn_compute_blocks": 10}, "fn_compute_blocks", "transformer has 10 blocks: lower"),
        ({"fn_compute_blocks": 10**9}, "fn_compute_blocks", "at most 9"),
        ({"bn_compute_blocks": -1}, "bn_compute_blocks", "at least 0"),
        ({"bn_compute_blocks": 9}, "bn_compute_blocks", "must leave a block between"),
        ({"fn_compute_blocks": 6, "bn_compute_blocks": 4}, "bn_compute_blocks", "9 in all"),
        ({"max_warmup_steps": -1}, "max_warmup_steps", "at least 0"),
        ({"warmup_interval": 0}, "warmup_interval", "1 computes every warm-up step"),
        ({"max_cached_steps": -2}, "max_cached_steps", "-1 is no limit"),
        ({"max_continuous_cached_steps": -2}, "max_continuous_cached_steps", "-1 is no limit"),
        ({"residual_diff_threshold": -0.01}, "residual_diff_threshold", "0 to 1"),
        ({"residual_diff_threshold": 1.01}, "residual_diff_threshold", "0 to 1"),
        ({"residual_diff_threshold": float("nan")}, "residual_diff_threshold", "0 to 1"),
        (
            {"max_accumulated_residual_diff_threshold": 0.0},
            "max_accumulated_residual_diff_threshold",
            "above 0",
        ),
        ({"taylorseer_order": 0}, "taylorseer_order", "1 or 2"),
        ({"enable_taylorseer": True, "taylorseer_order": 3}, "taylorseer_order", "1 or 2"),
        (
            {"enable_taylorseer": False, "enable_divided_difference": True},
            "enable_divided_difference",
            "leave one of them out",
        ),
        ({"compute_bins": (28,)}, "cache_bins", "cache_bins is empty"),
        ({"cache_bins": (28,)}, "compute_bins", "compute_bins is empty"),
        ({"compute_bins": (20, 0), "cache_bins": (8,)}, "compute_bins", "compute_bins holds 0"),
        ({"compute_bins": (20,), "cache_bins": (-8,)}, "cache_bins", "cache_bins holds -8"),
        ({"compute_bins": (20,), "cache_bins": (7,)}, "compute_bins", "27 steps, but there are 28"),
        ({"compute_bins": (10**9,), "cache_bins": (1,)}, "compute_bins", "too many"),
        ({"secondary": BlockCacheConfig()}, "secondary", "one transformer; leave it out"),
    ],
    ids=str,
)
def test_what_is_impossible_names_the_field_and_the_fix(
    fields: dict[str, Any], field: str, says: str
) -> None:
    error = refused(**fields)
    assert error.field == f"params.block_cache.{field}"
    assert says in str(error)


def test_the_shortest_of_several_block_lists_counts() -> None:
    model = ModelFacts({"transformer": (20, 4)}, 28)
    assert settings(model, fn_compute_blocks=3)
    assert "4 blocks in its shortest list" in str(refused(model, fn_compute_blocks=4))


def test_a_model_with_one_block_cannot_be_cached() -> None:
    error = refused(ModelFacts({"transformer": (1,)}, 28), max_warmup_steps=2)
    assert "needs at least 2; leave block_cache unset" in str(error)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"secondary": BlockCacheConfig(fn_compute_blocks=6)}, "secondary.fn_compute_blocks"),
        ({"secondary": BlockCacheConfig(warmup_interval=0)}, "secondary.warmup_interval"),
        (
            {"secondary": BlockCacheConfig(compute_bins=(18,), cache_bins=(2,))},
            "secondary.compute_bins",
        ),
        # Set for both, but only the second transformer is too short for it.
        ({"fn_compute_blocks": 6, "secondary": BlockCacheConfig(max_warmup_steps=1)}, None),
        (
            {"fn_compute_blocks": 1, "secondary": BlockCacheConfig(secondary=BlockCacheConfig())},
            "secondary.secondary",
        ),
    ],
    ids=str,
)
def test_errors_of_the_second_transformer_name_where_it_was_set(
    fields: dict[str, Any], field: str | None
) -> None:
    assert refused(DUAL, **fields).field == f"params.block_cache.{field or 'fn_compute_blocks'}"


def test_a_compatible_mask_that_does_not_exist_is_refused() -> None:
    error = refused(
        ModelFacts({"transformer": (10,)}, 7),
        scm_steps_mask_policy=ScmMaskPolicy.FAST,
        scm_mask_source=ScmMaskSource.COMPAT,
    )
    assert error.field == "params.block_cache.scm_mask_source"


def test_a_compatible_mask_of_the_second_transformer_is_refused_where_it_was_asked_for() -> None:
    """For its share of the steps, which the request nowhere names."""
    compat = BlockCacheConfig(
        scm_steps_mask_policy=ScmMaskPolicy.FAST, scm_mask_source=ScmMaskSource.COMPAT
    )
    blocks = {"transformer": (10,), "transformer_2": (10,)}
    error = refused(ModelFacts(blocks, 20, 13), secondary=compat)
    assert error.field == "params.block_cache.secondary.scm_mask_source"
    assert "this transformer takes 7 steps" in str(error)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_warmup_steps": 2, "max_continuous_cached_steps": -1}, "max_warmup_steps"),
        (
            {
                "scm_steps_mask_policy": ScmMaskPolicy.ULTRA,
                "scm_steps_policy": ScmStepsPolicy.STATIC,
            },
            "scm_steps_mask_policy",
        ),
        (
            {
                "compute_bins": (2, 1),
                "cache_bins": (5,),
                "scm_steps_policy": ScmStepsPolicy.STATIC,
            },
            "compute_bins",
        ),
    ],
    ids=str,
)
def test_a_forecast_needs_four_computed_steps(fields: dict[str, Any], field: str) -> None:
    model = ModelFacts({"transformer": (10,)}, 8)
    for forecast in ("enable_taylorseer", "enable_divided_difference"):
        error = refused(model, **{forecast: True}, **fields)
        assert error.field == f"params.block_cache.{field}"
        assert "at least 4 steps" in str(error)
    assert settings(model, **fields).forecast is Forecast.REPEAT


def test_a_forecast_that_is_never_made_needs_no_steps() -> None:
    model = ModelFacts({"transformer": (10,)}, 3)
    assert settings(model, enable_taylorseer=True).forecast is Forecast.TAYLOR


def test_a_preset_gives_up_its_forecast_where_steps_are_too_few() -> None:
    model = ModelFacts({"transformer": (10,)}, 6)
    short = {"preset": BlockCachePreset.FAST, "max_warmup_steps": 3}
    plan = resolved(model, **short)
    assert plan.settings["transformer"].forecast is Forecast.REPEAT
    assert "may compute only 3 of 6 steps" in plan.notes[0]
    # What the caller asks for by name is refused instead.
    refused(model, **short, enable_taylorseer=True)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_warmup_steps": 28}, "max_warmup_steps 28 covers all 28 steps; lower it"),
        ({"max_warmup_steps": 10**9}, "max_warmup_steps 1000000000 covers all 28 steps"),
        ({"residual_diff_threshold": 0.0}, "residual_diff_threshold is 0; raise it"),
        ({"max_cached_steps": 0}, "max_cached_steps is 0; raise it"),
        ({"max_continuous_cached_steps": 0}, "max_continuous_cached_steps is 0; raise it"),
    ],
    ids=str,
)
def test_settings_that_can_never_reuse_say_so(fields: dict[str, Any], says: str) -> None:
    (note,) = resolved(**fields).notes
    assert note.startswith("transformer never reuses a block: ")
    assert says in note


def test_masks_and_short_schedules_that_never_reuse_say_so() -> None:
    two = ModelFacts({"transformer": (10,)}, 2)
    (note,) = resolved(two, scm_steps_mask_policy=ScmMaskPolicy.ULTRA, max_warmup_steps=0).notes
    assert "its step mask computes every step" in note
    (note,) = resolved(ModelFacts({"transformer": (10,)}, 1), max_warmup_steps=0).notes
    assert "it takes 1 step" in note


def test_settings_that_can_reuse_carry_no_notes() -> None:
    assert resolved(fn_compute_blocks=1).notes == ()
    assert resolved(max_warmup_steps=28, warmup_interval=2).notes == ()
    static = {
        "scm_steps_mask_policy": ScmMaskPolicy.FAST,
        "scm_steps_policy": ScmStepsPolicy.STATIC,
    }
    assert resolved(residual_diff_threshold=0.0, **static).notes == ()


@pytest.mark.parametrize("model", [SINGLE, DUAL], ids=["single", "dual"])
def test_a_static_policy_without_a_mask_says_once_that_it_has_no_effect(model: ModelFacts) -> None:
    (note,) = resolved(model, scm_steps_policy=ScmStepsPolicy.STATIC).notes
    assert "no effect without a step mask" in note


@pytest.mark.parametrize(
    ("blocks", "second_from_step"),
    [({}, None), ({"transformer": (2,)}, 3), ({"a": (2,), "b": (2,)}, None)],
    ids=str,
)
def test_facts_that_contradict_each_other_are_a_bug(
    blocks: dict[str, tuple[int, ...]], second_from_step: int | None
) -> None:
    with pytest.raises(ValueError, match="transformer"):
        ModelFacts(blocks, 8, second_from_step)


_small = st.none() | st.integers(min_value=-2, max_value=12)
_configs = st.builds(
    BlockCacheConfig,
    preset=st.none() | st.sampled_from(BlockCachePreset),
    fn_compute_blocks=_small,
    bn_compute_blocks=_small,
    max_warmup_steps=_small,
    warmup_interval=_small,
    max_cached_steps=_small,
    max_continuous_cached_steps=_small,
    residual_diff_threshold=st.none() | st.floats(),
    enable_taylorseer=st.none() | st.booleans(),
    taylorseer_order=_small,
    enable_divided_difference=st.none() | st.booleans(),
    scm_steps_mask_policy=st.none() | st.sampled_from(ScmMaskPolicy),
    scm_steps_policy=st.none() | st.sampled_from(ScmStepsPolicy),
    scm_mask_source=st.none() | st.sampled_from(ScmMaskSource),
)


@given(
    _configs,
    st.none() | _configs,
    st.integers(min_value=1, max_value=60),
    st.floats(min_value=0, max_value=1),
)
def test_any_settings_are_resolved_or_refused_by_name(
    config: BlockCacheConfig, secondary: BlockCacheConfig | None, steps: int, share: float
) -> None:
    model = ModelFacts({"transformer": (10,), "transformer_2": (6,)}, steps, round(share * steps))
    outcome = plan_or_error(dataclasses.replace(config, secondary=secondary), model)
    if isinstance(outcome, InvalidArgument):
        assert outcome.field is not None
        assert outcome.field.startswith("params.block_cache.")
        assert outcome.allowed
    elif outcome is not None:
        ends = {"transformer": model.second_from_step or 0, "transformer_2": steps}
        for name, part in outcome.settings.items():
            mask = part.steps_mask
            assert mask is None or len(mask) == ends[name] - outcome.first_steps[name]
            assert part.fn_compute_blocks + part.bn_compute_blocks < model.blocks[name][0]


def plan_or_error(
    config: BlockCacheConfig, model: ModelFacts
) -> BlockCachePlan | InvalidArgument | None:
    try:
        return resolve_block_cache(config, model)
    except InvalidArgument as error:
        return error
