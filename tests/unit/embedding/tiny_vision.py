"""Real but tiny models that see, with random weights, and pictures for them."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tests.unit.embedding.conftest import WORDS
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipImageProcessorPil,
    SiglipModel,
)

from skipstone_shared.embeddings import EncodedImage

_TOWER = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
_SIDE = 16


def write_tiny_clip(parent: Path, name: str = "clip") -> Path:
    """Writes a CLIP of two layers a tower; returns its directory."""
    directory = parent / name
    _write_tokenizer(directory, max_tokens=12)
    torch.manual_seed(0)
    text = {"vocab_size": len(WORDS) + 1, "max_position_embeddings": 12, "eos_token_id": len(WORDS)}
    vision = {"image_size": _SIDE, "patch_size": 4}
    config = CLIPConfig(
        text_config={**_TOWER, **text}, vision_config={**_TOWER, **vision}, projection_dim=8
    )
    _spread(CLIPModel(config)).save_pretrained(directory)
    size = {"height": _SIDE, "width": _SIDE}
    CLIPImageProcessorPil(
        size={"shortest_edge": _SIDE}, crop_size=size, do_center_crop=True
    ).save_pretrained(directory)
    return directory


def write_tiny_siglip(parent: Path, name: str = "siglip") -> Path:
    """Writes a SigLIP of two layers a tower; returns its directory."""
    directory = parent / name
    _write_tokenizer(directory, max_tokens=12)
    torch.manual_seed(0)
    text = {"vocab_size": len(WORDS) + 1, "max_position_embeddings": 12, "projection_size": 16}
    vision = {"image_size": _SIDE, "patch_size": 4}
    config = SiglipConfig(text_config={**_TOWER, **text}, vision_config={**_TOWER, **vision})
    _spread(SiglipModel(config)).save_pretrained(directory)
    SiglipImageProcessorPil(size={"height": _SIDE, "width": _SIDE}).save_pretrained(directory)
    return directory


def _spread(model: torch.nn.Module) -> torch.nn.Module:
    """Makes weights larger: with the models' own every input has nearly the same vector."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "norm" not in name:
                weight.normal_(0, 0.4)
    return model


def _write_tokenizer(directory: Path, max_tokens: int) -> None:
    ids = {word: number for number, word in enumerate([*WORDS, "[END]"])}
    words = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [END]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[END]", ids["[END]"])]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="[UNK]",
        pad_token="[PAD]",
        eos_token="[END]",
        bos_token="[CLS]",
        model_max_length=max_tokens,
    ).save_pretrained(directory)


def picture(
    seed: int = 0, size: tuple[int, int] = (48, 32), media_type: str = "image/png"
) -> EncodedImage:
    """A picture of coloured blocks."""
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    image = Image.fromarray(blocks).resize(size, Image.Resampling.NEAREST)
    return encoded(image, media_type)


def encoded(image: Image.Image, media_type: str = "image/png", **options: object) -> EncodedImage:
    """A picture as a caller sends it."""
    buffer = io.BytesIO()
    image.save(buffer, media_type.removeprefix("image/").upper(), **options)
    return EncodedImage(media_type, buffer.getvalue())


def png(width: int, height: int, rows: bytes = b"") -> EncodedImage:
    """A PNG by hand: its header may promise what is not there."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    content += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return EncodedImage("image/png", content)
