"""Tiny pipelines of video families beside those of `tiny_pipelines`."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
import transformers
from diffusers.guiders import ClassifierFreeGuidance
from tests.unit.denoise.tiny_encoders import (
    WIDTH,
    awake,
    byt5,
    chat_tokenizer,
    clip,
    clip_vision,
    letter_tokenizer,
    llama,
    qwen25_vl_text,
    t5,
    tiny_tokenizer,
)
from tests.unit.denoise.tiny_pipelines import (
    wan_components,
    wan_transformer,
)

_HEADS = {"attention_head_dim": 16, "num_attention_heads": 2}


def wan21_i2v() -> diffusers.WanImageToVideoPipeline:
    """Wan 2.1: the picture is seen by an encoder of its own too."""
    components = wan_components(None, 0, in_channels=12)
    components["transformer"] = wan_transformer(12, image_dim=WIDTH)
    return diffusers.WanImageToVideoPipeline(
        **components,
        image_encoder=clip_vision(),
        image_processor=transformers.CLIPImageProcessorPil(
            size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8}
        ),
    )


def wan22_i2v() -> diffusers.WanImageToVideoPipeline:
    """Wan 2.2 A14B: two transformers and no encoder of pictures."""
    components = wan_components(None, 0, in_channels=12)
    torch.manual_seed(1)
    return diffusers.WanImageToVideoPipeline(
        **components, transformer_2=wan_transformer(12), boundary_ratio=0.7
    )


def wan22_5b() -> diffusers.WanPipeline:
    """Wan 2.2 5B: every token has a timestep of its own."""
    return diffusers.WanPipeline(**wan_components(None, 0, in_channels=4), expand_timesteps=True)


def wan22_5b_i2v() -> diffusers.WanImageToVideoPipeline:
    """Wan 2.2 5B from a picture: the first frame's tokens stay at timestep 0."""
    components = wan_components(None, 0, in_channels=4)
    return diffusers.WanImageToVideoPipeline(**components, expand_timesteps=True)


def _ltx_parts(*, timestep_conditioning: bool = False) -> dict[str, Any]:
    torch.manual_seed(0)
    transformer = diffusers.LTXVideoTransformer3DModel(
        in_channels=8,
        out_channels=8,
        cross_attention_dim=32,
        num_layers=4,
        caption_channels=WIDTH,
        **_HEADS,
    )
    autoencoder = diffusers.AutoencoderKLLTXVideo(
        latent_channels=8,
        block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1),
        decoder_layers_per_block=(1, 1, 1, 1, 1),
        spatio_temporal_scaling=(True, True, False, False),
        decoder_spatio_temporal_scaling=(True, True, False, False),
        decoder_inject_noise=(False, False, False, False, False),
        timestep_conditioning=timestep_conditioning,
        patch_size=1,
        patch_size_t=1,
    )
    return {
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, shift_terminal=0.1, base_image_seq_len=1024
        ),
        "vae": autoencoder,
        "text_encoder": t5(),
        "tokenizer": tiny_tokenizer(),
        "transformer": awake(transformer),
    }


def ltx() -> diffusers.LTXPipeline:
    """Packed latents, guidance in one batch, a schedule that ends above 0, a decoder with noise."""
    return diffusers.LTXPipeline(**_ltx_parts(timestep_conditioning=True))


def ltx_i2v() -> diffusers.LTXImageToVideoPipeline:
    """The first frame is given and never denoised."""
    return diffusers.LTXImageToVideoPipeline(**_ltx_parts())


def hunyuan_video() -> diffusers.HunyuanVideoPipeline:
    """Distilled guidance, and true guidance with two prompts beside it."""
    torch.manual_seed(0)
    transformer = diffusers.HunyuanVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_layers=2,
        num_single_layers=2,
        num_refiner_layers=1,
        patch_size=1,
        text_embed_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        rope_axes_dim=(4, 6, 6),
        **_HEADS,
    )
    autoencoder = diffusers.AutoencoderKLHunyuanVideo(
        latent_channels=4,
        block_out_channels=(8, 8, 8, 8),
        down_block_types=("HunyuanVideoDownBlock3D",) * 4,
        up_block_types=("HunyuanVideoUpBlock3D",) * 4,
        layers_per_block=1,
        norm_num_groups=4,
        mid_block_add_attention=True,
    )
    return diffusers.HunyuanVideoPipeline(
        text_encoder=llama(),
        tokenizer=chat_tokenizer(),
        transformer=awake(transformer),
        vae=autoencoder,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder_2=clip(),
        tokenizer_2=tiny_tokenizer(),
    )


def hunyuan_video_15() -> diffusers.HunyuanVideo15Pipeline:
    """Guided by a part of its own, here in the first half of the steps only; no step callback."""
    torch.manual_seed(0)
    transformer = diffusers.HunyuanVideo15Transformer3DModel(
        in_channels=9,
        out_channels=4,
        num_layers=4,
        num_refiner_layers=1,
        patch_size=1,
        text_embed_dim=WIDTH,
        text_embed_2_dim=WIDTH,
        image_embed_dim=8,
        rope_axes_dim=(4, 6, 6),
        target_size=16,
        task_type="t2v",
        **_HEADS,
    )
    autoencoder = diffusers.AutoencoderKLHunyuanVideo15(
        latent_channels=4,
        block_out_channels=(16, 16, 16, 16),
        layers_per_block=1,
        spatial_compression_ratio=8,
        temporal_compression_ratio=4,
        downsample_match_channel=False,
        upsample_match_channel=False,
    )
    return diffusers.HunyuanVideo15Pipeline(
        text_encoder=qwen25_vl_text(),
        tokenizer=letter_tokenizer(),
        transformer=awake(transformer),
        vae=autoencoder,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder_2=byt5(),
        tokenizer_2=transformers.ByT5Tokenizer(),
        guider=ClassifierFreeGuidance(guidance_scale=6.0, stop=0.5),
    )


def _cogvideox_parts(scheduler: Any, in_channels: int) -> dict[str, Any]:
    torch.manual_seed(0)
    transformer = diffusers.CogVideoXTransformer3DModel(
        in_channels=in_channels,
        out_channels=4,
        time_embed_dim=16,
        text_embed_dim=WIDTH,
        num_layers=4,
        sample_width=2,
        sample_height=2,
        sample_frames=9,
        patch_size=2,
        temporal_compression_ratio=4,
        max_text_seq_length=226,
        use_rotary_positional_embeddings=True,
        **_HEADS,
    )
    autoencoder = diffusers.AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * 4,
        up_block_types=("CogVideoXUpBlock3D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=2,
    )
    return {
        "tokenizer": tiny_tokenizer(),
        "text_encoder": t5(),
        "vae": autoencoder,
        "transformer": awake(transformer),
        "scheduler": scheduler,
    }


def cogvideox() -> diffusers.CogVideoXPipeline:
    """Frames before channels in the latents, guidance in one batch, v-prediction."""
    return diffusers.CogVideoXPipeline(
        **_cogvideox_parts(diffusers.CogVideoXDDIMScheduler(prediction_type="v_prediction"), 4)
    )


def cogvideox_dpm() -> diffusers.CogVideoXPipeline:
    """With a scheduler that draws noise while it steps."""
    return diffusers.CogVideoXPipeline(
        **_cogvideox_parts(diffusers.CogVideoXDPMScheduler(prediction_type="v_prediction"), 4)
    )


def cogvideox_i2v() -> diffusers.CogVideoXImageToVideoPipeline:
    """The encoded picture stands beside the latents as channels of its own."""
    return diffusers.CogVideoXImageToVideoPipeline(
        **_cogvideox_parts(diffusers.CogVideoXDDIMScheduler(prediction_type="v_prediction"), 8)
    )
