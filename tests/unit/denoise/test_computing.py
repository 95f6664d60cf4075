"""What changes numbers while all weights stay the same is told of a pipeline as it is now."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
from diffusers.hooks import FirstBlockCacheConfig, apply_first_block_cache
from diffusers.models.attention_dispatch import attention_backend
from diffusers.models.attention_processor import AttnProcessor
from tests.unit.denoise.families.picture_pipelines import sdxl
from tests.unit.denoise.tiny_pipelines import flux_pipeline, wan_pipeline

from skipstone_denoise.computing import computing_facts
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.placement import place

pytestmark = pytest.mark.filterwarnings("ignore")


def tiled(pipeline: Any, size: int = 64) -> None:
    pipeline.vae.enable_tiling(tile_sample_min_height=size)


def cast_layer_by_layer(pipeline: Any) -> None:
    pipeline.transformer.enable_layerwise_casting(storage_dtype=torch.bfloat16)


def cached_by_diffusers(pipeline: Any, threshold: float = 0.1) -> None:
    apply_first_block_cache(pipeline.transformer, FirstBlockCacheConfig(threshold=threshold))


CHANGES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda _pipeline: None,
    "attention backend": lambda p: p.transformer.set_attention_backend("_native_math"),
    "attention of one block": lambda p: setattr(
        p.transformer.blocks[0].attn1.processor, "_attention_backend", "_native_math"
    ),
    "attention of the text encoder": lambda p: p.text_encoder.set_attn_implementation("eager"),
    "tiling": tiled,
    "tiling in other sizes": lambda p: tiled(p, 128),
    "slicing": lambda p: p.vae.enable_slicing(),
    "compiled as a whole": lambda p: p.transformer.compile(),
    "compiled in another mode": lambda p: p.transformer.compile(mode="max-autotune"),
    "compiled block by block": lambda p: p.transformer.compile_repeated_blocks(),
    "element type of the denoiser": lambda p: p.transformer.to(torch.bfloat16),
    "element type of the autoencoder": lambda p: p.vae.to(torch.bfloat16),
    "casting layer by layer": cast_layer_by_layer,
    "a cache of diffusers": lambda p: p.transformer.enable_cache(FirstBlockCacheConfig()),
    "a cache of diffusers, applied by hand": cached_by_diffusers,
    "with another threshold": lambda p: cached_by_diffusers(p, 0.2),
    "fused projections": lambda p: p.transformer.fuse_qkv_projections(),
    "deterministic algorithms": lambda _pipeline: torch.use_deterministic_algorithms(True),
}


def told_after(change: Callable[[Any], object], build: Callable[[], Any] = wan_pipeline) -> Any:
    pipeline = build()
    with attention_backend():
        change(pipeline)
        told = computing_facts(pipeline)
    torch.use_deterministic_algorithms(False)
    return tuple(told.items())


def test_each_of_them_alone_is_told() -> None:
    told = {name: told_after(change) for name, change in CHANGES.items()}
    assert len(set(told.values())) == len(told)


SWITCHES = {
    "cpu": [
        "fp32_precision",
        "mkldnn.enabled",
        "mkldnn.deterministic",
        "mkldnn.matmul.fp32_precision",
        "mkldnn.conv.fp32_precision",
        "mkldnn.rnn.fp32_precision",
    ],
    "cuda": [
        "fp32_precision",
        "cuda.matmul.fp32_precision",
        "cuda.matmul.allow_fp16_accumulation",
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuda.matmul.allow_bf16_reduced_precision_reduction",
        "cudnn.enabled",
        "cudnn.deterministic",
        "cudnn.benchmark",
        "cudnn.conv.fp32_precision",
        "cudnn.rnn.fp32_precision",
    ],
}
"""Of `torch.backends`. Those for CUDA can be turned, and told, where there is none."""

CALLED: dict[str, dict[Callable[[bool], object], bool]] = {
    "cpu": {
        torch.backends.cuda.enable_flash_sdp: False,
        torch.backends.cuda.enable_math_sdp: False,
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp: True,
        torch.set_flush_denormal: True,
    },
    "cuda": {
        torch.backends.cuda.enable_mem_efficient_sdp: False,
        torch.backends.cuda.enable_cudnn_sdp: False,
    },
}
"""Switches that are functions, with what each is not by default."""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_switch_of_torch_that_changes_numbers_is_told(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = flux_pipeline()
    monkeypatch.setattr(type(pipeline), "_execution_device", torch.device(device))
    usual = computing_facts(pipeline)
    for name in SWITCHES[device]:
        *path, switch = name.split(".")
        of = reduce(getattr, path, torch.backends)
        now = getattr(of, switch)
        setattr(of, switch, not now if isinstance(now, bool) else "ieee")
        told = computing_facts(pipeline)
        setattr(of, switch, now)
        assert told != usual, name
    for turn, to in CALLED[device].items():
        turn(to)
        told = computing_facts(pipeline)
        turn(not to)
        assert told != usual, turn
    assert computing_facts(pipeline) == usual


def test_in_which_way_a_module_was_compiled_is_not_told() -> None:
    """In place, or as a module around it: the numbers are the same."""
    in_place = told_after(CHANGES["compiled as a whole"])
    around = told_after(lambda p: setattr(p, "transformer", torch.compile(p.transformer)))
    assert in_place == around


def test_what_a_unet_can_be_told_to_do_is_told() -> None:
    changes: list[Callable[[Any], object]] = [
        lambda _pipeline: None,
        lambda p: p.enable_freeu(s1=0.9, s2=0.2, b1=1.3, b2=1.4),
        lambda p: p.enable_freeu(s1=0.9, s2=0.2, b1=1.3, b2=1.5),
        lambda p: p.unet.set_attention_slice(1),
        lambda p: p.unet.set_attn_processor(AttnProcessor()),
    ]
    assert len({told_after(change, sdxl) for change in changes}) == len(changes)


@pytest.mark.parametrize("offload", ["model", "group"])
def test_where_weights_lie_is_not_told(offload: str) -> None:
    pipeline = flux_pipeline()
    before = computing_facts(pipeline)
    settings = DenoiseSettings(device="cuda", offload=offload, max_concurrent_requests=1)
    place(pipeline, settings.model_copy(update={"device": "cpu"}))
    assert computing_facts(pipeline) == before
