"""Small random transformers of three families, and one denoising loop for all of them.

Sizes, seeds, inputs and the shaped time embedding are those of the recorded traces that the golden
tests check, so that the figures here belong to models whose decisions are known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from diffusers import FluxTransformer2DModel, QwenImageTransformer2DModel, WanTransformer3DModel
from diffusers.models.embeddings import TimestepEmbedding
from torch import Tensor, nn

STEPS: Final = 28
GUIDANCE_SCALE: Final = 4.0

Keywords = dict[str, Any]


@dataclass(frozen=True)
class TinyModel:
    """One random transformer with the inputs of its denoising loop.

    Attributes:
        name: ``flux``, ``qwen`` or ``wan``.
        transformer: The transformer, float32, eval mode.
        block_lists: Attribute names of its block lists, run one after another as one chain.
        latent_shape: Shape of the latents.
        inputs: Keyword arguments of each guidance branch's call, in order.
        timestep_scale: The transformer's timestep at sigma 1.
    """

    name: str
    transformer: nn.Module
    block_lists: tuple[str, ...]
    latent_shape: tuple[int, ...]
    inputs: dict[str, Keywords]
    timestep_scale: float

    @property
    def blocks(self) -> list[nn.Module]:
        """Returns the blocks of all lists in the order they run."""
        return [block for name in self.block_lists for block in getattr(self.transformer, name)]


def tiny_model(name: str, blocks: tuple[int, int] = (6, 10)) -> TinyModel:
    """Builds one of `MODELS`.

    Args:
        name: Key of `MODELS`.
        blocks: Double and single blocks, of Flux only.
    """
    return _flux(blocks) if name == "flux" else MODELS[name]()


def denoise(
    model: TinyModel,
    transformer: nn.Module,
    begin_step: Callable[[int], None] = lambda step_index: None,
) -> Tensor:
    """Runs 28 flow-match Euler steps and returns the final latents.

    Args:
        model: Gives the inputs.
        transformer: What runs: the model's own transformer or a cached one.
        begin_step: Told the step index before each step.
    """
    latents = seeded(model.latent_shape, 7)
    sigmas = flow_sigmas()
    for index in range(STEPS):
        begin_step(index)
        velocity = _velocity(model, transformer, latents, sigmas[index])
        latents = latents + (sigmas[index + 1] - sigmas[index]) * velocity
    return latents


def call(
    model: TinyModel, transformer: nn.Module, branch: str, latents: Tensor, sigma: Tensor
) -> Tensor:
    """Runs one branch's call at one sigma."""
    timestep = (model.timestep_scale * sigma).expand(latents.shape[0])
    named: Any = transformer
    context = contextlib.nullcontext() if len(model.inputs) == 1 else named.cache_context(branch)
    with context:
        output: Tensor = transformer(
            hidden_states=latents, timestep=timestep, return_dict=False, **model.inputs[branch]
        )[0]
    return output


def flow_sigmas() -> Tensor:
    """Returns 28 flow-matching noise levels of shift 3, and 0 after them."""
    even = torch.linspace(1, 1 / STEPS, STEPS)
    return torch.cat([3 * even / (1 + 2 * even), torch.zeros(1)])


def seeded(shape: tuple[int, ...], seed: int) -> Tensor:
    """Returns standard normal numbers that depend on the seed alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _velocity(model: TinyModel, transformer: nn.Module, latents: Tensor, sigma: Tensor) -> Tensor:
    velocities = [call(model, transformer, branch, latents, sigma) for branch in model.inputs]
    if len(velocities) == 1:
        return velocities[0]
    cond, uncond = velocities
    return uncond + GUIDANCE_SCALE * (cond - uncond)


def _flux(blocks: tuple[int, int] = (6, 10)) -> TinyModel:
    def build() -> Any:
        return FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=blocks[0],
            num_single_layers=blocks[1],
            attention_head_dim=16,
            num_attention_heads=4,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            guidance_embeds=True,
            axes_dims_rope=(4, 6, 6),
        )

    place = torch.arange(64)
    inputs = {
        "encoder_hidden_states": seeded((1, 16, 32), 11),
        "pooled_projections": seeded((1, 32), 12),
        "img_ids": torch.stack([torch.zeros(64), place // 8, place % 8], dim=1),
        "txt_ids": torch.zeros(16, 3),
        "guidance": torch.tensor([3.5]),
    }
    lists = ("transformer_blocks", "single_transformer_blocks")
    return TinyModel("flux", _random(build), lists, (1, 64, 16), {"cond": inputs}, 1.0)


def _qwen() -> TinyModel:
    def build() -> Any:
        return QwenImageTransformer2DModel(
            patch_size=1,
            in_channels=16,
            out_channels=16,
            num_layers=10,
            attention_head_dim=16,
            num_attention_heads=4,
            joint_attention_dim=32,
            axes_dims_rope=(4, 6, 6),
        )

    def inputs(seed: int) -> Keywords:
        return {
            "encoder_hidden_states": seeded((1, 12, 32), seed),
            "encoder_hidden_states_mask": torch.ones(1, 12),
            "img_shapes": [[(1, 8, 8)]],
        }

    branches = {"cond": inputs(21), "uncond": inputs(22)}
    return TinyModel("qwen", _random(build), ("transformer_blocks",), (1, 64, 16), branches, 1.0)


def _wan() -> TinyModel:
    def build() -> Any:
        return WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=4,
            attention_head_dim=16,
            in_channels=4,
            out_channels=4,
            text_dim=32,
            freq_dim=64,
            ffn_dim=128,
            num_layers=10,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=32,
        )

    branches = {
        branch: {"encoder_hidden_states": seeded((1, 12, 32), seed)}
        for branch, seed in (("cond", 31), ("uncond", 32))
    }
    return TinyModel("wan", _random(build), ("blocks",), (1, 4, 3, 8, 8), branches, 1000.0)


MODELS: Final[dict[str, Callable[[], TinyModel]]] = {"flux": _flux, "qwen": _qwen, "wan": _wan}


def _random(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1234)
    transformer = build().eval().requires_grad_(False)
    for embedding in _time_embeddings(transformer):
        _smooth(embedding)
    return transformer


def _time_embeddings(transformer: nn.Module) -> Iterator[TimestepEmbedding]:
    for name, module in transformer.named_modules():
        if isinstance(module, TimestepEmbedding) and "guidance" not in name:
            yield module


def _smooth(embedding: TimestepEmbedding) -> None:
    """Makes neighbouring steps look alike, as they do to trained models."""
    half = embedding.linear_1.in_features // 2
    frequencies = 10000.0 ** (-torch.arange(half) / half)
    gain = (1 / (1 + (100 * frequencies) ** 2)).repeat(2)
    embedding.linear_1.weight.data *= gain / gain.square().mean().sqrt()
    embedding.linear_2.weight.data *= 8
