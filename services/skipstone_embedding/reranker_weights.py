"""Tokenizer and weights of a reranker, from a folder and nowhere else."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from skipstone_embedding.model_files import ModelFiles


def load_reranker_weights(
    model_class: Any, files: ModelFiles, dtype: str, device: torch.device
) -> tuple[Any, Any]:
    """The tokenizer, and the model in evaluation mode on its device.

    Args:
        model_class: Class of transformers with ``from_pretrained``.
        files: Where they are. Only safetensors are read and no code that comes with them is run.
        dtype: Name of a torch dtype.
        device: Where the model computes.

    Raises:
        ValueError: Weights are missing or do not fit.
        OSError: Files are missing.
    """
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(files.directory, local_files_only=True)
    model, info = model_class.from_pretrained(
        files.directory,
        local_files_only=True,
        use_safetensors=True,
        dtype=getattr(torch, dtype),
        output_loading_info=True,
    )
    # transformers makes up missing weights at random, a whole classifier too, and only warns.
    if info["missing_keys"] or info["mismatched_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise ValueError(f"weights are missing or do not fit: {missing}")
    return tokenizer, model.to(device).eval()
