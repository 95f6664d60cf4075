"""The default encoder: all-MiniLM-L6-v2 from a Python package, no download."""

from __future__ import annotations

import dataclasses

from skipstone_embedding.model_files import find_minilm
from skipstone_embedding.transformers_encoder import EncoderOptions, TransformersEncoder

MINILM_MAX_TOKENS = 256
"""What the model was trained to read, half of what it would accept (its sentence_bert_config)."""


def load_minilm(options: EncoderOptions | None = None) -> TransformersEncoder:
    """Loads all-MiniLM-L6-v2: 384 dimensions, mean pooling.

    A prompt of 15 words takes about 15 ms of one CPU core alone, 4 ms in a full batch.

    The package's own loader is not used: it imports sentence-transformers, which takes longer to
    import than the model takes to load, and adds nothing to BERT, a mean and a norm.

    Args:
        options: Device, element type and a lower token limit; pooling is the model's own.

    Raises:
        FailedPrecondition: The package is missing or the device cannot be used.
    """
    options = options or EncoderOptions()
    max_tokens = min(options.max_tokens or MINILM_MAX_TOKENS, MINILM_MAX_TOKENS)
    return TransformersEncoder(
        find_minilm(), dataclasses.replace(options, pooling="mean", max_tokens=max_tokens)
    )
