"""Any sequence-classification cross-encoder of transformers as a reranker."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
import transformers

from skipstone_embedding.devices import find_device
from skipstone_embedding.model_files import ModelFiles
from skipstone_embedding.model_passes import check_time_left
from skipstone_embedding.reranker_inputs import (
    RerankerOptions,
    checked_pair,
    checked_scores,
    usable,
)
from skipstone_embedding.weights import load_weights
from skipstone_shared.embeddings import EmbeddingInput

MAX_CANDIDATES = 128

_MAX_ROWS = 16
"""Pairs in one pass; more are no faster on a CPU core."""

_MAX_TOKENS = 512
"""For models that name no limit of their own."""


class CrossEncoder:
    """A `Reranker` of texts around ``AutoModelForSequenceClassification``.

    The model reads both texts as one pair. One logit is a score before its sigmoid; of two the
    second says that the texts belong together. Instructions are passed over. A pair that is longer
    than the model reads scores 0: what it does not see may be what differs. Only safetensors are
    read and no code that comes with a model is run.
    """

    max_candidates = MAX_CANDIDATES

    def __init__(self, files: ModelFiles, options: RerankerOptions | None = None) -> None:
        """Loads a model and scores a pair to see that it works.

        Args:
            files: The model.
            options: Device and element type.

        Raises:
            FailedPrecondition: The model or the device cannot be used.
        """
        options = options or RerankerOptions()
        self._device = find_device(options.device)
        self._lock = threading.Lock()  # a fast tokenizer is changed while it is told how to pad
        with usable(files):
            self._load(files, options)
            self.rerank(EmbeddingInput(text="fox"), [EmbeddingInput(text="fox")])
        self.reranker_id = f"{files.name}/{files.digest()}/{options.dtype}"

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        """Scores candidates; see `Reranker`.

        Raises:
            DeadlineExceeded: The current request's deadline came first.
        """
        prompt, texts = checked_pair(query, candidates)
        scores = [0.0] * len(texts)
        fitting = self._fitting(prompt, texts)
        for start in range(0, len(fitting), _MAX_ROWS):
            check_time_left()
            places = fitting[start : start + _MAX_ROWS]
            found = self._score(prompt, [texts[place] for place in places])
            for place, score in zip(places, found, strict=True):
                scores[place] = score
        return checked_scores(scores)

    def _fitting(self, prompt: str, texts: list[str]) -> list[int]:
        """Places of the texts that the model reads whole beside the prompt."""
        with self._lock:
            rows = self._tokenizer([prompt] * len(texts), texts, split_special_tokens=True)[
                "input_ids"
            ]
        return [place for place, row in enumerate(rows) if len(row) <= self._max_tokens]

    def _score(self, prompt: str, texts: list[str]) -> list[float]:
        with self._lock:
            features = self._tokenizer(
                [prompt] * len(texts),
                texts,
                padding=True,
                split_special_tokens=True,  # else a prompt could hold what ends it
                return_tensors="pt",
            )
        with torch.inference_mode():
            logits = self._model(**features.to(self._device)).logits.float()
        if logits.shape[1] == 1:
            scores = logits[:, 0].sigmoid()
        else:
            scores = logits.softmax(dim=1)[:, 1]
        return list(scores.tolist())

    def _load(self, files: ModelFiles, options: RerankerOptions) -> None:
        self._tokenizer, model = load_weights(
            transformers.AutoModelForSequenceClassification, files, options
        )
        if model.config.num_labels not in (1, 2):
            raise ValueError(f"it has {model.config.num_labels} labels, a reranker has 1 or 2")
        limits = (
            self._tokenizer.model_max_length,
            getattr(model.config, "max_position_embeddings", None),
            _MAX_TOKENS,
        )
        self._max_tokens = min(limit for limit in limits if limit)
        self._model = model.to(self._device).eval()
