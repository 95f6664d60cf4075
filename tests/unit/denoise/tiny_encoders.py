"""Tiny text encoders of the real transformers classes; random weights that tell words apart."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = (
    "[PAD]",
    "[UNK]",
    "[BOS]",
    "a",
    "red",
    "blue",
    "green",
    "circle",
    "square",
    "picture",
    "small",
)

WIDTH = 16
_HEADS = {
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
_ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0}
_CHAT = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}\
{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %} {% endfor %}"


def tiny_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A token for every word."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    # As real ones do, so that the empty prompt is not an empty sequence.
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 2)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )


def chat_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of words with a chat template that shows what is said and nothing else."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = _CHAT
    return tokenizer


def letter_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A token for every letter, so that a template is longer than what is cut off as its own."""
    letters = [chr(code) for code in range(32, 127)]
    known = {word: index for index, word in enumerate(("[PAD]", "[UNK]", *letters))}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        chat_template=_CHAT,
        model_max_length=2048,
    )


def awake(module: torch.nn.Module, std: float = 0.15) -> Any:
    """Gives every parameter random values: fresh ones are zero or near it in places."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module


def t5(width: int = WIDTH) -> transformers.T5EncoderModel:
    """Of Flux.1, SD3.5, PixArt, CogVideoX and LTX."""
    config = transformers.T5Config(
        vocab_size=len(WORDS), d_model=width, d_kv=8, d_ff=WIDTH, num_layers=1, num_heads=2
    )
    return transformers.T5EncoderModel(config)


def _clip_config() -> transformers.CLIPTextConfig:
    return transformers.CLIPTextConfig(
        vocab_size=len(WORDS),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=77,
        projection_dim=WIDTH,
        bos_token_id=2,
        eos_token_id=2,
        pad_token_id=0,
    )


def clip() -> transformers.CLIPTextModel:
    """First encoder of SDXL, second of HunyuanVideo."""
    return awake(transformers.CLIPTextModel(_clip_config()))


def clip_with_projection() -> transformers.CLIPTextModelWithProjection:
    """Of SD3.5, and the second one of SDXL."""
    return awake(transformers.CLIPTextModelWithProjection(_clip_config()))


def clip_vision() -> transformers.CLIPVisionModel:
    """Sees the first frame of Wan 2.1's picture-to-video models."""
    config = transformers.CLIPVisionConfig(
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=8,
        patch_size=4,
    )
    return awake(transformers.CLIPVisionModel(config))


def llama() -> transformers.LlamaModel:
    """First encoder of HunyuanVideo, which reads the third layer from the end."""
    return awake(
        transformers.LlamaModel(
            transformers.LlamaConfig(
                vocab_size=len(WORDS), num_hidden_layers=3, pad_token_id=0, **_HEADS
            )
        )
    )


def qwen3(layers: int = 3) -> transformers.Qwen3ForCausalLM:
    """Of Z-Image, which reads its last layer but one, and of Flux.2 klein, which reads up to 27."""
    config = transformers.Qwen3Config(
        vocab_size=len(WORDS), num_hidden_layers=layers, head_dim=8, pad_token_id=0, **_HEADS
    )
    return awake(transformers.Qwen3ForCausalLM(config))


def qwen25_vl() -> transformers.Qwen2_5_VLForConditionalGeneration:
    """Of Qwen-Image; its eyes are there and see nothing."""
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            **_HEADS,
            "vocab_size": len(WORDS),
            "num_hidden_layers": 2,
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [1, 1, 2],
                "rope_theta": 1e4,
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": WIDTH,
            "intermediate_size": WIDTH,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
        },
    )
    return awake(transformers.Qwen2_5_VLForConditionalGeneration(config))


def qwen25_vl_text() -> transformers.Qwen2_5_VLTextModel:
    """First encoder of HunyuanVideo 1.5, which reads the third layer from the end."""
    config = transformers.Qwen2_5_VLTextConfig(
        **_HEADS, vocab_size=128, num_hidden_layers=3, pad_token_id=0, rope_parameters=_ROPE
    )
    return awake(transformers.Qwen2_5_VLTextModel(config))


def byt5() -> transformers.T5EncoderModel:
    """Second encoder of HunyuanVideo 1.5: reads what is in quotation marks, byte by byte."""
    config = transformers.T5Config(
        vocab_size=384, d_model=WIDTH, d_kv=8, d_ff=WIDTH, num_layers=1, num_heads=2
    )
    return transformers.T5EncoderModel(config)


def mistral3() -> transformers.Mistral3ForConditionalGeneration:
    """Of Flux.2, which reads up to its layer 30."""
    config = transformers.Mistral3Config(
        text_config={
            **_HEADS,
            "model_type": "mistral",
            "vocab_size": len(WORDS) + 1,
            "num_hidden_layers": 31,
            "head_dim": 8,
            "pad_token_id": 0,
        },
        vision_config={
            "model_type": "pixtral",
            "hidden_size": WIDTH,
            "intermediate_size": WIDTH,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "head_dim": 8,
            "image_size": 16,
            "patch_size": 8,
        },
        image_token_index=len(WORDS),
    )
    return awake(transformers.Mistral3ForConditionalGeneration(config))


def chat_processor() -> transformers.LlavaProcessor:
    """A processor where other families have a tokenizer, as Flux.2 does.

    Its own one, PixtralProcessor, needs torchvision, which is not among the dependencies.
    """
    tokenizer = chat_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    return transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessorPil(),
        tokenizer=tokenizer,
        chat_template=_CHAT,
    )
