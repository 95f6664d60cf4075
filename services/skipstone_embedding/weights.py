"""Tokenizer and weights of a model, from a folder and nowhere else."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import transformers

from skipstone_embedding.model_files import ModelFiles


class LoadOptions(Protocol):
    """What weights are loaded with."""

    @property
    def dtype(self) -> str:
        """Name of a torch dtype."""
        ...

    @property
    def attention(self) -> str:
        """Attention implementation of transformers; ``auto`` leaves it to the model."""
        ...


def load_weights(
    model_class: Any, files: ModelFiles, options: LoadOptions, may_miss: str = "\0"
) -> tuple[Any, Any]:
    """The tokenizer, and the model on the CPU.

    Args:
        model_class: Class of transformers with ``from_pretrained``.
        files: Where they are. Only safetensors are read and no code that comes with them is run.
        options: Element type and attention.
        may_miss: Beginning of the names of weights that may be missing.

    Raises:
        ValueError: Weights are missing or do not fit, or there is no such attention.
        ImportError: The attention's library is not installed.
        OSError: Files are missing.
    """
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(files.directory, local_files_only=True)
    attention = {} if options.attention == "auto" else {"attn_implementation": options.attention}
    model, info = model_class.from_pretrained(
        files.directory,
        local_files_only=True,
        use_safetensors=True,
        dtype=getattr(torch, options.dtype),
        output_loading_info=True,
        **attention,
    )
    # transformers makes up missing weights at random, a whole classifier too, and only warns.
    missing = sorted(name for name in info["missing_keys"] if not name.startswith(may_miss))
    if missing or info["mismatched_keys"]:
        raise ValueError(f"weights are missing or do not fit: {', '.join(missing[:3])}")
    return tokenizer, model
