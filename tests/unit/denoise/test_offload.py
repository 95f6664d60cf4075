"""Models that are kept in main memory: the same latents, one computation at a time, none left.

There is no second device here. `offload=model` is run with hooks that move nothing and remember
where each model would be; all else of it is accelerate's and diffusers' own.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import accelerate
import pytest
import torch
from accelerate.hooks import CpuOffload, UserCpuOffloadHook, add_hook_to_module
from diffusers import WanPipeline, WanTransformer3DModel
from tests.unit.denoise.engine_rig import (
    EVERY_STEP,
    PARAMS,
    Outcome,
    Rig,
    open_rig,
    picture_of,
    trajectory,
)
from tests.unit.denoise.families.video_pipelines import wan21_i2v
from tests.unit.denoise.tiny_pipelines import wan_pipeline

from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.placement import place
from skipstone_shared import errors
from skipstone_shared.generation import BlockCacheConfig

pytestmark = pytest.mark.filterwarnings("ignore")

VIDEO = dataclasses.replace(PARAMS, num_frames=5)
FROM_PICTURE = dataclasses.replace(VIDEO, reference_inputs=(picture_of("red"),))
PATIENCE = 3000
"""Hundredths of a second for a plan that should wait for nothing, on a loaded machine."""
ALWAYS_REUSED = BlockCacheConfig(max_warmup_steps=1, residual_diff_threshold=1.0)


def offloaded(pipeline: Any, offload: str) -> Any:
    """From main memory to main memory, which a file of settings may not ask for."""
    settings = DenoiseSettings(device="cuda", offload=offload, max_concurrent_requests=1)
    place(pipeline, settings.model_copy(update={"device": "cpu"}))
    return pipeline


class Whereabouts:
    """Where models would be, and which were moved away while they computed."""

    def __init__(self) -> None:
        self.on_device: set[torch.nn.Module] = set()
        self.computing: set[torch.nn.Module] = set()
        self.disturbed: list[str] = []

    def offload_with_hook(
        self,
        model: torch.nn.Module,
        execution_device: Any = None,
        prev_module_hook: UserCpuOffloadHook | None = None,
    ) -> tuple[torch.nn.Module, UserCpuOffloadHook]:
        """Stands in for `accelerate.cpu_offload_with_hook`."""
        hook = RememberedOffload(self, execution_device, prev_module_hook)
        add_hook_to_module(model, hook, append=True)
        return model, UserCpuOffloadHook(model, hook)


class RememberedOffload(CpuOffload):
    """As accelerate's own, with a note in the place of a move."""

    def __init__(self, where: Whereabouts, *args: Any) -> None:
        super().__init__(*args)
        self._where = where

    def init_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        if module in self._where.computing:
            self._where.disturbed.append(type(module).__name__)
        self._where.on_device.discard(module)
        return module

    def pre_forward(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self.prev_module_hook is not None:
            self.prev_module_hook.offload()
        self._where.on_device.add(module)
        if isinstance(module, WanTransformer3DModel):  # others are told of no end
            self._where.computing.add(module)
        return args, kwargs

    def post_forward(self, module: torch.nn.Module, output: Any) -> Any:
        self._where.computing.discard(module)
        return output


@pytest.fixture(scope="module")
def where() -> Iterator[Whereabouts]:
    noted = Whereabouts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerate, "cpu_offload_with_hook", noted.offload_with_hook)
        yield noted


@pytest.fixture(scope="module")
def rig(where: Whereabouts) -> Iterator[Rig]:
    pipeline = offloaded(wan21_i2v(), "model")
    with open_rig(pipeline, max_concurrent_requests=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain() -> Outcome:
    with open_rig(wan21_i2v()) as rig:
        return rig.run(FROM_PICTURE)


@pytest.mark.parametrize("offload", ["model", "group"])
def test_an_offloaded_model_makes_the_same_latents_under_the_same_key(offload: str) -> None:
    """Not sequential: accelerate's hooks for it need a device that is not the CPU."""
    with open_rig(wan_pipeline()) as rig:
        plain_key = rig.engine.plan(VIDEO).compatibility_key
        plain = rig.run(VIDEO, snapshots=EVERY_STEP)
    with open_rig(offloaded(wan_pipeline(), offload), max_concurrent_requests=1) as rig:
        full = rig.run(VIDEO, snapshots=EVERY_STEP)
        assert rig.engine.plan(VIDEO).compatibility_key == plain_key
        assert [ref.xxh3_64 for ref in full.refs.values()] == [
            ref.xxh3_64 for ref in plain.refs.values()
        ]
        assert rig.run(VIDEO, resume=trajectory(full.refs[3])).picture == plain.picture


@pytest.mark.parametrize("block_cache", [None, ALWAYS_REUSED], ids=["plain", "cached blocks"])
def test_a_plan_with_a_picture_waits_for_the_step_that_runs_and_not_for_the_run(
    rig: Rig, where: Whereabouts, plain: Outcome, block_cache: BlockCacheConfig | None
) -> None:
    """Encoding its picture moves the transformer away."""
    params = dataclasses.replace(FROM_PICTURE, block_cache=block_cache, guidance_scale=1.0)
    alone = rig.run(params).picture
    other = dataclasses.replace(params, reference_inputs=(picture_of("blue"),))
    planning = threading.Thread(target=rig.engine.plan, args=(other,))
    turns, encoder = rig.engine._model.turns, rig.pipeline.vae.encoder
    assert turns is not None
    encoded: list[bool] = []
    steps: list[int] = []

    def meanwhile(*_: Any) -> None:
        steps.append(len(encoded))
        if len(steps) == 1:
            handles.append(encoder.register_forward_hook(lambda *_: encoded.append(True)))
            planning.start()
            while not (turns.waiting or encoded):
                planning.join(0.01)

    where.computing.clear()
    where.disturbed.clear()
    handles = [rig.pipeline.transformer.blocks[0].register_forward_pre_hook(meanwhile)]
    assert rig.run(params).picture == alone
    planning.join()
    for handle in handles:
        handle.remove()
    assert where.disturbed == []
    # Nothing was encoded in the first step, and all of it before the second.
    assert steps[:2] == [0, len(encoded)]
    assert encoded
    if block_cache is None:
        assert rig.run(FROM_PICTURE).picture == plain.picture


@pytest.fixture(scope="module")
def of_words(where: Whereabouts) -> Iterator[Rig]:
    with open_rig(offloaded(wan_pipeline(), "model"), max_concurrent_requests=1) as opened:
        yield opened


def is_planned_beside(rig: Rig, where: Whereabouts, part: torch.nn.Module, **params: Any) -> bool:
    """Whether a plan is made while a part of a run's model computes; no model may be moved."""
    wanted = dataclasses.replace(VIDEO, **params)
    planning = threading.Thread(target=rig.engine.plan, args=(wanted,))
    turns = rig.engine._model.turns
    assert turns is not None
    made: list[bool] = []

    def meanwhile(*_: Any) -> None:
        if made:
            return
        placed = set(where.on_device)
        planning.start()
        for _ in range(PATIENCE):
            if turns.waiting or not planning.is_alive():
                break
            planning.join(0.01)
        made.append(not planning.is_alive())
        assert where.on_device == placed

    handle = part.register_forward_pre_hook(meanwhile)
    try:
        rig.run(VIDEO)
    finally:
        handle.remove()
        planning.join()
    return made == [True]


def test_a_plan_of_words_alone_waits_for_no_run_and_moves_no_model(
    of_words: Rig, where: Whereabouts
) -> None:
    """Not for a step, and neither for a whole decoding, which takes longer than callers wait."""
    pipeline = of_words.pipeline
    for steps, part in enumerate(
        (pipeline.text_encoder, pipeline.transformer.blocks[0], pipeline.vae.decoder)
    ):
        assert is_planned_beside(of_words, where, part, num_inference_steps=20 + steps), part


def test_only_the_first_plan_of_a_kind_encodes_and_takes_its_turn(
    of_words: Rig, where: Whereabouts
) -> None:
    block, unguided = of_words.pipeline.transformer.blocks[0], {"guidance_scale": 1.0}
    assert not is_planned_beside(of_words, where, block, **unguided)
    assert is_planned_beside(of_words, where, block, num_inference_steps=30, **unguided)


class EncodesZeros(WanPipeline):
    """Runs its autoencoder for words alone, as no placeholder for a prompt can tell."""

    def prepare_latents(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.vae.encode(torch.zeros(1, 3, 1, 16, 16))
        prepared: torch.Tensor = super().prepare_latents(*args, **kwargs)
        return prepared


def test_a_pipeline_that_runs_more_than_its_text_encoder_plans_in_turn(where: Whereabouts) -> None:
    pipeline = offloaded(EncodesZeros(**wan_pipeline().components), "model")
    with open_rig(pipeline, max_concurrent_requests=1) as rig:
        where.disturbed.clear()
        block = pipeline.transformer.blocks[0]
        for steps in (20, 21):
            assert not is_planned_beside(rig, where, block, num_inference_steps=steps)
        assert where.disturbed == []


@pytest.mark.parametrize("block_cache", [None, ALWAYS_REUSED], ids=["plain", "cached blocks"])
@pytest.mark.parametrize("end", ["cancelled", "failed", "finished"])
def test_no_model_stays_on_the_device_however_a_run_ends(
    rig: Rig, where: Whereabouts, plain: Outcome, end: str, block_cache: BlockCacheConfig | None
) -> None:
    params = dataclasses.replace(FROM_PICTURE, block_cache=block_cache)
    assert where.on_device == set()  # what the start and the plan have looked at
    gone = threading.Event()
    calls = iter(range(1000))

    def third(*_: Any) -> None:
        if next(calls) == 2:
            assert where.on_device
            gone.set()
            if end == "failed":
                raise RuntimeError("no memory")

    handle = rig.pipeline.transformer.blocks[0].register_forward_pre_hook(third)
    if end == "finished":
        rig.run(params)
    else:
        with pytest.raises(errors.Cancelled if end == "cancelled" else RuntimeError):
            rig.run(params, cancelled=gone.is_set)
    handle.remove()
    assert where.on_device == set()
    assert rig.run(FROM_PICTURE).picture == plain.picture


def test_a_plan_leaves_no_model_on_the_device(rig: Rig, where: Whereabouts) -> None:
    rig.engine.plan(FROM_PICTURE)
    assert where.on_device == set()
