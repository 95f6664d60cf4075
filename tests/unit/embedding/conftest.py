"""A real but tiny text model, as transformers writes one, for tests without a download."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "blue", "fox", "in", "snow"]

SaveModel = Callable[..., Path]


def write_tiny_model(parent: Path, name: str = "tiny", max_tokens: int = 32, seed: int = 0) -> Path:
    """Writes a BERT with random weights and a vocabulary of six words; returns its directory."""
    directory = parent / name
    directory.mkdir()
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = BertTokenizer(vocab=str(directory / "vocab.txt"), model_max_length=max_tokens)
    tokenizer.save_pretrained(directory)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=max_tokens,
        # Far above BERT's own 0.02, with which every text has nearly the same vector.
        initializer_range=0.5,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(directory)
    return directory


@pytest.fixture
def save_model(tmp_path: Path) -> SaveModel:
    """`write_tiny_model` into the test's own directory."""
    return partial(write_tiny_model, tmp_path)
