"""What makes two latents non-interchangeable: each item alone gives another compatibility key.

One test per item of the design's list, through the engine and really loaded pipelines, so that an
item that is in the fingerprint but never filled in fails here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import diffusers
import pytest
import torch
from diffusers import (
    CogView4Transformer2DModel,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
)
from peft import LoraConfig
from tests.unit.denoise.engine_rig import PARAMS, STEPS, Rig, open_rig, picture_of
from tests.unit.denoise.tiny_encoders import tiny_tokenizer
from tests.unit.denoise.tiny_pipelines import (
    cogview4_pipeline,
    flux_pipeline,
    pixart_pipeline,
    tiny_autoencoder,
    wan_dual_pipeline,
    wan_image_pipeline,
    wan_pipeline,
)

from skipstone_denoise import fingerprint
from skipstone_shared.errors import CompatibilityMismatch
from skipstone_shared.generation import BlockCacheConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Build = Callable[[], Any]
ONE_FRAME = dataclasses.replace(PARAMS, num_frames=1)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with open_rig(cogview4_pipeline()) as rig:
        yield rig


def key(rig: Rig, **changes: Any) -> str:
    return rig.engine.plan(dataclasses.replace(PARAMS, **changes)).compatibility_key


def key_of(pipeline: Any, *, settings: dict[str, Any] | None = None, **changes: Any) -> str:
    with open_rig(pipeline, **(settings or {})) as rig:
        return key(rig, **changes)


def changed(change: Callable[[Any], object], build: Build = cogview4_pipeline) -> Any:
    """A pipeline that differs from its like in one thing."""
    pipeline = build()
    change(pipeline)
    return pipeline


# Model and what is added to it


def test_the_model_id(rig: Rig) -> None:
    assert key_of(cogview4_pipeline(), settings={"model": "another"}) != key(rig)


def test_the_revision_of_the_model(rig: Rig) -> None:
    assert key_of(cogview4_pipeline(), settings={"model_revision": "v2"}) != key(rig)


def test_one_weight_of_the_denoiser(rig: Rig) -> None:
    def nudge(pipeline: Any) -> None:
        with torch.no_grad():
            pipeline.transformer.proj_out.bias[0] += 1e-3

    assert key_of(changed(nudge)) != key(rig)


def test_the_element_type_of_the_denoiser(rig: Rig) -> None:
    halved = changed(lambda pipeline: pipeline.to(torch.bfloat16))
    assert key_of(halved) != key(rig)


def with_adapter(pipeline: Any, name: str = "style", scale: float = 1.0, seed: int = 0) -> None:
    """Adds a LoRA whose weights are not zero, as a downloaded one's are not."""
    torch.manual_seed(seed)
    transformer: CogView4Transformer2DModel = pipeline.transformer
    config = LoraConfig(r=2, lora_alpha=2, target_modules=["to_q"], init_lora_weights=False)
    transformer.add_adapter(config, adapter_name=name)
    transformer.set_adapters([name], [scale])


@pytest.fixture(scope="module")
def adapted() -> Iterator[Rig]:
    """A rig that began without adapters and got one at run time."""
    with open_rig(cogview4_pipeline()) as rig:
        with_adapter(rig.pipeline)
        yield rig


def test_an_adapter_loaded_at_run_time(rig: Rig, adapted: Rig) -> None:
    """The service is not restarted, and the weights that were hashed at its start are the same."""
    assert key(adapted) != key(rig)
    (told,) = adapted.engine.plan(PARAMS).fingerprint.adapters
    assert (told.name, told.scale) == ("transformer:style", 1.0)
    assert adapted.engine.get_capabilities().adapters == ("style",)
    adapted.pipeline.transformer.disable_adapters()
    assert key(adapted) == key(rig)
    adapted.pipeline.transformer.enable_adapters()
    assert key(adapted) != key(rig)


def test_a_plan_from_before_an_adapter_was_loaded_is_refused() -> None:
    """Plans are kept by the orchestrator: what they promise must not be served with an adapter."""
    with open_rig(cogview4_pipeline()) as rig:
        before, instance = key(rig), rig.engine.get_capabilities().instance_id
        with_adapter(rig.pipeline)
        with pytest.raises(CompatibilityMismatch):
            rig.run(expected_compatibility_key=before)
        assert rig.engine.get_capabilities().instance_id != instance
        assert rig.engine.plan(PARAMS).instance_id != instance


def test_the_weights_of_an_adapter(adapted: Rig) -> None:
    with open_rig(cogview4_pipeline()) as other:
        with_adapter(other.pipeline, seed=1)
        assert key(other) != key(adapted)


def test_the_scale_of_an_adapter(adapted: Rig) -> None:
    before = key(adapted)
    adapted.pipeline.transformer.set_adapters(["style"], [0.5])
    assert key(adapted) != before
    adapted.pipeline.transformer.set_adapters(["style"], [1.0])
    assert key(adapted) == before


def test_the_order_of_adapters() -> None:
    with open_rig(cogview4_pipeline()) as rig:
        with_adapter(rig.pipeline, "style")
        with_adapter(rig.pipeline, "face", seed=1)
        rig.pipeline.transformer.set_adapters(["style", "face"])
        one_way = key(rig)
        rig.pipeline.transformer.set_adapters(["face", "style"])
        assert key(rig) != one_way


def test_an_adapter_that_is_fused_into_the_weights(rig: Rig) -> None:
    with open_rig(cogview4_pipeline()) as other:
        with_adapter(other.pipeline)
        loaded = key(other)
        other.pipeline.transformer.fuse_lora()
        assert len({key(rig), loaded, key(other)}) == 3


# Text encoder, autoencoder, packing


def test_the_weights_of_the_text_encoder(rig: Rig) -> None:
    def nudge(pipeline: Any) -> None:
        with torch.no_grad():
            pipeline.text_encoder.embed_tokens.weight[3] += 1e-3

    assert key_of(changed(nudge)) != key(rig)


def test_the_precision_of_the_text_encoder() -> None:
    """Every weight survives the way to bfloat16 and back here, so that only the type differs."""

    def short(pipeline: Any) -> None:
        encoder = pipeline.text_encoder
        encoder.load_state_dict({n: w.bfloat16() for n, w in encoder.state_dict().items()})

    def halve(pipeline: Any) -> None:
        short(pipeline)
        pipeline.text_encoder.to(torch.bfloat16)

    keys, told = set(), set()
    for change in (short, halve):
        with open_rig(changed(change, wan_pipeline)) as rig:
            keys.add(key(rig, num_frames=1))
            told.add(rig.engine.plan(ONE_FRAME).fingerprint.text_encoder_dtype)
    assert (len(keys), len(told)) == (2, 2)


def test_where_the_tokenizer_cuts_a_prompt(rig: Rig) -> None:
    def cut(pipeline: Any) -> None:
        pipeline.tokenizer.model_max_length = 4

    assert key_of(changed(cut)) != key(rig)


def test_the_words_that_the_tokenizer_knows(rig: Rig) -> None:
    def learn(pipeline: Any) -> None:
        pipeline.tokenizer = tiny_tokenizer()
        pipeline.tokenizer.add_tokens(["ring"])

    assert key_of(changed(learn)) != key(rig)


def test_the_weights_of_the_autoencoder(rig: Rig) -> None:
    def replace(pipeline: Any) -> None:
        torch.manual_seed(99)
        pipeline.register_modules(vae=tiny_autoencoder())

    assert key_of(changed(replace)) != key(rig)


def test_the_scaling_of_the_autoencoder(rig: Rig) -> None:
    def rescale(pipeline: Any) -> None:
        pipeline.vae.register_to_config(scaling_factor=0.5)

    assert key_of(changed(rescale)) != key(rig)


def test_how_latents_are_packed() -> None:
    told = []
    for build in (flux_pipeline, cogview4_pipeline):
        with open_rig(build()) as rig:
            told.append(rig.engine.plan(PARAMS).fingerprint.latent_packing)
    assert told == ["packed", "none"]


# Shape and noise


@pytest.mark.parametrize("side", ["height", "width"])
def test_the_size(rig: Rig, side: str) -> None:
    assert key(rig, **{side: 32}) != key(rig)


def test_the_number_of_frames() -> None:
    with open_rig(wan_pipeline()) as rig:
        assert key(rig, num_frames=5) != key(rig, num_frames=1)


def test_the_class_of_the_scheduler() -> None:
    """Both lists of sigmas are the same; only what is done with them differs."""

    class Renamed(EulerDiscreteScheduler):
        pass

    known, other = (pixart_pipeline(kind()) for kind in (EulerDiscreteScheduler, Renamed))
    with open_rig(known) as first, open_rig(other) as second:
        prints = [r.engine.plan(PARAMS).fingerprint for r in (first, second)]
        assert prints[0].sigmas_hash == prints[1].sigmas_hash
        assert key(first) != key(second)


def test_the_settings_of_the_scheduler(rig: Rig) -> None:
    """`stochastic_sampling` leaves the sigmas as they are and changes every step."""
    other = cogview4_pipeline(FlowMatchEulerDiscreteScheduler(shift=1.5, stochastic_sampling=True))
    with open_rig(other) as noisy:
        prints = [r.engine.plan(PARAMS).fingerprint for r in (rig, noisy)]
        assert prints[0].sigmas_hash == prints[1].sigmas_hash
        assert key(noisy) != key(rig)


def test_the_number_of_steps(rig: Rig) -> None:
    assert key(rig, num_inference_steps=STEPS + 1) != key(rig)


def test_the_shift(rig: Rig) -> None:
    assert key(rig, shift=3.0) != key(rig)


def test_a_size_that_moves_the_sigmas() -> None:
    """Flux shifts by the number of tokens: as wide as it was high gives other noise levels too."""
    with open_rig(flux_pipeline()) as rig:
        small, large = (
            rig.engine.plan(dataclasses.replace(PARAMS, height=side)).fingerprint
            for side in (16, 32)
        )
        assert small.sigmas_hash != large.sigmas_hash


def test_a_library_version_that_changes_sigmas(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a release computes the same schedule in another precision."""
    today = key(rig)
    before = FlowMatchEulerDiscreteScheduler.set_timesteps

    @functools.wraps(before)  # pipelines look at its parameters
    def rounded(self: Any, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        self.sigmas = self.sigmas * (1 - 1e-6)

    monkeypatch.setattr(FlowMatchEulerDiscreteScheduler, "set_timesteps", rounded)
    assert key_of(cogview4_pipeline()) != today


def test_the_version_of_a_library(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a release changes numbers in places that no list of sigmas shows."""
    monkeypatch.setattr(diffusers, "__version__", "99.0")
    assert key_of(cogview4_pipeline()) != key(rig)


def test_what_the_model_predicts() -> None:
    schedulers = [EulerDiscreteScheduler(prediction_type=p) for p in ("epsilon", "v_prediction")]
    keys = {key_of(pixart_pipeline(scheduler)) for scheduler in schedulers}
    assert len(keys) == 2


# Guidance and what else conditions a run


def test_the_guidance_scale(rig: Rig) -> None:
    assert key(rig, guidance_scale=3.5) != key(rig)


def test_the_second_guidance_scale() -> None:
    with open_rig(wan_dual_pipeline()) as rig:
        frames = {"num_frames": 1}
        assert key(rig, guidance_scale_2=4.0, **frames) != key(rig, guidance_scale_2=5.0, **frames)


def test_how_guidance_is_evaluated(rig: Rig) -> None:
    """At scale 1 there is no second branch."""
    plans = [
        rig.engine.plan(dataclasses.replace(PARAMS, guidance_scale=scale)) for scale in (1.0, 3.0)
    ]
    assert plans[0].fingerprint.guidance_mode != plans[1].fingerprint.guidance_mode
    assert plans[0].compatibility_key != plans[1].compatibility_key


def test_the_negative_prompt(rig: Rig) -> None:
    assert key(rig, negative_prompt="blue") != key(rig)


def test_a_reference_input() -> None:
    with open_rig(wan_image_pipeline()) as rig:
        keys = {
            key(rig, num_frames=5, reference_inputs=(picture_of(colour),))
            for colour in ("red", "blue")
        }
        assert len(keys) == 2


def test_the_boundary_between_two_experts() -> None:
    def move(pipeline: Any) -> None:
        pipeline.register_to_config(boundary_ratio=0.8)

    keys = {key_of(changed(lambda _: None, wan_dual_pipeline), num_frames=1)}
    keys.add(key_of(changed(move, wan_dual_pipeline), num_frames=1))
    assert len(keys) == 2


# What Skipstone itself does to latents


def test_block_caching(rig: Rig) -> None:
    cached = BlockCacheConfig(residual_diff_threshold=0.2)
    assert key(rig, block_cache=cached) != key(rig)


def test_a_setting_of_block_caching(rig: Rig) -> None:
    keys = {
        key(rig, block_cache=BlockCacheConfig(residual_diff_threshold=threshold))
        for threshold in (0.1, 0.2)
    }
    assert len(keys) == 2


def test_the_version_of_the_snapshot_format(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "POLICY_VERSION", "snapshot-next")
    assert key_of(cogview4_pipeline()) != key(rig)


def test_neither_prompt_nor_seed(rig: Rig) -> None:
    """The control: what may differ between a donor and its user is not in the key."""
    assert key(rig, prompt="a small blue square", seed=None) == key(rig)
