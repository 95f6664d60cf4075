"""Tiny transformers of video models: three latent frames of 8x8, four blocks or more per list."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
from tests.unit.denoise.blockcache.families.tiny_inputs import (
    TEXT_WIDTH,
    Moments,
    drifting,
    rotary_table,
    staying,
    text,
    text_mask,
    timesteps,
)
from tests.unit.denoise.blockcache.families.tiny_transformers import TinyFamily

_ROPE = (4, 6, 6)
_HEADS = {"attention_head_dim": 16, "num_attention_heads": 2}
_BATCHED = ("cond_uncond",)
_FRAMES = 3


def _video(moments: Moments, branch: int) -> dict[str, Any]:
    """What most video transformers share."""
    return {
        "hidden_states": drifting(moments, 4, _FRAMES, 8, 8),
        "encoder_hidden_states": text(moments, branch),
        "timestep": timesteps(moments),
    }


def _wan_like(transformer_class: Any) -> TinyFamily:
    return TinyFamily(
        lambda: transformer_class(
            in_channels=4,
            out_channels=4,
            text_dim=TEXT_WIDTH,
            freq_dim=16,
            ffn_dim=32,
            num_layers=4,
            rope_max_seq_len=32,
            **_HEADS,
        ),
        _video,
    )


def _hunyuan(image_condition_type: str | None = None) -> TinyFamily:
    return TinyFamily(
        lambda: diffusers.HunyuanVideoTransformer3DModel(
            in_channels=4,
            out_channels=4,
            num_layers=4,
            num_single_layers=5,
            num_refiner_layers=1,
            text_embed_dim=TEXT_WIDTH,
            pooled_projection_dim=8,
            rope_axes_dim=_ROPE,
            image_condition_type=image_condition_type,
            **_HEADS,
        ),
        lambda moments, branch: (
            _video(moments, branch)
            | {
                "encoder_attention_mask": text_mask(moments),
                "pooled_projections": staying(moments, 10 + branch, 8),
                "guidance": torch.full((len(moments),), 6000.0),
            }
        ),
    )


WAN = _wan_like(diffusers.WanTransformer3DModel)
WAN_TOKEN_TIMESTEPS = TinyFamily(
    WAN.build,
    # Wan 2.2 5B: the first frame is given, so its tokens are at timestep 0.
    lambda moments, branch: (
        _video(moments, branch)
        | {"timestep": timesteps(moments)[:, None] * (torch.arange(_FRAMES * 16) >= 16)}
    ),
)
SKYREELS_V2 = _wan_like(diffusers.SkyReelsV2Transformer3DModel)
CHRONO_EDIT = _wan_like(diffusers.ChronoEditTransformer3DModel)
HUNYUAN_VIDEO = _hunyuan()
HUNYUAN_VIDEO_TOKEN_REPLACE = _hunyuan("token_replace")

HUNYUAN_VIDEO_15 = TinyFamily(
    lambda: diffusers.HunyuanVideo15Transformer3DModel(
        in_channels=4,
        out_channels=4,
        num_layers=4,
        num_refiner_layers=1,
        patch_size=2,
        text_embed_dim=TEXT_WIDTH,
        text_embed_2_dim=8,
        image_embed_dim=8,
        rope_axes_dim=_ROPE,
        target_size=64,
        task_type="t2v",
        **_HEADS,
    ),
    lambda moments, branch: (
        _video(moments, branch)
        | {
            "encoder_attention_mask": text_mask(moments),
            "encoder_hidden_states_2": text(moments, 20 + branch, 8),
            "encoder_attention_mask_2": text_mask(moments),
            "image_embeds": torch.zeros(len(moments), 2, 8),
        }
    ),
)

COGVIDEOX = TinyFamily(
    lambda: diffusers.CogVideoXTransformer3DModel(
        in_channels=4,
        out_channels=4,
        time_embed_dim=16,
        text_embed_dim=TEXT_WIDTH,
        num_layers=4,
        sample_width=8,
        sample_height=8,
        sample_frames=9,
        max_text_seq_length=6,
        use_rotary_positional_embeddings=True,
        **_HEADS,
    ),
    lambda moments, branch: (
        _video(moments, branch)
        | {
            "hidden_states": drifting(moments, _FRAMES, 4, 8, 8),
            "image_rotary_emb": rotary_table(_FRAMES * 16, 16),
        }
    ),
    _BATCHED,
)

LTX = TinyFamily(
    lambda: diffusers.LTXVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        cross_attention_dim=32,
        num_layers=4,
        caption_channels=TEXT_WIDTH,
        **_HEADS,
    ),
    lambda moments, branch: {
        "hidden_states": drifting(moments, _FRAMES * 16, 4),
        "encoder_hidden_states": text(moments, branch),
        "encoder_attention_mask": text_mask(moments, torch.float32),
        "timestep": timesteps(moments),
        "num_frames": _FRAMES,
        "height": 4,
        "width": 4,
    },
    _BATCHED,
)

MOCHI = TinyFamily(
    lambda: diffusers.MochiTransformer3DModel(
        num_layers=4,
        pooled_projection_dim=16,
        in_channels=4,
        text_embed_dim=TEXT_WIDTH,
        time_embed_dim=16,
        max_sequence_length=6,
        **_HEADS,
    ),
    lambda moments, branch: (
        _video(moments, branch) | {"encoder_attention_mask": text_mask(moments)}
    ),
    _BATCHED,
)

ALLEGRO = TinyFamily(
    lambda: diffusers.AllegroTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=24,
        num_layers=4,
        cross_attention_dim=48,
        sample_height=8,
        sample_width=8,
        sample_frames=_FRAMES,
        caption_channels=TEXT_WIDTH,
    ),
    lambda moments, branch: (
        _video(moments, branch)
        | {
            "attention_mask": torch.ones(len(moments), _FRAMES, 8, 8),
            "encoder_attention_mask": text_mask(moments, torch.float32),
            "image_rotary_emb": _allegro_rotary(),
        }
    ),
    _BATCHED,
)


def _allegro_rotary() -> Any:
    """Tables of the three axes and the grid of positions, as AllegroPipeline prepares them."""
    frequencies = tuple(rotary_table(size, 8) for size in (_FRAMES, 4, 4))
    grid = torch.cartesian_prod(torch.arange(_FRAMES), torch.arange(4), torch.arange(4))
    return frequencies, tuple(grid[:, axis][None] for axis in range(3))


SANA_VIDEO = TinyFamily(
    lambda: diffusers.SanaVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_layers=4,
        num_cross_attention_heads=2,
        cross_attention_head_dim=16,
        cross_attention_dim=32,
        caption_channels=TEXT_WIDTH,
        sample_size=8,
        rope_max_seq_len=32,
        **_HEADS,
    ),
    lambda moments, branch: (
        _video(moments, branch) | {"encoder_attention_mask": text_mask(moments, torch.float32)}
    ),
    _BATCHED,
)

COSMOS = TinyFamily(
    lambda: diffusers.CosmosTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_layers=4,
        text_embed_dim=TEXT_WIDTH,
        adaln_lora_dim=4,
        max_size=(4, 8, 8),
        concat_padding_mask=False,
        **_HEADS,
    ),
    lambda moments, branch: _video(moments, branch) | {"fps": 16},
)

KANDINSKY5 = TinyFamily(
    lambda: diffusers.Kandinsky5Transformer3DModel(
        in_visual_dim=4,
        out_visual_dim=4,
        in_text_dim=TEXT_WIDTH,
        in_text_dim2=8,
        time_dim=16,
        model_dim=32,
        ff_dim=32,
        num_text_blocks=1,
        num_visual_blocks=4,
        axes_dims=_ROPE,
    ),
    lambda moments, branch: {
        "hidden_states": drifting(moments, _FRAMES, 8, 8, 4),
        "encoder_hidden_states": text(moments, branch),
        "pooled_projections": staying(moments, 10 + branch, 8),
        "timestep": timesteps(moments),
        "visual_rope_pos": [torch.arange(_FRAMES), torch.arange(4), torch.arange(4)],
        "text_rope_pos": torch.arange(6),
    },
)

VIDEO_FAMILIES: dict[str, TinyFamily] = {
    "WanTransformer3DModel": WAN,
    "SkyReelsV2Transformer3DModel": SKYREELS_V2,
    "ChronoEditTransformer3DModel": CHRONO_EDIT,
    "HunyuanVideoTransformer3DModel": HUNYUAN_VIDEO,
    "HunyuanVideo15Transformer3DModel": HUNYUAN_VIDEO_15,
    "CogVideoXTransformer3DModel": COGVIDEOX,
    "LTXVideoTransformer3DModel": LTX,
    "MochiTransformer3DModel": MOCHI,
    "AllegroTransformer3DModel": ALLEGRO,
    "SanaVideoTransformer3DModel": SANA_VIDEO,
    "CosmosTransformer3DModel": COSMOS,
    "Kandinsky5Transformer3DModel": KANDINSKY5,
}

VIDEO_VARIANTS: dict[str, TinyFamily] = {
    "WanTransformer3DModel with a timestep per token": WAN_TOKEN_TIMESTEPS,
    "HunyuanVideoTransformer3DModel with a first frame": HUNYUAN_VIDEO_TOKEN_REPLACE,
}
