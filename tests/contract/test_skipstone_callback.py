"""Reuse in a script of one's own: real pipeline classes, a real orchestrator, a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import EulerDiscreteScheduler, HeunDiscreteScheduler
from diffusers.guiders import AdaptiveProjectedGuidance
from PIL import Image
from tests.contract.reuse_rig import ReuseRig, open_reuse_rig
from tests.contract.test_reuse_session import closed_port
from tests.unit.denoise.engine_rig import PARAMS, MemoryLatents
from tests.unit.denoise.families.video_pipelines import hunyuan_video_15
from tests.unit.denoise.tiny_pipelines import (
    cogview4_pipeline,
    flux_pipeline,
    pixart_pipeline,
    wan_dual_pipeline,
    wan_image_pipeline,
    wan_pipeline,
)

from skipstone_client import ReuseSession
from skipstone_denoise.callback import SkipstoneCallback
from skipstone_denoise.callback_arguments import NotCacheable, argument_hash
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.diffusers_engine import DiffusersEngine
from skipstone_denoise.pipeline_loader import prepared_pipeline
from skipstone_shared.orchestration import CacheOptions, HitTier, ReuseKind

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers.*")

STEPS = 6
PROMPT = "a red circle"
NEAR = "a red square"
TRAJECTORY = CacheOptions(allow_exact=False, reuse_kind=ReuseKind.TRAJECTORY, key_steps=(1, 2, 3))
RENOISE = CacheOptions(allow_exact=False, reuse_kind=ReuseKind.RENOISE)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models of a few numbers: more threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def rig() -> Iterator[ReuseRig]:
    with open_reuse_rig() as opened:
        yield opened


def seeded(seed: int) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


def arguments(seed: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "num_inference_steps": STEPS,
        "height": 16,
        "width": 16,
        "generator": seeded(seed),
        "output_type": "np",
        **more,
    }


def picture(output: Any) -> np.ndarray[Any, Any]:
    return np.asarray(output[0])


Make = Callable[[], Any]

UNBINNED = {"use_resolution_binning": False}
PIPELINES = [
    pytest.param(cogview4_pipeline, {"guidance_scale": 3.0}, id="flow Euler"),
    pytest.param(pixart_pipeline, UNBINNED, id="DDIM, no step callback"),
    pytest.param(wan_pipeline, {"num_frames": 5}, id="UniPC with its memory"),
    pytest.param(flux_pipeline, {}, id="packed latents", marks=pytest.mark.long),
    pytest.param(
        lambda: pixart_pipeline(EulerDiscreteScheduler()),
        UNBINNED,
        id="VE Euler",
        marks=pytest.mark.long,
    ),
    pytest.param(
        wan_dual_pipeline, {"num_frames": 5}, id="two transformers", marks=pytest.mark.long
    ),
    pytest.param(
        wan_image_pipeline,
        {"num_frames": 5, "image": Image.new("RGB", (16, 16), "red")},
        id="a picture to begin with",
        marks=pytest.mark.long,
    ),
]


@pytest.mark.parametrize(("make", "more"), PIPELINES)
def test_a_call_resumed_from_its_own_snapshot_is_the_plain_call_bit_for_bit(
    rig: ReuseRig, make: Make, more: dict[str, Any]
) -> None:
    pipeline = prepared_pipeline(make())
    plain = picture(pipeline(prompt=PROMPT, **arguments(**more)))
    with rig.session(namespace="own", cache=TRAJECTORY) as session:
        skipstone = SkipstoneCallback(pipeline, session, model_id=str(id(pipeline)))
        full = picture(skipstone(prompt=PROMPT, **arguments(**more)))
        assert skipstone.flush(30.0)
        assert skipstone.provenance is not None
        assert skipstone.provenance.saved is True
        assert skipstone.provenance.failures == {}
        resumed = picture(skipstone(prompt=PROMPT, **arguments(**more)))
        told = skipstone.provenance
        assert (told.tier, told.kind) == (HitTier.APPROXIMATE, ReuseKind.TRAJECTORY)
        assert told.skip_steps > 0
        skipstone_exact = SkipstoneCallback(
            pipeline, session, model_id=str(id(pipeline)), cache=CacheOptions()
        )
        exact = picture(skipstone_exact(prompt=PROMPT, **arguments(**more)))
        assert skipstone_exact.provenance is not None
        assert skipstone_exact.provenance.tier is HitTier.EXACT
    assert plain.tobytes() == full.tobytes() == resumed.tobytes() == exact.tobytes()


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return prepared_pipeline(cogview4_pipeline())


@pytest.fixture(scope="module")
def skipstone(rig: ReuseRig, pipeline: Any) -> Iterator[SkipstoneCallback]:
    with rig.session(namespace="shared", cache=RENOISE) as session:
        yield SkipstoneCallback(pipeline, session)


def test_another_seed_starts_from_the_donor_and_gets_another_picture(
    skipstone: SkipstoneCallback,
) -> None:
    first = picture(skipstone(PROMPT, **arguments(1)))
    assert skipstone.flush(30.0)
    second = picture(skipstone(PROMPT, **arguments(2)))
    told = skipstone.provenance
    assert told is not None
    assert (told.tier, told.kind) == (HitTier.APPROXIMATE, ReuseKind.RENOISE)
    assert told.skip_steps > 0
    assert not np.array_equal(first, second)


def test_calls_that_differ_in_anything_but_the_prompt_share_nothing(
    skipstone: SkipstoneCallback,
) -> None:
    skipstone(PROMPT, **arguments(1))
    assert skipstone.flush(30.0)
    for change in (
        {"guidance_scale": 5.5},
        {"negative_prompt": "a blue square"},
        {"height": 32},
        {"num_inference_steps": STEPS + 1},
        {"max_sequence_length": 32},
    ):
        skipstone(PROMPT, **arguments(1, **change))
        told = skipstone.provenance
        assert told is not None
        assert (told.tier, told.reason) == (HitTier.MISS, "NO_CANDIDATE"), change


def test_calls_of_a_pipeline_that_computes_in_another_way_share_nothing(
    skipstone: SkipstoneCallback, pipeline: Any
) -> None:
    """Looked at in every call, since a script may switch it between two of them."""

    def tier() -> HitTier:
        skipstone("a blue circle", **arguments(1))
        assert skipstone.flush(30.0)
        assert skipstone.provenance is not None
        return skipstone.provenance.tier

    assert [tier(), tier()] == [HitTier.MISS, HitTier.APPROXIMATE]
    pipeline.vae.enable_tiling()
    try:
        assert tier() is HitTier.MISS
    finally:
        pipeline.vae.disable_tiling()
    assert tier() is HitTier.APPROXIMATE


def test_a_guider_with_momentum_that_is_set_later_is_not_resumed_in_between(rig: ReuseRig) -> None:
    """No snapshot tells of the momentum, so the picture would be another."""
    pipeline = prepared_pipeline(hunyuan_video_15())
    pipeline.tokenizer_max_length = 40  # a thousand tokens show no more
    with rig.session(namespace="guider", cache=TRAJECTORY) as session:
        skipstone = SkipstoneCallback(pipeline, session)
        for momentum, kind in ((None, ReuseKind.TRAJECTORY), (-0.5, None)):
            pipeline.guider = AdaptiveProjectedGuidance(
                adaptive_projected_guidance_momentum=momentum
            )
            for expected in (None, kind):
                skipstone(prompt=PROMPT, **arguments(num_frames=1))
                assert skipstone.flush(30.0)
                assert skipstone.provenance is not None
                assert skipstone.provenance.kind is expected


def test_the_executor_tells_the_same_of_the_same_pipeline(
    skipstone: SkipstoneCallback, pipeline: Any
) -> None:
    settings = DenoiseSettings(latent_kv_target="")
    with closing(DiffusersEngine(pipeline, settings, lambda _target: MemoryLatents())) as engine:
        planned = engine.plan(PARAMS).fingerprint
    called = skipstone._planned({"prompt": PROMPT, **arguments()}).run.fingerprint
    assert planned.library_versions == called.library_versions
    assert planned.weights_hash == called.weights_hash


def used(seed: int) -> torch.Generator:
    generator = seeded(seed)
    torch.rand(1, generator=generator)
    return generator


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"latents": torch.zeros(1, 4, 8, 8)}, "latents"),
        ({"callback_on_step_end": lambda *args: {}}, "callback_on_step_end"),
        ({"generator": used(7)}, "numbers were drawn"),
        ({"prompt": [PROMPT, NEAR]}, "prompt is not one text"),
    ],
    ids=["noise", "callback", "generator", "prompts"],
)
def test_a_call_that_no_key_can_tell_is_the_plain_call(
    skipstone: SkipstoneCallback, pipeline: Any, change: dict[str, Any], why: str
) -> None:
    call = {"prompt": PROMPT, **arguments(), **change}
    again = {**call, "generator": used(7)} if "generator" in change else {**call}
    if "generator" not in change:
        again["generator"] = seeded(7)
    result = picture(skipstone(**call))
    told = skipstone.provenance
    assert told is not None
    assert told.reason.startswith("NOT_CACHEABLE")
    assert why in told.reason
    assert np.array_equal(result, picture(pipeline(**again)))


def test_what_the_pipeline_refuses_it_refuses_in_its_own_words(
    skipstone: SkipstoneCallback, pipeline: Any
) -> None:
    with pytest.raises(ValueError) as own:
        pipeline(PROMPT, **arguments(height=17))
    with pytest.raises(ValueError) as ours:
        skipstone(PROMPT, **arguments(height=17))
    assert str(ours.value) == str(own.value)
    with pytest.raises(TypeError):
        skipstone(PROMPT, no_such_argument=1)


def test_the_pipeline_of_the_script_stays_as_it_was(
    skipstone: SkipstoneCallback, pipeline: Any
) -> None:
    before = dict(pipeline.__dict__), pipeline.scheduler, dict(pipeline.scheduler.__dict__)
    skipstone(PROMPT, **arguments(3))
    after = dict(pipeline.__dict__), pipeline.scheduler, dict(pipeline.scheduler.__dict__)
    assert before[0] == after[0]
    assert before[1] is after[1]
    assert before[2].keys() == after[2].keys()
    assert pipeline.scheduler.timesteps is before[2]["timesteps"]


def test_a_call_that_fails_saves_nothing(skipstone: SkipstoneCallback, pipeline: Any) -> None:
    assert skipstone.flush(30.0)
    saved = skipstone._session.stats.saved_entries
    decode, pipeline.vae.decode = pipeline.vae.decode, lambda *args, **kwargs: 1 / 0
    try:
        with pytest.raises(ZeroDivisionError):
            skipstone("a small green circle", **arguments(4))
    finally:
        pipeline.vae.decode = decode
    assert skipstone.flush(30.0)
    assert skipstone._session.stats.saved_entries == saved


def test_pictures_and_numbers_of_a_call_are_told_by_their_content() -> None:
    red, blue = (Image.new("RGB", (4, 4), colour) for colour in ("red", "blue"))
    values = [
        red,
        blue,
        red.resize((2, 8)),
        [red, blue],
        np.ones(3, np.float32),
        torch.ones(3),
        1.0,
        "1",
        None,
    ]
    hashes = [argument_hash(value, "image") for value in values]
    assert len(set(hashes)) == len(hashes) - 1  # an array and a tensor of the same numbers
    assert argument_hash(red.copy(), "image") == hashes[0]
    with pytest.raises(NotCacheable, match="image is a object"):
        argument_hash(object(), "image")


def test_without_services_a_call_is_the_plain_call(pipeline: Any) -> None:
    with ReuseSession(closed_port(), closed_port()) as session:
        skipstone = SkipstoneCallback(pipeline, session)
        result = picture(skipstone(PROMPT, **arguments()))
        told = skipstone.provenance
    assert told is not None
    assert told.reason == "LOOKUP_FAILED"
    assert np.array_equal(result, picture(pipeline(PROMPT, **arguments())))


def test_a_scheduler_of_second_order_serves_exact_repeats_only(rig: ReuseRig) -> None:
    pipeline = prepared_pipeline(pixart_pipeline(HeunDiscreteScheduler()))
    with rig.session(namespace="heun") as session:
        skipstone = SkipstoneCallback(pipeline, session)
        first = picture(skipstone(PROMPT, **arguments(1, **UNBINNED)))
        assert skipstone.flush(30.0)
        again = picture(skipstone(PROMPT, **arguments(1, **UNBINNED)))
        assert skipstone.provenance is not None
        assert skipstone.provenance.tier is HitTier.EXACT
        skipstone(PROMPT, **arguments(2, **UNBINNED))
        assert skipstone.provenance.reason in ("NOT_ALLOWED", "NO_CANDIDATE")
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize(
    ("make", "more", "count"),
    [
        pytest.param(cogview4_pipeline, {}, 1, id="picture"),
        pytest.param(wan_pipeline, {"num_frames": 9}, 3, id="clip", marks=pytest.mark.long),
    ],
)
def test_what_a_call_shows_is_what_its_run_is_found_by(
    make: Make, more: dict[str, Any], count: int
) -> None:
    with open_reuse_rig(donor_vectors="frames", donor_frames=3) as rig, rig.session() as session:
        skipstone = SkipstoneCallback(make(), session)
        for output_type in ("pil", "np"):
            skipstone(PROMPT, **arguments(**more, output_type=output_type))
            assert skipstone.flush(30.0)
        assert [len(frames) for frames in rig.embedder.seen] == [count]
