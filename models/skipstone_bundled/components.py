"""The parts of the bundled pipeline with random weights: tokenizer, text encoder, transformer.

Their classes are those that `diffusers.CogView4Pipeline` expects, only tiny. Why this pipeline:
`docs/decisions/0002-bundled-model.md`.
"""

from __future__ import annotations

from typing import Final

import torch
from diffusers import CogView4Transformer2DModel, FlowMatchEulerDiscreteScheduler
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import GlmConfig, GlmModel, PreTrainedTokenizerFast

from skipstone_bundled.captions import vocabulary
from skipstone_bundled.drawing import PICTURE_SIZE
from skipstone_bundled.train_autoencoder import LATENT_CHANNELS

MAX_PROMPT_TOKENS: Final = 128
TEXT_PADDING: Final = 16
"""The pipeline pads prompts on the left to a multiple of this many tokens."""
LATENT_SIZE: Final = PICTURE_SIZE // 2

_SPECIAL = ("[PAD]", "[BOS]", "[EOS]", "[UNK]")
_TEXT_WIDTH = 128
# Queries and keys are normalised without a scale, so a logit is at most the square root of the head
# width: with 32 (5.7) no head could attend to one word among 96 tokens, with 80 (8.9) they do.
_HEADS, _HEAD_WIDTH, _LAYERS, _PATCH = 2, 80, 8, 4


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Returns a tokenizer of whole words, lower-cased, with unknown words as `[UNK]`."""
    words = {word: index for index, word in enumerate([*_SPECIAL, *vocabulary()])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    # The two marks around every prompt give the empty prompt something to attend to.
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
        model_max_length=MAX_PROMPT_TOKENS,
    )


def build_text_encoder(vocabulary_size: int) -> GlmModel:
    """Returns a causal text encoder; the pipeline reads its second last layer."""
    config = GlmConfig(
        vocab_size=vocabulary_size,
        hidden_size=_TEXT_WIDTH,
        intermediate_size=2 * _TEXT_WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=MAX_PROMPT_TOKENS,
        attention_bias=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        use_cache=False,
    )
    return GlmModel(config)


def build_transformer() -> CogView4Transformer2DModel:
    """Returns the transformer, initialised so that every block begins as the identity.

    Zero gates and a zero output follow DiT (Peebles and Xie, 2022, arXiv 2212.09748, section 3.2).
    """
    transformer = CogView4Transformer2DModel(
        patch_size=_PATCH,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_layers=_LAYERS,
        attention_head_dim=_HEAD_WIDTH,
        num_attention_heads=_HEADS,
        text_embed_dim=_TEXT_WIDTH,
        time_embed_dim=96,
        condition_dim=16,
        pos_embed_max_size=LATENT_SIZE // _PATCH,
        sample_size=LATENT_SIZE,
        # Eight patches a side, four units apart: half of the rotary pairs then turn by something
        # between half a radian and several turns across the picture, which tells places apart.
        rope_axes_dim=(32, 32),
    )
    for module in transformer.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    with torch.no_grad():
        for block in transformer.transformer_blocks:
            block.norm1.linear.weight.zero_()
        transformer.norm_out.linear.weight.zero_()
        transformer.proj_out.weight.zero_()
    return transformer


def build_scheduler() -> FlowMatchEulerDiscreteScheduler:
    """Returns the scheduler: sigma falls evenly from 1, no shift, so timestep = 1000 sigma."""
    return FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=False)
