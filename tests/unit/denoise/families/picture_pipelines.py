"""Tiny pipelines of picture families beside those of `tiny_pipelines`."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
from tests.unit.denoise.tiny_encoders import (
    WIDTH,
    awake,
    chat_processor,
    chat_tokenizer,
    clip,
    clip_with_projection,
    mistral3,
    qwen3,
    qwen25_vl,
    t5,
    tiny_tokenizer,
)
from tests.unit.denoise.tiny_pipelines import tiny_autoencoder

_HEADS = {"attention_head_dim": 16, "num_attention_heads": 2}
_ROPE = (4, 6, 6)


def _flow_euler(**config: Any) -> Any:
    return diffusers.FlowMatchEulerDiscreteScheduler(**config)


def qwen_image() -> diffusers.QwenImagePipeline:
    """Packed latents, true guidance with two prompts, a shift that follows the size."""
    torch.manual_seed(0)
    transformer = diffusers.QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=4,
        joint_attention_dim=WIDTH,
        axes_dims_rope=_ROPE,
        **_HEADS,
    )
    autoencoder = diffusers.AutoencoderKLQwenImage(
        base_dim=4,
        z_dim=4,
        dim_mult=[1, 1],
        num_res_blocks=1,
        temperal_downsample=[True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    return diffusers.QwenImagePipeline(
        scheduler=_flow_euler(use_dynamic_shifting=True),
        vae=autoencoder,
        text_encoder=qwen25_vl(),
        tokenizer=chat_tokenizer(),
        transformer=awake(transformer),
    )


def _flux2_parts() -> dict[str, Any]:
    transformer = diffusers.Flux2Transformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        joint_attention_dim=3 * WIDTH,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        **_HEADS,
    )
    autoencoder = diffusers.AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(8, 8),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=16,
    )
    return {
        "scheduler": _flow_euler(use_dynamic_shifting=True),
        "vae": autoencoder,
        "transformer": awake(transformer, 0.08),
    }


def flux2() -> diffusers.Flux2Pipeline:
    """Distilled guidance, pictures as optional references, a processor as tokenizer."""
    torch.manual_seed(0)
    return diffusers.Flux2Pipeline(
        text_encoder=mistral3(), tokenizer=chat_processor(), **_flux2_parts()
    )


def flux2_klein() -> diffusers.Flux2KleinPipeline:
    """The small Flux.2: guidance against the empty prompt."""
    torch.manual_seed(0)
    return diffusers.Flux2KleinPipeline(
        text_encoder=qwen3(layers=28), tokenizer=chat_tokenizer(), **_flux2_parts()
    )


def sd35() -> diffusers.StableDiffusion3Pipeline:
    """Three text encoders, guidance in one batch."""
    torch.manual_seed(0)
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=4,
        joint_attention_dim=2 * WIDTH,
        caption_projection_dim=32,
        pooled_projection_dim=2 * WIDTH,
        pos_embed_max_size=16,
        dual_attention_layers=(0, 1),
        qk_norm="rms_norm",
        **_HEADS,
    )
    autoencoder = tiny_autoencoder()
    autoencoder.register_to_config(shift_factor=0.1)
    return diffusers.StableDiffusion3Pipeline(
        transformer=awake(transformer),
        scheduler=_flow_euler(shift=3.0),
        vae=autoencoder,
        text_encoder=clip_with_projection(),
        tokenizer=tiny_tokenizer(),
        text_encoder_2=clip_with_projection(),
        tokenizer_2=tiny_tokenizer(),
        text_encoder_3=t5(2 * WIDTH),
        tokenizer_3=tiny_tokenizer(),
    )


def z_image() -> diffusers.ZImagePipeline:
    """Lists of pictures instead of batches; guidance from any scale above 0."""
    torch.manual_seed(0)
    transformer = diffusers.ZImageTransformer2DModel(
        in_channels=4,
        dim=32,
        n_layers=4,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=WIDTH,
        axes_dims=list(_ROPE),
        axes_lens=[1024, 32, 32],
    )
    autoencoder = tiny_autoencoder()
    autoencoder.register_to_config(shift_factor=0.1)
    return diffusers.ZImagePipeline(
        scheduler=_flow_euler(shift=3.0),
        vae=autoencoder,
        text_encoder=qwen3(),
        tokenizer=chat_tokenizer(),
        transformer=awake(transformer),
    )


def sdxl() -> diffusers.StableDiffusionXLPipeline:
    """A UNet: latents only, no blocks to cache."""
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        norm_num_groups=4,
        cross_attention_dim=2 * WIDTH,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        # Six sizes and the pooled text.
        projection_class_embeddings_input_dim=6 * 8 + WIDTH,
    )
    return diffusers.StableDiffusionXLPipeline(
        vae=tiny_autoencoder(),
        text_encoder=clip(),
        text_encoder_2=clip_with_projection(),
        tokenizer=tiny_tokenizer(),
        tokenizer_2=tiny_tokenizer(),
        unet=awake(unet),
        scheduler=diffusers.EulerDiscreteScheduler(
            beta_schedule="scaled_linear",
            beta_start=0.00085,
            beta_end=0.012,
            timestep_spacing="leading",
            steps_offset=1,
        ),
    )
