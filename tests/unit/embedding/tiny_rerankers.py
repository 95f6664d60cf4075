"""Real but tiny rerankers with random weights, as transformers writes them."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.unit.embedding.conftest import WORDS
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    PreTrainedTokenizerFast,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

END_OF_TURN = "<|im_end|>"

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")

SPREAD = 0.5
"""Standard deviation of the weights: with the models' own every pair has nearly the same score."""


def write_tiny_cross_encoder(parent: Path, labels: int, name: str = "cross-encoder") -> Path:
    """Writes a BERT that classifies pairs; returns its directory."""
    directory = parent / name
    directory.mkdir()
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(vocab=str(directory / "vocab.txt"), model_max_length=32).save_pretrained(
        directory
    )
    torch.manual_seed(labels)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=SPREAD,
        num_labels=labels,
    )
    BertForSequenceClassification(config).save_pretrained(directory)
    return directory


def write_tiny_qwen3_vl(parent: Path, name: str = "qwen3-vl") -> Path:
    """Writes a Qwen3-VL of two layers whose tokens are words; returns its directory."""
    directory = parent / name
    vocabulary = [*WORDS, "yes", "no", "Query", "Document", "Instruct", END_OF_TURN, *VISION_TOKENS]
    ids = {word: number for number, word in enumerate(vocabulary)}
    words = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="[UNK]",
        pad_token="[PAD]",
        additional_special_tokens=[END_OF_TURN, *VISION_TOKENS],
    ).save_pretrained(directory)
    torch.manual_seed(0)
    text = {
        "vocab_size": len(vocabulary),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "initializer_range": SPREAD,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [2, 1, 1],
        },
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": 16,
        "patch_size": 4,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    special = {
        f"{name}_token_id": ids[token]
        for name, token in zip(
            ("vision_start", "vision_end", "image", "video"), VISION_TOKENS, strict=True
        )
    }
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **special)
    Qwen3VLForConditionalGeneration(config).save_pretrained(directory)
    return directory
