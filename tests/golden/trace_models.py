"""The small diffusers models of a trace file, with the weights and inputs they were recorded with.

Everything here is fixed by the README beside the traces: seeds, latents, texts, and the change to
the timestep embeddings that makes neighbouring steps look alike, as they do in trained models.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import diffusers
import torch
from diffusers.models.embeddings import TimestepEmbedding
from torch import Tensor, nn

WEIGHT_SEED = 1234
LATENT_SEED = 7
EMBEDDING_TAU = 100.0
EMBEDDING_GAIN = 8.0
WAN_BOUNDARY = 875.0
SIGMA_SHIFT = 3.0
GUIDANCE_SCALE = 4.0


@dataclasses.dataclass(frozen=True, slots=True)
class TraceModel:
    """One recorded model: its transformers and what goes into them.

    Attributes:
        transformers: By name; two for a model with two experts, "transformer" first.
        latents: Initial noise, float32.
        timestep_scale: The transformer's timestep is this times sigma.
        inputs: Other arguments of a call, by guidance branch, in the order of a step's calls.
        batched: The branches go as one batch into one call.
        boundary: Timestep from which on (downwards) the second expert runs; None with one expert.
    """

    transformers: Mapping[str, nn.Module]
    latents: Tensor
    timestep_scale: float
    inputs: Mapping[str, Mapping[str, Any]]
    batched: bool = False
    boundary: float | None = None

    def transformer_at(self, sigma: float) -> str:
        """Name of the transformer that runs at noise level ``sigma``."""
        if self.boundary is None or self.timestep_scale * sigma >= self.boundary:
            return "transformer"
        return "transformer_2"


def seeded(shape: tuple[int, ...], seed: int) -> Tensor:
    """Standard normal noise of ``shape``, float32, from a generator of its own."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def built_transformer(class_name: str, model_config: Mapping[str, Any], index: int) -> nn.Module:
    """A transformer with the recorded weights; ``index`` is 1 for a second expert."""
    transformer_class = getattr(diffusers, class_name)
    torch.manual_seed(WEIGHT_SEED + index)
    transformer: nn.Module = transformer_class(**model_config)
    for name, module in transformer.named_modules():
        if isinstance(module, TimestepEmbedding) and "guidance" not in name:
            _smooth_over_time(module)
    return transformer.eval().requires_grad_(False)


def _smooth_over_time(embedding: TimestepEmbedding) -> None:
    """Lowers the high frequencies of a timestep embedding, in place, and amplifies the rest."""
    half = embedding.linear_1.in_features // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    weights = 1.0 / (1.0 + (EMBEDDING_TAU * frequencies) ** 2)
    columns = torch.cat([weights, weights])
    columns = columns / columns.pow(2).mean().sqrt()
    with torch.no_grad():
        embedding.linear_1.weight.mul_(columns)
        embedding.linear_2.weight.mul_(EMBEDDING_GAIN)


def sigmas_of(n_steps: int) -> Tensor:
    """Noise levels of the loop, `(n_steps + 1,)`, float32; the last is 0."""
    even = torch.linspace(1.0, 1.0 / n_steps, n_steps)
    return torch.cat([SIGMA_SHIFT * even / (1.0 + (SIGMA_SHIFT - 1.0) * even), torch.zeros(1)])


def denoise(
    model: TraceModel, call: Callable[[str, dict[str, Any]], Tensor], n_steps: int
) -> Tensor:
    """Flow-match Euler from noise to the final latents.

    Args:
        model: What is run.
        call: Runs the named transformer with the given arguments.
        n_steps: Denoising steps.
    """
    sigmas = sigmas_of(n_steps)
    latents = model.latents
    for sigma, next_sigma in itertools.pairwise(sigmas):
        name = model.transformer_at(float(sigma))
        velocity = _velocity(model, latents, model.timestep_scale * sigma, name, call)
        latents = latents + (next_sigma - sigma) * velocity
    return latents


def _velocity(
    model: TraceModel,
    latents: Tensor,
    timestep: Tensor,
    name: str,
    call: Callable[[str, dict[str, Any]], Tensor],
) -> Tensor:
    batches = (_joined(model.inputs),) if model.batched else tuple(model.inputs.values())
    size = len(model.inputs) if model.batched else 1
    outputs = [
        call(
            name,
            {
                "hidden_states": latents.expand(size, *latents.shape[1:]),
                "timestep": timestep.expand(size),
                "return_dict": False,
                **inputs,
            },
        )
        for inputs in batches
    ]
    parts = torch.cat(outputs).chunk(len(model.inputs))
    # A model that also predicts the variance has it in the second half of the channels.
    parts = tuple(part[:, : latents.shape[1]] for part in parts)
    if len(parts) == 1:
        return parts[0]
    conditional, unconditional = parts
    return unconditional + GUIDANCE_SCALE * (conditional - unconditional)


def _joined(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The inputs of all branches as one batch; what is no tensor is the same for all."""
    first, *others = inputs.values()
    return {
        key: torch.cat([value, *(other[key] for other in others)])
        if isinstance(value, Tensor)
        else value
        for key, value in first.items()
    }


def flux(config: Mapping[str, Any]) -> TraceModel:
    """Flux.1: packed latents, distilled guidance, one call a step."""
    places = torch.arange(64)
    image_ids = torch.zeros(64, 3)
    image_ids[:, 1] = places // 8
    image_ids[:, 2] = places % 8
    inputs = {
        "encoder_hidden_states": seeded((1, 16, config["joint_attention_dim"]), 11),
        "pooled_projections": seeded((1, config["pooled_projection_dim"]), 12),
        "img_ids": image_ids,
        "txt_ids": torch.zeros(16, 3),
        "guidance": torch.tensor([3.5]) if config.get("guidance_embeds") else None,
    }
    return TraceModel(
        transformers={"transformer": built_transformer("FluxTransformer2DModel", config, 0)},
        latents=seeded((1, 64, config["in_channels"]), LATENT_SEED),
        timestep_scale=1.0,
        inputs={"cond": inputs},
    )


def qwen(config: Mapping[str, Any]) -> TraceModel:
    """Qwen-Image: packed latents, guidance in two calls."""

    def inputs(seed: int) -> dict[str, Any]:
        return {
            "encoder_hidden_states": seeded((1, 12, config["joint_attention_dim"]), seed),
            "encoder_hidden_states_mask": torch.ones(1, 12),
            "img_shapes": [[(1, 8, 8)]],
        }

    return TraceModel(
        transformers={"transformer": built_transformer("QwenImageTransformer2DModel", config, 0)},
        latents=seeded((1, 64, config["in_channels"]), LATENT_SEED),
        timestep_scale=1.0,
        inputs={"cond": inputs(21), "uncond": inputs(22)},
    )


def wan(config: Mapping[str, Any], experts: int) -> TraceModel:
    """Wan 2.1 (one expert) or Wan 2.2 (two): video latents, guidance in two calls."""

    def inputs(seed: int) -> dict[str, Any]:
        return {"encoder_hidden_states": seeded((1, 12, config["text_dim"]), seed)}

    names = ("transformer", "transformer_2")[:experts]
    return TraceModel(
        transformers={
            name: built_transformer("WanTransformer3DModel", config, index)
            for index, name in enumerate(names)
        },
        latents=seeded((1, config["in_channels"], 3, 8, 8), LATENT_SEED),
        timestep_scale=1000.0,
        inputs={"cond": inputs(31), "uncond": inputs(32)},
        boundary=WAN_BOUNDARY if experts == 2 else None,
    )


def sd3(config: Mapping[str, Any]) -> TraceModel:
    """Stable Diffusion 3: guidance as one batch of two."""

    def inputs(text_seed: int, pooled_seed: int) -> dict[str, Any]:
        return {
            "encoder_hidden_states": seeded((1, 12, config["joint_attention_dim"]), text_seed),
            "pooled_projections": seeded((1, config["pooled_projection_dim"]), pooled_seed),
        }

    return TraceModel(
        transformers={"transformer": built_transformer("SD3Transformer2DModel", config, 0)},
        latents=seeded((1, config["in_channels"], 16, 16), LATENT_SEED),
        timestep_scale=1000.0,
        inputs={"cond": inputs(41, 43), "uncond": inputs(42, 44)},
        batched=True,
    )


def pixart(config: Mapping[str, Any]) -> TraceModel:
    """PixArt: guidance as one batch of two; the latent alone in the blocks' stream."""
    text_width = config.get("caption_channels") or config["cross_attention_dim"]

    def inputs(seed: int) -> dict[str, Any]:
        return {
            "encoder_hidden_states": seeded((1, 12, text_width), seed),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        }

    return TraceModel(
        transformers={"transformer": built_transformer("PixArtTransformer2DModel", config, 0)},
        latents=seeded((1, config["in_channels"], 16, 16), LATENT_SEED),
        timestep_scale=1000.0,
        inputs={"cond": inputs(51), "uncond": inputs(52)},
        batched=True,
    )


def trace_model(class_name: str, config: Mapping[str, Any]) -> TraceModel | None:
    """The model of a trace file's `model` entry; None for a class that is not known here."""
    name, *note = class_name.split()
    if name == "WanTransformer3DModel":
        return wan(config, experts=2 if "x2" in note else 1)
    builders = {
        "FluxTransformer2DModel": flux,
        "QwenImageTransformer2DModel": qwen,
        "SD3Transformer2DModel": sd3,
        "PixArtTransformer2DModel": pixart,
    }
    builder = builders.get(name)
    return None if builder is None else builder(config)
