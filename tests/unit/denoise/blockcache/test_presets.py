"""Presets: what they set, and what a request overrides."""

from __future__ import annotations

import dataclasses

import pytest

from skipstone_denoise.blockcache.config import ModelFacts, resolve_block_cache
from skipstone_denoise.blockcache.presets import PRESETS, overridden, with_preset
from skipstone_denoise.blockcache.setting_rules import fewest_computed
from skipstone_shared.generation import (
    BlockCacheConfig,
    BlockCachePreset,
    ScmMaskPolicy,
    ScmMaskSource,
)

REAL = list(PRESETS)


def test_every_preset_but_none_has_settings() -> None:
    assert set(PRESETS) == set(BlockCachePreset) - {BlockCachePreset.NONE}


def test_presets_rise_from_careful_to_daring() -> None:
    ordered = [
        PRESETS[preset]
        for preset in (BlockCachePreset.QUALITY, BlockCachePreset.BALANCED, BlockCachePreset.FAST)
    ]
    for name in ("residual_diff_threshold", "max_continuous_cached_steps"):
        values = [getattr(settings, name) for settings in ordered]
        assert values == sorted(values), name
        assert values[0] < values[-1], name


@pytest.mark.parametrize("steps", [28, 30, 50, 100])
def test_presets_that_dare_more_may_compute_less(steps: int) -> None:
    """A limit or a mask of its own could make the daring one the slower one."""
    least = []
    for preset in (BlockCachePreset.QUALITY, BlockCachePreset.BALANCED, BlockCachePreset.FAST):
        plan = resolve_block_cache(
            BlockCacheConfig(preset=preset), ModelFacts({"transformer": (10,)}, steps)
        )
        assert plan is not None
        least.append(fewest_computed(plan.settings["transformer"], steps))
    assert least[0] >= least[1] > least[2]


@pytest.mark.parametrize("preset", REAL)
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 6, 8, 12, 20, 28, 50, 100])
def test_presets_fit_every_model_and_number_of_steps(preset: BlockCachePreset, steps: int) -> None:
    config = BlockCacheConfig(preset=preset)
    for blocks in (2, 40):
        assert resolve_block_cache(config, ModelFacts({"transformer": (blocks,)}, steps))
        for boundary in (0, steps // 3, steps):
            dual = ModelFacts({"transformer": (blocks,), "transformer_2": (2, 2)}, steps, boundary)
            plan = resolve_block_cache(config, dual)
            assert plan is not None
            assert list(plan.settings) == ["transformer", "transformer_2"]


@pytest.mark.parametrize("preset", REAL)
def test_a_request_overrides_its_preset_field_by_field(preset: BlockCachePreset) -> None:
    config = BlockCacheConfig(preset=preset, fn_compute_blocks=3, enable_taylorseer=False)
    expected = dataclasses.replace(PRESETS[preset], fn_compute_blocks=3, enable_taylorseer=False)
    assert with_preset(config) == expected


def test_settings_without_a_preset_stay_as_they_are() -> None:
    config = BlockCacheConfig(
        residual_diff_threshold=0.3, secondary=BlockCacheConfig(fn_compute_blocks=2)
    )
    assert with_preset(config) == config


def test_a_presets_secondary_is_the_requests() -> None:
    secondary = BlockCacheConfig(max_warmup_steps=1)
    config = BlockCacheConfig(preset=BlockCachePreset.FAST, secondary=secondary)
    assert with_preset(config).secondary == secondary


def test_a_policy_of_ones_own_is_not_given_the_bases_bins() -> None:
    base = BlockCacheConfig(compute_bins=(4, 1), cache_bins=(2,), residual_diff_threshold=0.1)
    slow = overridden(base, BlockCacheConfig(scm_steps_mask_policy=ScmMaskPolicy.SLOW))
    assert slow == BlockCacheConfig(
        scm_steps_mask_policy=ScmMaskPolicy.SLOW, residual_diff_threshold=0.1
    )
    threshold = overridden(base, BlockCacheConfig(residual_diff_threshold=0.2))
    assert threshold.compute_bins == (4, 1)


def test_a_source_of_ones_own_keeps_the_bases_policy() -> None:
    base = BlockCacheConfig(scm_steps_mask_policy=ScmMaskPolicy.FAST)
    compat = overridden(base, BlockCacheConfig(scm_mask_source=ScmMaskSource.COMPAT))
    assert compat.scm_steps_mask_policy is ScmMaskPolicy.FAST
    assert compat.scm_mask_source is ScmMaskSource.COMPAT


def test_turning_the_forecast_off_or_on_takes_both_its_switches() -> None:
    exact = BlockCacheConfig(enable_divided_difference=True)
    off = BlockCacheConfig(enable_taylorseer=False)
    assert overridden(exact, off) == off
    assert overridden(off, exact) == exact
