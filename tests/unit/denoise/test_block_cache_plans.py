"""Block caching in plans: keys, the executor's default, refusals, declared transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.denoise.engine_rig import PARAMS, Rig, open_rig
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline, wan_dual_pipeline

from skipstone_denoise.blockcache import families
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.metrics import EngineMetrics
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_shared.config import ConfigError, resolve_settings
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    BlockCacheConfig,
    BlockCachePreset,
    GenerationParams,
    ScmStepsPolicy,
    TaylorSeerCacheType,
)

OFF = BlockCacheConfig(preset=BlockCachePreset.NONE)
SOME = BlockCacheConfig(residual_diff_threshold=0.1)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with open_rig(cogview4_pipeline()) as rig:
        yield rig


def with_cache(config: BlockCacheConfig | None) -> GenerationParams:
    return dataclasses.replace(PARAMS, num_frames=1, block_cache=config)


def key(rig: Rig, config: BlockCacheConfig | None) -> str:
    return rig.engine.plan(with_cache(config)).compatibility_key


def test_off_and_unset_and_none_give_the_same_key(rig: Rig) -> None:
    assert key(rig, None) == key(rig, OFF) == key(rig, BlockCacheConfig())
    assert rig.engine.plan(PARAMS).fingerprint.block_cache == ""


@pytest.mark.parametrize(
    "change",
    [
        {"residual_diff_threshold": 0.2},
        {"max_warmup_steps": 2},
        {"enable_taylorseer": True},
        {"max_continuous_cached_steps": 1},
        {"compute_bins": (4, 1), "cache_bins": (1,)},
    ],
    ids=str,
)
def test_settings_that_change_latents_change_the_key(rig: Rig, change: dict[str, Any]) -> None:
    assert key(rig, SOME) != key(rig, None)
    assert key(rig, SOME) != key(rig, dataclasses.replace(SOME, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"report_residual_diffs": True},
        {"fn_compute_blocks": 1},
        {"max_warmup_steps": 4},
        {"taylorseer_order": 2},
        {"taylorseer_cache_type": TaylorSeerCacheType.HIDDEN_STATES},
        {"scm_steps_policy": ScmStepsPolicy.STATIC},
    ],
    ids=str,
)
def test_what_has_no_effect_or_is_the_default_anyway_leaves_the_key(
    rig: Rig, change: dict[str, Any]
) -> None:
    assert key(rig, SOME) == key(rig, dataclasses.replace(SOME, **change))


def test_settings_of_the_second_transformer_are_in_the_key() -> None:
    with open_rig(wan_dual_pipeline()) as rig:
        same = dataclasses.replace(SOME, secondary=SOME)
        other = dataclasses.replace(SOME, secondary=BlockCacheConfig(residual_diff_threshold=0.2))
        assert key(rig, SOME) == key(rig, same) != key(rig, other)


def test_a_plan_planned_again_is_the_same_plan(rig: Rig) -> None:
    """The orchestrator sends back the parameters of the plan, with the seed."""
    for preset in BlockCachePreset:
        plan = rig.engine.plan(with_cache(BlockCacheConfig(preset=preset)))
        assert rig.engine.plan(plan.params).compatibility_key == plan.compatibility_key


def test_a_request_that_says_nothing_gets_the_executors_default() -> None:
    text = '{"residual_diff_threshold": 0.1}'
    with open_rig(cogview4_pipeline(), block_cache=text) as rig:
        assert key(rig, None) == key(rig, SOME) != key(rig, OFF)
        off = rig.engine.plan(with_cache(OFF))
        assert rig.engine.plan(off.params).compatibility_key == off.compatibility_key
        assert rig.run(with_cache(None)).finished.block_cache is not None
        assert rig.run(with_cache(OFF)).finished.block_cache is None


@pytest.mark.parametrize("text", ["balanced", '{"Fn_compute_blocks": 1}', "none", ""])
def test_the_default_is_a_preset_or_the_options_of_cache_dit(text: str) -> None:
    settings, _ = resolve_settings(DenoiseSettings, ["--block-cache", text], {})
    assert settings.block_cache == text


@pytest.mark.parametrize("text", ["blanced", '{"Fn_compute_block": 1}', "{", '{"secondary": 1}'])
def test_a_default_that_is_neither_ends_the_start_before_the_model_is_loaded(text: str) -> None:
    with pytest.raises(ConfigError, match="--block-cache"):
        resolve_settings(DenoiseSettings, ["--block-cache", text], {})


def test_a_default_that_the_model_cannot_do_ends_the_start() -> None:
    with pytest.raises(ModelUnusable, match=r"block_cache.*Fn_compute_blocks|fn_compute_blocks"):
        Rig(cogview4_pipeline(), block_cache='{"Fn_compute_blocks": 5}')


def test_a_request_that_a_default_does_not_fit_is_told_whose_setting_that_is() -> None:
    """A schedule that cache-dit has no mask for, in a request that says nothing of masks."""
    text = '{"scm_steps_mask_policy": "slow", "scm_mask_source": "compat"}'
    with open_rig(cogview4_pipeline(), block_cache=text) as rig:
        params = dataclasses.replace(with_cache(None), num_inference_steps=5)
        with pytest.raises(InvalidArgument, match=r"executor's default.*preset none") as raised:
            rig.engine.plan(params)
        assert raised.value.field == "params.block_cache.scm_mask_source"
        said = with_cache(rig.engine.plan(with_cache(None)).params.block_cache)
        with pytest.raises(InvalidArgument) as raised:
            rig.engine.plan(dataclasses.replace(said, num_inference_steps=5))
        assert "default" not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (BlockCacheConfig(fn_compute_blocks=2), "fn_compute_blocks"),
        (BlockCacheConfig(fn_compute_blocks=0), "fn_compute_blocks"),
        (BlockCacheConfig(residual_diff_threshold=1.5), "residual_diff_threshold"),
        (BlockCacheConfig(residual_diff_threshold=float("nan")), "residual_diff_threshold"),
        (BlockCacheConfig(compute_bins=(1, 1), cache_bins=(1,)), "compute_bins"),
        (BlockCacheConfig(enable_taylorseer=True, taylorseer_order=3), "taylorseer_order"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_before_anything_runs(
    rig: Rig, config: BlockCacheConfig, field: str
) -> None:
    for call in (rig.engine.plan, rig.run):
        with pytest.raises(InvalidArgument) as raised:
            call(with_cache(config))
        assert raised.value.field == f"params.block_cache.{field}"
        assert raised.value.allowed


COGVIEW4 = "CogView4Transformer2DModel"
DECLARATION = {"lists": ["transformer_blocks"], "pattern": "(h,e)->(h,e)"}


@pytest.fixture
def unheard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes CogView4 a transformer that nobody has told us of."""
    rest = [known for known in families.KNOWN_ADAPTERS if known.transformer_class != COGVIEW4]
    monkeypatch.setattr(families, "KNOWN_ADAPTERS", tuple(rest))


@pytest.mark.usefixtures("unheard_of")
def test_an_unknown_transformer_runs_plain_and_says_how_to_declare_it() -> None:
    with open_rig(cogview4_pipeline()) as rig:
        assert not rig.engine.get_capabilities().block_cache_supported
        assert rig.run(with_cache(OFF)).finished.block_cache is None
        with pytest.raises(InvalidArgument, match=f"denoise.block_adapters.{COGVIEW4}") as raised:
            rig.run(with_cache(SOME))
        assert raised.value.field == "params.block_cache"
    with pytest.raises(ModelUnusable, match="block_cache"):
        Rig(cogview4_pipeline(), block_cache="balanced")


@pytest.mark.usefixtures("unheard_of")
def test_a_declared_transformer_is_cached_like_a_known_one(rig: Rig) -> None:
    with open_rig(cogview4_pipeline(), block_adapters={COGVIEW4: DECLARATION}) as declared:
        assert declared.engine.get_capabilities().block_cache_supported
        never = BlockCacheConfig(residual_diff_threshold=0.0)
        assert declared.run(with_cache(never)).picture == rig.run(with_cache(OFF)).picture
        always = BlockCacheConfig(residual_diff_threshold=1.0)
        run, known = declared.run(with_cache(always)), rig.run(with_cache(always))
        assert run.picture == known.picture
        assert run.finished.block_cache == known.finished.block_cache


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pattern": "(h,e)"}, "pattern"),
        ({"lists": ["blocks"]}, "names the block list blocks"),
        ({"list": ["transformer_blocks"]}, "did you mean lists"),
        # Text first: the streams change places, and the model's first step says so.
        ({"pattern": "h->h"}, "does not fit"),
    ],
    ids=str,
)
def test_a_declaration_that_does_not_fit_ends_the_start(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ModelUnusable, match=problem):
        Rig(cogview4_pipeline(), block_adapters={COGVIEW4: {**DECLARATION, **change}})


def test_capabilities_say_whether_blocks_can_be_cached(rig: Rig) -> None:
    assert rig.engine.get_capabilities().block_cache_supported


def test_what_block_caching_did_is_in_the_metrics() -> None:
    with open_rig(wan_dual_pipeline()) as rig:
        config = BlockCacheConfig(
            residual_diff_threshold=1.0, max_warmup_steps=1, max_continuous_cached_steps=1
        )
        rig.run(with_cache(config))
        rig.run(with_cache(config))
        rig.run(with_cache(None))
        registry = CollectorRegistry()
        registry.register(EngineMetrics(rig.engine))

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"skipstone_denoise_{name}_total", labels)

        # Two requests, two branches each; steps 0 to 3 by the first transformer.
        steps = "block_cache_steps"
        assert value(steps, transformer="transformer", kind="computed") == 8
        assert value(steps, transformer="transformer", kind="reused") == 8
        assert value(steps, transformer="transformer_2", kind="computed") == 4
        assert value(steps, transformer="transformer_2", kind="reused") == 4
        decisions = "block_cache_decisions"
        assert value(decisions, transformer="transformer", reason="warm-up") == 4
        assert value("block_calls", kind="run") == 2 * 2 * (2 * 6 - 3)
        assert value("block_calls", kind="saved") == 2 * 2 * 3
