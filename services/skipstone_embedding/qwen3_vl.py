"""Qwen3-VL-Reranker through transformers, for texts.

The model judges one pair at a time and answers yes or no; the score is the chance of yes between
the two, as its model card has it: the sigmoid of the difference of both logits behind the last
token.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
import transformers
import xxhash

from skipstone_embedding.devices import find_device
from skipstone_embedding.model_files import ModelFiles
from skipstone_embedding.reranker_inputs import (
    RerankerOptions,
    checked_pair,
    checked_scores,
    usable,
)
from skipstone_embedding.reranker_weights import load_reranker_weights
from skipstone_shared.embeddings import EmbeddingInput

MODEL_TYPE = "qwen3_vl"
"""``model_type`` in the configuration of these models."""

MAX_CANDIDATES = 128

DEFAULT_INSTRUCTION = (
    "Given the prompt of a picture, judge whether a picture of the Document would be a picture of "
    "the Query: the same things with the same colours, numbers, places and actions."
)

_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: "
)
_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n"

_MAX_TEXT_TOKENS = 1024
"""Tokens of query and candidate together; the words around them always fit."""

_MAX_PASS_TOKENS = 8192
"""Tokens with padding in one pass; bounds memory."""


class Qwen3VLReranker:
    """A `Reranker` of texts around ``Qwen3VLForConditionalGeneration``.

    The vision tower is loaded, since it is part of the model, and not used.
    """

    max_candidates = MAX_CANDIDATES

    def __init__(self, files: ModelFiles, options: RerankerOptions | None = None) -> None:
        """Loads a model and scores a pair to see that it works.

        Args:
            files: The model.
            options: Device, element type and instruction.

        Raises:
            FailedPrecondition: The model or the device cannot be used.
        """
        options = options or RerankerOptions()
        self._instruction = options.instruction or DEFAULT_INSTRUCTION
        self._device = find_device(options.device)
        self._lock = threading.Lock()  # a fast tokenizer is changed while it is told how to pad
        with usable(files):
            self._load(files, options)
            self.rerank(EmbeddingInput(text="fox"), [EmbeddingInput(text="fox")])
        told = xxhash.xxh3_64_hexdigest(f"{files.digest()}{self._instruction}".encode())[:8]
        self.reranker_id = f"{files.name}/{told}/{options.dtype}"

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        """Scores candidates; see `Reranker`."""
        prompt, texts = checked_pair(query, candidates)
        ids = [self._tokens(instruction or self._instruction, prompt, text) for text in texts]
        fitting = [place for place, row in enumerate(ids) if row]
        rows = max(1, _MAX_PASS_TOKENS // max(1, *map(len, ids)))
        scores = [0.0] * len(ids)
        for start in range(0, len(fitting), rows):
            places = fitting[start : start + rows]
            found = self._score([ids[place] for place in places])
            for place, score in zip(places, found, strict=True):
                scores[place] = score
        return checked_scores(scores)

    def _tokens(self, instruction: str, query: str, text: str) -> list[int]:
        """What the model reads of a pair; nothing of one that is too long to be read whole."""
        with self._lock:
            head = self._tokenizer(_PREFIX + instruction)["input_ids"]
            body = self._tokenizer(
                f"<Query>:{query}\n<Document>:{text}",
                add_special_tokens=False,
                # Else a prompt could end its own turn and answer for the model.
                split_special_tokens=True,
            )["input_ids"]
            tail = self._tokenizer(_SUFFIX, add_special_tokens=False)["input_ids"]
        return [*head, *body, *tail] if len(body) <= _MAX_TEXT_TOKENS else []

    def _score(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """Chance of yes per row. Padding stands on the right, behind the token that is read."""
        lengths = torch.tensor([len(row) for row in rows])
        ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for target, row in zip(ids, rows, strict=True):
            target[: len(row)] = torch.tensor(row)
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        with torch.inference_mode():
            hidden = self._model.model(
                input_ids=ids.to(self._device), attention_mask=mask.long().to(self._device)
            ).last_hidden_state
            last = hidden[torch.arange(len(rows)), lengths - 1]
            # Only two rows of the head: the whole one is as large as the rest of a layer or more.
            scores = (last @ self._direction).float().sigmoid()
        return list(scores.tolist())

    def _load(self, files: ModelFiles, options: RerankerOptions) -> None:
        self._tokenizer, model = load_reranker_weights(
            transformers.Qwen3VLForConditionalGeneration, files, options.dtype, self._device
        )
        self._model = model
        yes, no = (self._token_id(word) for word in ("yes", "no"))
        head = self._model.lm_head.weight.detach()
        self._direction = head[yes] - head[no]

    def _token_id(self, word: str) -> int:
        ids = self._tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == self._tokenizer.unk_token_id:
            raise ValueError(f"its tokenizer has no token {word!r}")
        return int(ids[0])
