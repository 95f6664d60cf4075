"""Pipelines of real diffusers classes with tiny random weights, built in memory."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    CogView4Pipeline,
    CogView4Transformer2DModel,
    DDIMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from tests.unit.denoise.tiny_encoders import WORDS, awake, clip, t5, tiny_tokenizer
from transformers import GlmConfig, GlmModel, UMT5Config, UMT5EncoderModel


def tiny_autoencoder() -> AutoencoderKL:
    """Scale 2; eight pixels make four latent elements."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(8, 8),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=16,
    )


def cogview4_pipeline(scheduler: Any = None, seed: int = 0) -> CogView4Pipeline:
    """Pictures of 32x32 at most, guidance in separate calls, `callback_on_step_end`."""
    torch.manual_seed(seed)
    transformer = CogView4Transformer2DModel(
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        text_embed_dim=16,
        time_embed_dim=8,
        condition_dim=4,
        pos_embed_max_size=8,
        sample_size=16,
        rope_axes_dim=(4, 4),
    )
    awake(transformer)
    encoder = GlmModel(
        GlmConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=0,
            bos_token_id=0,
        )
    )
    return CogView4Pipeline(
        tokenizer=tiny_tokenizer(),
        text_encoder=encoder,
        vae=tiny_autoencoder(),
        transformer=transformer,
        scheduler=scheduler or FlowMatchEulerDiscreteScheduler(shift=1.5),
    )


def pixart_pipeline(scheduler: Any = None, seed: int = 0) -> PixArtSigmaPipeline:
    """Pictures, guidance in one batch, no `callback_on_step_end`, epsilon prediction."""
    torch.manual_seed(seed)
    transformer = PixArtTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        out_channels=8,
        num_layers=2,
        cross_attention_dim=16,
        sample_size=16,
        patch_size=2,
        caption_channels=16,
        use_additional_conditions=False,
    )
    awake(transformer)
    encoder = t5()
    return PixArtSigmaPipeline(
        tokenizer=tiny_tokenizer(),
        text_encoder=encoder,
        vae=tiny_autoencoder(),
        transformer=transformer,
        scheduler=scheduler or DDIMScheduler(),
    )


def flux_pipeline(scheduler: Any = None, seed: int = 0) -> FluxPipeline:
    """Pictures, latents packed in 2x2 patches, distilled guidance, sigmas that follow the size."""
    torch.manual_seed(seed)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    awake(transformer)
    clip_encoder = clip()
    encoder = t5()
    autoencoder = tiny_autoencoder()
    autoencoder.register_to_config(shift_factor=0.1)
    return FluxPipeline(
        scheduler=scheduler or FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=autoencoder,
        text_encoder=clip_encoder,
        tokenizer=tiny_tokenizer(),
        text_encoder_2=encoder,
        tokenizer_2=tiny_tokenizer(),
        transformer=transformer,
    )


def wan_pipeline(scheduler: Any = None, seed: int = 0) -> WanPipeline:
    """Videos, guidance in separate calls, an autoencoder that keeps state between frames."""
    return WanPipeline(**wan_components(scheduler, seed, in_channels=4))


def wan_image_pipeline(scheduler: Any = None, seed: int = 0) -> WanImageToVideoPipeline:
    """Videos that begin with a picture; mask and encoded picture stand beside the latents."""
    return WanImageToVideoPipeline(**wan_components(scheduler, seed, in_channels=12))


def wan_dual_pipeline(scheduler: Any = None, seed: int = 0) -> WanPipeline:
    """Videos by two transformers: the first while the timestep is 700 or more, then the second."""
    components = wan_components(scheduler, seed, in_channels=4)
    torch.manual_seed(seed + 1)
    return WanPipeline(**components, transformer_2=wan_transformer(4), boundary_ratio=0.7)


def wan_transformer(in_channels: int, **config: Any) -> WanTransformer3DModel:
    """Two blocks; latents of four channels leave it, whatever comes in beside them."""
    transformer = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=in_channels,
        out_channels=4,
        text_dim=16,
        freq_dim=16,
        ffn_dim=16,
        num_layers=2,
        rope_max_seq_len=32,
        **config,
    )
    awake(transformer)
    return transformer


def wan_components(scheduler: Any, seed: int, in_channels: int) -> dict[str, Any]:
    """What pipelines of the Wan family are made of."""
    torch.manual_seed(seed)
    transformer = wan_transformer(in_channels)
    encoder = UMT5EncoderModel(
        UMT5Config(vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )
    autoencoder = AutoencoderKLWan(
        base_dim=4,
        z_dim=4,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    return {
        "tokenizer": tiny_tokenizer(),
        "text_encoder": encoder,
        "vae": autoencoder,
        "transformer": transformer,
        "scheduler": scheduler
        or UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    }
