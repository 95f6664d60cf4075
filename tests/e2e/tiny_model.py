"""A pipeline of random weights, small enough that a step costs milliseconds.

What the picture shows does not matter to most of these tests; that it depends on prompt, seed and
every step does. The class is the one of the bundled model.
"""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    CogView4Pipeline,
    CogView4Transformer2DModel,
    FlowMatchEulerDiscreteScheduler,
)
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GlmConfig, GlmModel, PreTrainedTokenizerFast

_CHANNELS = 4
_TEXT_WIDTH = 16
_TRANSFORMER_GAIN = 2.0
"""On fresh weights; without it prompt and number of steps would hardly show in the picture."""
_MARKS = ("[PAD]", "[BOS]", "[EOS]", "[UNK]")


def write_tiny_model(folder: Path) -> Path:
    """Writes the pipeline in diffusers' folder format; equal weights at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20_26)
        pipeline = CogView4Pipeline(
            tokenizer=_tokenizer(),
            text_encoder=_text_encoder(),
            vae=_autoencoder(),
            transformer=_transformer(),
            scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=False),
        )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of single letters, so that any two prompts differ."""
    letters = [chr(code) for code in range(33, 127)]
    known = {word: index for index, word in enumerate([*_MARKS, *letters])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("", "isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 1), ("[EOS]", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        bos_token="[BOS]",
        eos_token="[EOS]",
        unk_token="[UNK]",
        padding_side="left",
        model_max_length=128,
    )


def _text_encoder() -> GlmModel:
    return GlmModel(
        GlmConfig(
            vocab_size=128,
            hidden_size=_TEXT_WIDTH,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=128,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            # Far above the usual: an untrained encoder must tell prompts apart all the same.
            initializer_range=0.5,
            use_cache=False,
        )
    ).eval()


def _autoencoder() -> AutoencoderKL:
    autoencoder = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        layers_per_block=1,
        latent_channels=_CHANNELS,
        norm_num_groups=2,
        sample_size=32,
        scaling_factor=1.0,
        shift_factor=0.0,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    return autoencoder.eval()


def _transformer() -> CogView4Transformer2DModel:
    transformer = CogView4Transformer2DModel(
        patch_size=2,
        in_channels=_CHANNELS,
        out_channels=_CHANNELS,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        text_embed_dim=_TEXT_WIDTH,
        time_embed_dim=16,
        condition_dim=4,
        pos_embed_max_size=16,
        sample_size=16,
        rope_axes_dim=(4, 4),
    )
    with torch.no_grad():
        for weights in transformer.parameters():
            weights.mul_(_TRANSFORMER_GAIN)
    return transformer.eval()
