"""Writes the trained parts as a folder in diffusers' own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from diffusers import AutoencoderKL, CogView4Pipeline

from skipstone_bundled.components import build_scheduler, build_tokenizer
from skipstone_bundled.train_transformer import Denoiser


def build_pipeline(denoiser: Denoiser, autoencoder: AutoencoderKL) -> CogView4Pipeline:
    """Puts the parts together as the stock pipeline."""
    return CogView4Pipeline(
        tokenizer=build_tokenizer(),
        text_encoder=denoiser.text_encoder,
        vae=autoencoder.to(memory_format=torch.contiguous_format),
        transformer=denoiser.transformer,
        scheduler=build_scheduler(),
    )


def export_pipeline(denoiser: Denoiser, autoencoder: AutoencoderKL, folder: Path) -> None:
    """Writes the pipeline's folder; the parts passed in are used up (converted in place).

    Transformer and autoencoder are stored in float16, which halves the files; diffusers loads them
    as float32 unless told otherwise. The text encoder stays float32 because transformers loads the
    precision that it finds, and the pipeline needs one precision for all.
    """
    pipeline = build_pipeline(denoiser, autoencoder)
    for part in (pipeline.transformer, pipeline.vae):
        cast(Any, part).half()
    pipeline.save_pretrained(folder, safe_serialization=True)
