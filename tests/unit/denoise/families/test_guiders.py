"""Guiders of diffusers in the place of a model's own: what they allow and what they leave."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from diffusers.guiders import (
    AdaptiveProjectedGuidance,
    AutoGuidance,
    BaseGuidance,
    ClassifierFreeGuidance,
    PerturbedAttentionGuidance,
    SkipLayerGuidance,
    SmoothedEnergyGuidance,
)
from tests.unit.denoise.engine_rig import EVERY_STEP, PARAMS, STEPS, Rig, open_rig, trajectory
from tests.unit.denoise.families.video_pipelines import hunyuan_video_15

from skipstone_denoise.computing import computing_facts
from skipstone_denoise.concurrency import check_concurrency
from skipstone_denoise.guiders import check_guiders, unhook
from skipstone_denoise.model_folder import ModelUnusable
from skipstone_shared.denoise_runs import ResumeKind
from skipstone_shared.generation import BlockCacheConfig

pytestmark = pytest.mark.filterwarnings("ignore")

VIDEO = dataclasses.replace(PARAMS, num_frames=5, guidance_scale=None)
SKIP_LAYER = {
    "skip_layer_config": [{"indices": [1], "skip_attention": False}],
    "skip_layer_guidance_start": 0.0,
    "skip_layer_guidance_stop": 1.0,
}


def guided_by(guider: BaseGuidance) -> Any:
    pipeline = hunyuan_video_15()
    pipeline.guider = guider
    pipeline.tokenizer_max_length = 40  # a thousand tokens show no more
    return pipeline


def open_guided(guider: BaseGuidance) -> Any:
    return open_rig(guided_by(guider), max_concurrent_requests=1)


@pytest.mark.parametrize(
    "guider",
    [
        SkipLayerGuidance(**SKIP_LAYER),
        PerturbedAttentionGuidance(perturbed_guidance_layers=[1]),
        AutoGuidance(auto_guidance_layers=[1], dropout=1.0),
        SmoothedEnergyGuidance(seg_guidance_layers=[1]),
    ],
    ids=lambda guider: type(guider).__name__,
)
def test_a_guider_that_hooks_the_transformer_wants_it_alone(guider: BaseGuidance) -> None:
    """Two requests would skip layers in each other's predictions."""
    pipeline = guided_by(guider)
    with pytest.raises(ModelUnusable, match=f"must be 1: the guider, a {type(guider).__name__}"):
        check_concurrency(pipeline, 2)
    check_concurrency(pipeline, 1)


def test_a_guider_that_hooks_nothing_shares_the_transformer() -> None:
    for guider in (ClassifierFreeGuidance(), AdaptiveProjectedGuidance()):
        check_concurrency(guided_by(guider), 2)


def test_what_a_plan_leaves_behind_takes_no_hook_off_a_run_beside_it() -> None:
    pipeline = guided_by(
        AutoGuidance(auto_guidance_config=[{"indices": [1], "skip_attention": False}])
    )
    of_run, of_plan = copy.deepcopy(pipeline.guider), copy.deepcopy(pipeline.guider)
    of_run.set_state(1, STEPS, None)
    for _ in range(2):
        of_run.prepare_models(pipeline.transformer)
    assert hooks_of(pipeline) == ["AutoGuidance_0"]
    unhook(pipeline, {"guider": of_plan})
    assert hooks_of(pipeline) == ["AutoGuidance_0"]
    unhook(pipeline, {"guider": of_run})
    assert hooks_of(pipeline) == []


def hooks_of(pipeline: Any) -> list[str]:
    registries = (getattr(m, "_diffusers_hook", None) for m in pipeline.transformer.modules())
    return sorted({name for found in registries if found is not None for name in found.hooks})


def test_a_guider_that_drops_at_random_is_refused() -> None:
    guider = AutoGuidance(auto_guidance_layers=[1], dropout=0.5)
    with pytest.raises(ModelUnusable, match="drops a share of a layer at random"):
        check_guiders(guided_by(guider))


def test_a_guider_whose_hooks_do_not_fit_is_told_at_the_start() -> None:
    """diffusers skips whole blocks of classes that it knows; a first step would not show it."""
    guider = SkipLayerGuidance(**SKIP_LAYER | {"skip_layer_config": [{"indices": [1]}]})
    with pytest.raises(ModelUnusable, match=r"cannot hook the transformer: .* not registered"):
        check_guiders(guided_by(guider))


def test_which_guider_guides_and_whether_it_does_is_told() -> None:
    off = ClassifierFreeGuidance()
    off.disable()
    guiders = [ClassifierFreeGuidance(), off, ClassifierFreeGuidance(guidance_scale=3.0)]
    assert len({computing_facts(guided_by(guider))["details"] for guider in guiders}) == 3


@pytest.mark.long
def test_guidance_with_momentum_is_not_resumed_in_between() -> None:
    """What it remembers is in no snapshot."""
    with open_guided(AdaptiveProjectedGuidance(adaptive_projected_guidance_momentum=-0.5)) as rig:
        assert rig.engine.get_capabilities().resume_kinds == (ResumeKind.DECODE,)
        full = rig.run(VIDEO, snapshots=EVERY_STEP)
        assert sorted(full.refs) == [STEPS]


@pytest.mark.long
@pytest.mark.parametrize("block_cache", [None, BlockCacheConfig(max_warmup_steps=1)])
def test_a_run_by_skipped_layers_resumes_exactly_and_leaves_no_hook_when_it_fails(
    block_cache: BlockCacheConfig | None,
) -> None:
    params = dataclasses.replace(VIDEO, block_cache=block_cache)
    with open_guided(SkipLayerGuidance(**SKIP_LAYER)) as rig:
        full = rig.run(params, snapshots=EVERY_STEP)
        if block_cache is None:
            assert rig.run(params, resume=trajectory(full.refs[3])).picture == full.picture
        fail_in_the_third_prediction_of_a_step(rig)
        assert rig.run(params).picture == full.picture


def fail_in_the_third_prediction_of_a_step(rig: Rig) -> None:
    """It is the one in which layers are skipped."""
    last = rig.pipeline.transformer.transformer_blocks[-1]
    calls = iter(range(1000))

    def third(*_: Any) -> None:
        # Two in the first step, which skips nothing.
        if next(calls) == 4:
            raise RuntimeError("no memory")

    handle = last.register_forward_pre_hook(third)
    with pytest.raises(RuntimeError, match="no memory"):
        rig.run(VIDEO)
    handle.remove()
