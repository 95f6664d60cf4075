"""Qwen3-VL-Reranker through transformers: texts, pictures and clips.

The model judges one pair at a time and answers yes or no; the score is the chance of yes between
the two, as its model card has it: the sigmoid of the difference of both logits behind the last
token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
import xxhash

from skipstone_embedding.devices import find_device
from skipstone_embedding.input_rules import checked_text
from skipstone_embedding.length_buckets import length_buckets
from skipstone_embedding.model_files import ModelFiles
from skipstone_embedding.model_passes import ModelPasses
from skipstone_embedding.qwen3_vl_rows import PREPARATION, Row, RowBuilder, model_inputs
from skipstone_embedding.qwen3_vl_vision import VisionRules
from skipstone_embedding.reranker_inputs import RerankerOptions, checked_scores, usable
from skipstone_embedding.weights import load_weights
from skipstone_shared.embeddings import EmbeddingInput
from skipstone_shared.frame_samples import MAX_FRAMES

MAX_CANDIDATES = 128

DEFAULT_INSTRUCTION = (
    "Given the prompt of a picture, judge whether a picture of the Document would be a picture of "
    "the Query: the same things with the same colours, numbers, places and actions."
)

_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n"

_MAX_TOKENS = 10_240
"""Tokens of a pair with its pictures: what the model's authors read of one."""

_MAX_PASS_TOKENS = 8192
"""Tokens with padding in one pass, and so the patches in memory: 25 KB a token. A larger pair is
alone in its pass."""


class Qwen3VLReranker:
    """A `Reranker` around ``Qwen3VLForConditionalGeneration``.

    Query and candidates may be texts, pictures or clips. A pair that is longer than the model reads
    scores 0.
    """

    max_candidates = MAX_CANDIDATES

    def __init__(self, files: ModelFiles, options: RerankerOptions | None = None) -> None:
        """Loads a model and scores a pair to see that it works.

        Args:
            files: The model.
            options: How it is loaded and used.

        Raises:
            FailedPrecondition: The model or the device cannot be used.
        """
        options = options or RerankerOptions()
        self._instruction = options.instruction or DEFAULT_INSTRUCTION
        self._device = find_device(options.device)
        self._passes = ModelPasses()
        with usable(files):
            self._load(files, options)
            self.rerank(EmbeddingInput(text="fox"), [EmbeddingInput(text="fox")])
        limits = (options.max_frames, options.max_image_pixels)
        told = f"{files.digest()}{PREPARATION}\0{self._instruction}{limits}"
        digest = xxhash.xxh3_64_hexdigest(told.encode())[:8]
        self.reranker_id = f"{files.name}/{digest}/{options.dtype}"

    def rerank(
        self, query: EmbeddingInput, candidates: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[float]:
        """Scores candidates; see `Reranker`.

        Raises:
            DeadlineExceeded: The current request's deadline came first.
        """
        head = self._head(instruction or self._instruction, query)
        rows = [self._row(*head, candidate) for candidate in candidates]
        scores = [0.0] * len(rows)
        fitting = [(place, row) for place, row in enumerate(rows) if len(row) <= _MAX_TOKENS]
        for group in length_buckets([len(row) for _, row in fitting], _MAX_PASS_TOKENS):
            chosen = [fitting[position] for position in group]
            found = self._score([row for _, row in chosen])
            for (place, _), score in zip(chosen, found, strict=True):
                scores[place] = score
        return checked_scores(scores)

    def _head(self, instruction: str, query: EmbeddingInput) -> tuple[Row, str]:
        """What all pairs of a query begin with, and text that is read with what follows it."""
        rows = self._rows
        row = Row()
        row.add(rows.tokens(_PREFIX, trusted=True))
        text = f"<Instruct>: {instruction}<Query>:"
        if query.kind == "text":
            # What stands together is read together: tokens may reach over the parts.
            return row, text + checked_text(query)
        rows.add(row, text, rows.see(query).kept())
        return row, ""

    def _row(self, head: Row, text: str, candidate: EmbeddingInput) -> Row:
        """What the model reads of a pair."""
        rows = self._rows
        row = head.copy()
        text += "\n<Document>:"
        if candidate.kind == "text":
            row.add(rows.tokens(text + checked_text(candidate)))
        else:
            rows.add(row, text, rows.see(candidate))
        row.add(rows.tokens(_SUFFIX, trusted=True, special=True))
        return row

    def _score(self, rows: Sequence[Row]) -> list[float]:
        """Chance of yes per row. Padding stands on the right, behind the token that is read."""
        with self._passes.prepared():
            features = model_inputs(rows, [row.patches() for row in rows], self._device)
            last = features["attention_mask"].sum(dim=1) - 1
            with self._passes.running(), torch.inference_mode():
                hidden = self._model.model(**features, use_cache=False).last_hidden_state
                ends = hidden[torch.arange(len(rows), device=hidden.device), last]
                # Only two rows of the head: the whole one is as large as the rest of a layer or
                # more.
                scores = (ends @ self._direction).float().sigmoid()
                return list(scores.tolist())

    def _load(self, files: ModelFiles, options: RerankerOptions) -> None:
        tokenizer, model = load_weights(
            transformers.Qwen3VLForConditionalGeneration, files, options
        )
        self._model = model.to(self._device).eval()
        config = self._model.config
        vision = VisionRules(config.vision_config, files.directory, options.max_image_pixels)
        max_frames = min(options.max_frames, MAX_FRAMES)
        self._rows = RowBuilder(tokenizer, config, vision, max_frames)
        yes, no = (_token_id(tokenizer, word) for word in ("yes", "no"))
        head = self._model.lm_head.weight.detach()
        self._direction = head[yes] - head[no]


def _token_id(tokenizer: Any, word: str) -> int:
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise ValueError(f"its tokenizer has no token {word!r}")
    return int(ids[0])
