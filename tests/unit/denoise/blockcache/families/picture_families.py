"""Tiny transformers of picture models: 8x8 latents, four blocks or more in every list."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
from tests.unit.denoise.blockcache.families.tiny_inputs import (
    TEXT_LENGTH,
    TEXT_WIDTH,
    Moments,
    drifting,
    picture_ids,
    staying,
    text,
    text_mask,
    timesteps,
)
from tests.unit.denoise.blockcache.families.tiny_transformers import TinyFamily

_ROPE = (4, 6, 6)
_HEADS = {"attention_head_dim": 16, "num_attention_heads": 2}
_BATCHED = ("cond_uncond",)


def _packed(moments: Moments, branch: int) -> dict[str, Any]:
    """What transformers over packed 2x2 patches share."""
    return {
        "hidden_states": drifting(moments, 16, 16),
        "encoder_hidden_states": text(moments, branch),
        "timestep": timesteps(moments, 1.0),
        "img_ids": picture_ids(4),
        "txt_ids": torch.zeros(TEXT_LENGTH, 3),
    }


def _square(moments: Moments, branch: int) -> dict[str, Any]:
    """What transformers over plain latents share."""
    return {
        "hidden_states": drifting(moments, 4, 8, 8),
        "encoder_hidden_states": text(moments, branch),
        "timestep": timesteps(moments),
    }


def _sizes(moments: Moments) -> dict[str, Any]:
    size = torch.full((len(moments), 2), 64.0)
    return {"original_size": size, "target_size": size, "crop_coords": torch.zeros_like(size)}


FLUX = TinyFamily(
    lambda: diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=4,
        num_single_layers=5,
        joint_attention_dim=TEXT_WIDTH,
        pooled_projection_dim=8,
        guidance_embeds=True,
        axes_dims_rope=_ROPE,
        **_HEADS,
    ),
    lambda moments, branch: (
        _packed(moments, branch)
        | {
            "pooled_projections": staying(moments, 10 + branch, 8),
            "guidance": torch.full((len(moments),), 3.5),
        }
    ),
)

FLUX2 = TinyFamily(
    lambda: diffusers.Flux2Transformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=4,
        num_single_layers=5,
        joint_attention_dim=TEXT_WIDTH,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        **_HEADS,
    ),
    lambda moments, branch: (
        _packed(moments, branch)
        | {
            "img_ids": picture_ids(4, axes=4),
            "txt_ids": torch.zeros(TEXT_LENGTH, 4),
            "guidance": torch.full((len(moments),), 3.5),
        }
    ),
)


def _qwen_image(pictures: int, **config: Any) -> TinyFamily:
    """Pictures beyond the first are references, whose tokens follow those of the latents."""
    return TinyFamily(
        lambda: diffusers.QwenImageTransformer2DModel(
            in_channels=16,
            out_channels=4,
            num_layers=4,
            joint_attention_dim=TEXT_WIDTH,
            axes_dims_rope=_ROPE,
            **_HEADS,
            **config,
        ),
        lambda moments, branch: {
            "hidden_states": drifting(moments, 16 * pictures, 16),
            "encoder_hidden_states": text(moments, branch),
            "encoder_hidden_states_mask": text_mask(moments),
            "timestep": timesteps(moments, 1.0),
            "img_shapes": [[(1, 4, 4)] * pictures] * len(moments),
        },
    )


QWEN_IMAGE = _qwen_image(pictures=1)
QWEN_IMAGE_EDIT = _qwen_image(pictures=2, zero_cond_t=True)

SD3 = TinyFamily(
    lambda: diffusers.SD3Transformer2DModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_layers=4,
        joint_attention_dim=TEXT_WIDTH,
        caption_projection_dim=32,
        pooled_projection_dim=8,
        pos_embed_max_size=8,
        dual_attention_layers=(0, 1),
        **_HEADS,
    ),
    lambda moments, branch: (
        _square(moments, branch) | {"pooled_projections": staying(moments, 10 + branch, 8)}
    ),
    _BATCHED,
)

PIXART = TinyFamily(
    lambda: diffusers.PixArtTransformer2DModel(
        in_channels=4,
        out_channels=8,
        num_layers=4,
        cross_attention_dim=32,
        sample_size=8,
        caption_channels=TEXT_WIDTH,
        use_additional_conditions=False,
        **_HEADS,
    ),
    lambda moments, branch: (
        _square(moments, branch) | {"encoder_attention_mask": text_mask(moments, torch.float32)}
    ),
    _BATCHED,
)

Z_IMAGE = TinyFamily(
    lambda: diffusers.ZImageTransformer2DModel(
        in_channels=4,
        dim=32,
        n_layers=4,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=TEXT_WIDTH,
        axes_dims=list(_ROPE),
        axes_lens=[128, 16, 16],
    ),
    # Captions are padded to multiples of 32 tokens: sample 1 has 64 where sample 0 has 32, so that
    # a batch of both has a mask.
    lambda moments, branch: {
        "x": list(drifting(moments, 4, 1, 8, 8)),
        "t": 1 - timesteps(moments, 1.0),
        "cap_feats": [
            embeds.repeat(1 + 6 * sample, 1)
            for (sample, _), embeds in zip(moments, text(moments, branch), strict=True)
        ],
    },
    _BATCHED,
)

SANA = TinyFamily(
    lambda: diffusers.SanaTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=4,
        num_cross_attention_heads=2,
        cross_attention_head_dim=16,
        cross_attention_dim=32,
        caption_channels=TEXT_WIDTH,
        sample_size=8,
        **_HEADS,
    ),
    lambda moments, branch: (
        _square(moments, branch) | {"encoder_attention_mask": text_mask(moments, torch.float32)}
    ),
    _BATCHED,
)

CHROMA = TinyFamily(
    lambda: diffusers.ChromaTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=4,
        num_single_layers=5,
        joint_attention_dim=TEXT_WIDTH,
        axes_dims_rope=_ROPE,
        approximator_num_channels=16,
        approximator_hidden_dim=32,
        approximator_layers=1,
        **_HEADS,
    ),
    lambda moments, branch: (
        _packed(moments, branch)
        | {"attention_mask": torch.ones(len(moments), TEXT_LENGTH + 16, dtype=torch.bool)}
    ),
)

LUMINA2 = TinyFamily(
    lambda: diffusers.Lumina2Transformer2DModel(
        sample_size=8,
        in_channels=4,
        hidden_size=32,
        num_layers=4,
        num_refiner_layers=1,
        num_attention_heads=2,
        num_kv_heads=1,
        multiple_of=16,
        axes_dim_rope=_ROPE,
        axes_lens=(64, 16, 16),
        cap_feat_dim=TEXT_WIDTH,
    ),
    lambda moments, branch: (
        _square(moments, branch)
        | {"encoder_attention_mask": text_mask(moments), "timestep": 1 - timesteps(moments, 1.0)}
    ),
)

COGVIEW4 = TinyFamily(
    lambda: diffusers.CogView4Transformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=4,
        text_embed_dim=TEXT_WIDTH,
        time_embed_dim=16,
        condition_dim=4,
        pos_embed_max_size=8,
        sample_size=8,
        rope_axes_dim=(8, 8),
        **_HEADS,
    ),
    lambda moments, branch: _square(moments, branch) | _sizes(moments),
)

COGVIEW3_PLUS = TinyFamily(
    lambda: diffusers.CogView3PlusTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=4,
        text_embed_dim=TEXT_WIDTH,
        time_embed_dim=16,
        condition_dim=4,
        pos_embed_max_size=8,
        sample_size=8,
        **_HEADS,
    ),
    lambda moments, branch: _square(moments, branch) | _sizes(moments),
    _BATCHED,
)

BRIA = TinyFamily(
    lambda: diffusers.BriaTransformer2DModel(
        in_channels=16,
        num_layers=4,
        num_single_layers=5,
        joint_attention_dim=TEXT_WIDTH,
        axes_dims_rope=list(_ROPE),
        **_HEADS,
    ),
    lambda moments, branch: _packed(moments, branch) | {"timestep": timesteps(moments)},
    _BATCHED,
)

LONGCAT_IMAGE = TinyFamily(
    lambda: diffusers.LongCatImageTransformer2DModel(
        in_channels=16,
        num_layers=4,
        num_single_layers=5,
        joint_attention_dim=TEXT_WIDTH,
        axes_dims_rope=list(_ROPE),
        **_HEADS,
    ),
    _packed,
)

OVIS_IMAGE = TinyFamily(
    lambda: diffusers.OvisImageTransformer2DModel(
        in_channels=16,
        out_channels=16,
        num_layers=4,
        num_single_layers=5,
        joint_attention_dim=TEXT_WIDTH,
        axes_dims_rope=_ROPE,
        **_HEADS,
    ),
    _packed,
)

HUNYUAN_IMAGE = TinyFamily(
    lambda: diffusers.HunyuanImageTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=4,
        num_single_layers=5,
        num_refiner_layers=1,
        patch_size=(2, 2),
        text_embed_dim=TEXT_WIDTH,
        rope_axes_dim=(8, 8),
        **_HEADS,
    ),
    lambda moments, branch: (
        _square(moments, branch) | {"encoder_attention_mask": text_mask(moments)}
    ),
)

AURA_FLOW = TinyFamily(
    lambda: diffusers.AuraFlowTransformer2DModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_mmdit_layers=4,
        num_single_dit_layers=5,
        joint_attention_dim=TEXT_WIDTH,
        caption_projection_dim=32,
        pos_embed_max_size=16,
        **_HEADS,
    ),
    lambda moments, branch: _square(moments, branch) | {"timestep": timesteps(moments, 1.0)},
    _BATCHED,
)

PRX = TinyFamily(
    lambda: diffusers.PRXTransformer2DModel(
        in_channels=4,
        context_in_dim=TEXT_WIDTH,
        hidden_size=32,
        num_heads=2,
        depth=4,
        axes_dim=[8, 8],
    ),
    lambda moments, branch: (
        _square(moments, branch)
        | {"timestep": timesteps(moments, 1.0), "attention_mask": text_mask(moments)}
    ),
    _BATCHED,
)

PICTURE_FAMILIES: dict[str, TinyFamily] = {
    "FluxTransformer2DModel": FLUX,
    "Flux2Transformer2DModel": FLUX2,
    "QwenImageTransformer2DModel": QWEN_IMAGE,
    "SD3Transformer2DModel": SD3,
    "PixArtTransformer2DModel": PIXART,
    "ZImageTransformer2DModel": Z_IMAGE,
    "SanaTransformer2DModel": SANA,
    "ChromaTransformer2DModel": CHROMA,
    "Lumina2Transformer2DModel": LUMINA2,
    "CogView4Transformer2DModel": COGVIEW4,
    "CogView3PlusTransformer2DModel": COGVIEW3_PLUS,
    "BriaTransformer2DModel": BRIA,
    "LongCatImageTransformer2DModel": LONGCAT_IMAGE,
    "OvisImageTransformer2DModel": OVIS_IMAGE,
    "HunyuanImageTransformer2DModel": HUNYUAN_IMAGE,
    "AuraFlowTransformer2DModel": AURA_FLOW,
    "PRXTransformer2DModel": PRX,
}

PICTURE_VARIANTS: dict[str, TinyFamily] = {
    "QwenImageTransformer2DModel with a reference": QWEN_IMAGE_EDIT,
}
