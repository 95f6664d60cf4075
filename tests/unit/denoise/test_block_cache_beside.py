"""Block caching beside what else people put around a transformer, as far as a CPU can show it.

What a CPU cannot show is whether it saves time there; that decisions and numbers are the same with
and without, it can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from diffusers.hooks import apply_group_offloading
from peft import LoraConfig
from tests.unit.denoise.engine_rig import PARAMS, open_rig
from tests.unit.denoise.tiny_pipelines import cogview4_pipeline, flux_pipeline, wan_pipeline

from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.families import adapter_for
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_shared.generation import BlockCacheConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NEVER = dataclasses.replace(
    PARAMS, num_frames=1, block_cache=BlockCacheConfig(residual_diff_threshold=0.0)
)
SOMETIMES = dataclasses.replace(
    NEVER, block_cache=BlockCacheConfig(residual_diff_threshold=1.0, max_warmup_steps=2)
)
PLAIN = dataclasses.replace(NEVER, block_cache=None)
PIPELINES = {"flux": flux_pipeline, "wan": wan_pipeline}


def compiled(pipeline: Any) -> None:
    # "eager" traces like the real thing and needs no compiler of C++.
    blocks = getattr(pipeline.transformer, "transformer_blocks", None)
    for block in blocks if blocks is not None else pipeline.transformer.blocks:
        block.compile(backend="eager")


def compiled_as_a_whole(pipeline: Any) -> None:
    pipeline.transformer = torch.compile(pipeline.transformer, backend="eager")


def halved(pipeline: Any) -> None:
    pipeline.to(torch.bfloat16)


class CountingHook(ModelHook):
    """Stands where accelerate puts the one that moves a model to its device."""

    def __init__(self) -> None:
        self.before = self.after = 0

    def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        # Sent to the module that has the weights, which is what a real one moves.
        assert list(module.parameters())
        self.before += 1
        return args, kwargs

    def post_forward(self, module: Any, output: Any) -> Any:
        self.after += 1
        return output


def hooked(pipeline: Any) -> None:
    add_hook_to_module(pipeline.transformer, CountingHook())


def offloaded(pipeline: Any) -> None:
    cpu = torch.device("cpu")
    apply_group_offloading(
        pipeline.transformer, cpu, cpu, offload_type="block_level", num_blocks_per_group=1
    )


def adapted(pipeline: Any) -> None:
    torch.manual_seed(5)
    pipeline.transformer.add_adapter(
        LoraConfig(r=2, lora_alpha=8, target_modules=["to_q", "to_v"], init_lora_weights=False)
    )


CHANGES: list[Callable[[Any], None]] = [
    compiled,
    compiled_as_a_whole,
    halved,
    hooked,
    offloaded,
    adapted,
]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_is_cached_like_a_plain_one(
    name: str, change: Callable[[Any], None]
) -> None:
    pipeline = PIPELINES[name]()
    change(pipeline)
    with open_rig(pipeline, max_concurrent_requests=1) as rig:
        assert rig.run(NEVER).picture == rig.run(PLAIN).picture
        report = rig.run(SOMETIMES).finished.block_cache
        assert report is not None
        assert {branch.reused_steps for branch in report.branches} == {(2, 3, 4)}


def test_the_scale_of_a_request_reaches_adapters_inside_cached_blocks() -> None:
    """diffusers scales adapters of the module whose forward it calls, which is the copy here."""
    transformer = cogview4_pipeline().transformer.eval().requires_grad_(False)
    adapted(SimpleNamespace(transformer=transformer))
    state = BlockCacheState(DBCacheSettings(residual_diff_threshold=0.0))
    mine = with_block_cache(transformer, adapter_for(transformer), state)
    plain, scaled = (_prediction(transformer, {"scale": scale}) for scale in (1.0, 0.5))
    cached, cached_scaled = (_prediction(mine, {"scale": scale}) for scale in (1.0, 0.5))
    assert torch.equal(plain, cached)
    assert torch.equal(scaled, cached_scaled)
    assert not torch.equal(plain, scaled)


def _prediction(model: Any, attention_kwargs: dict[str, Any]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    size = torch.tensor([[16.0, 16.0]])
    (prediction,) = model(
        hidden_states=torch.randn(1, 4, 8, 8, generator=generator),
        encoder_hidden_states=torch.randn(1, 3, 16, generator=generator),
        timestep=torch.tensor([500.0]),
        original_size=size,
        target_size=size,
        crop_coords=torch.zeros_like(size),
        attention_kwargs=attention_kwargs,
        return_dict=False,
    )
    return prediction
