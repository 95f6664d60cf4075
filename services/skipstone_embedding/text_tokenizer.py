"""Texts -> tokens, with what was cut off."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class TokenizedText:
    """Tokens of one text.

    Attributes:
        features: What the model takes, by name: ``input_ids``, ``attention_mask``, ...
        truncated: Whether the end of the text was cut off.
    """

    features: dict[str, list[int]]
    truncated: bool

    def __len__(self) -> int:
        return len(self.features["input_ids"])


class TextTokenizer:
    """A tokenizer of transformers that may be used from any thread.

    The lock is needed: a fast tokenizer is changed while it is told how to truncate and pad.
    """

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        """Wraps a tokenizer.

        Args:
            tokenizer: From ``AutoTokenizer``; not used elsewhere.
            max_tokens: Tokens that the model reads, special ones included.

        Raises:
            ValueError: It has no token to pad with.
        """
        self._tokenizer = tokenizer
        self._tokenizer.padding_side = "right"
        if tokenizer.pad_token is None:
            # Padding is masked, so any token does; causal models often have none of their own.
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token is None:
            raise ValueError("the tokenizer has no token to pad with")
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self.num_special_tokens: int = tokenizer.num_special_tokens_to_add(pair=False)

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Returns the tokens of each text."""
        if not texts:
            return []  # the library's tokenizers fail on an empty list
        with self._lock:
            whole = self._tokenizer(list(texts), truncation=False, verbose=False)
            too_long = [len(ids) > self._max_tokens for ids in whole["input_ids"]]
            if not any(too_long):
                return [TokenizedText(_row(whole, i), False) for i in range(len(texts))]
            cut = self._tokenizer(list(texts), truncation=True, max_length=self._max_tokens)
        return [TokenizedText(_row(cut, i), long) for i, long in enumerate(too_long)]

    def pad(self, texts: Sequence[TokenizedText]) -> dict[str, torch.Tensor]:
        """Returns the features of several texts as int64 ``(len(texts), longest)``."""
        names = texts[0].features
        features = {name: [text.features[name] for text in texts] for name in names}
        with self._lock:
            padded = self._tokenizer.pad(features, padding=True, return_tensors="pt")
        return dict(padded)


def _row(batch: Any, index: int) -> dict[str, list[int]]:
    return {name: batch[name][index] for name in batch}
