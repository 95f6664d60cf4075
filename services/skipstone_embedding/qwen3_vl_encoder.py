"""Qwen3-VL-Embedding through transformers: texts, pictures and clips in one space.

What is read and how it becomes a vector is as its model card has it: a chat of one turn whose
system message is the instruction, and the hidden state of the last token.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import torch
import transformers
import xxhash

from skipstone_embedding.devices import find_device
from skipstone_embedding.input_rules import checked_text
from skipstone_embedding.length_buckets import length_buckets
from skipstone_embedding.model_files import ModelFiles
from skipstone_embedding.pooling import pool
from skipstone_embedding.qwen3_vl_rows import PREPARATION, Row, RowBuilder, model_inputs
from skipstone_embedding.qwen3_vl_vision import Patches, VisionRules
from skipstone_embedding.reranker_inputs import usable
from skipstone_embedding.transformers_encoder import MAX_BATCH_SIZE, EncoderOptions
from skipstone_embedding.weights import load_weights
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import FailedPrecondition, Internal, InvalidArgument, SkipstoneError
from skipstone_shared.frame_samples import MAX_FRAMES

DEFAULT_INSTRUCTION = "Represent the user's input."

_MAX_TOKENS = 8192
"""Tokens of an input: what the model was trained with."""

_MAX_PASS_TOKENS = 8192
"""Tokens with padding in one pass, and so the patches in memory: 25 KB a token. A larger input is
alone in its pass."""


class Qwen3VLEncoder:
    """An `Encoder` around ``Qwen3VLModel``.

    Only safetensors are read and no code that comes with a model is run.
    """

    def __init__(self, files: ModelFiles, options: EncoderOptions | None = None) -> None:
        """Loads a model and embeds a word to see that it works.

        Args:
            files: The model.
            options: How it is loaded and used; it has its own pooling and template.

        Raises:
            FailedPrecondition: The model or the device cannot be used.
        """
        options = options or EncoderOptions()
        if options.template:
            raise FailedPrecondition(
                f"model {files.name} has its own template; leave instruction_template empty"
            )
        self._device = find_device(options.device)
        self._instruction = _sentence(options.default_instruction) or DEFAULT_INSTRUCTION
        self._max_tokens = min(options.max_tokens or _MAX_TOKENS, _MAX_TOKENS)
        max_frames = min(options.max_frames, MAX_FRAMES)
        with usable(files, "model"):
            tokenizer, model = load_weights(transformers.Qwen3VLModel, files, options)
            self._model = model.to(self._device).eval()
            vision = VisionRules(
                model.config.vision_config, files.directory, options.max_image_pixels
            )
            self._rows = RowBuilder(tokenizer, model.config, vision, max_frames)
            (probe,) = self.encode([EmbeddingInput(text="fox")])
            if isinstance(probe, SkipstoneError):
                raise probe
        hasher = xxhash.xxh3_64(files.digest().encode())
        limits = (self._max_tokens, max_frames, vision.max_image_pixels)
        hasher.update(f"{PREPARATION}\0{self._instruction}\0{limits}".encode())
        self._capabilities = EmbeddingCapabilities(
            model_id=f"{files.name}/{hasher.hexdigest()[:8]}/{options.dtype}",
            dimension=len(probe.vector),
            input_kinds=("text", "image", "frames"),
            max_batch_size=MAX_BATCH_SIZE,
            max_tokens=self._max_tokens,
        )

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        """Embeds texts, pictures and clips; see `Encoder`."""
        answer: dict[int, Embedding | SkipstoneError] = {}
        ready: list[tuple[int, Row, bool]] = []
        for place, item in enumerate(inputs):
            try:
                ready.append((place, *self._row(item, instruction)))
            except InvalidArgument as error:
                answer[place] = error
        for group in length_buckets([len(row) for _, row, _ in ready], _MAX_PASS_TOKENS):
            answer |= self._pass([ready[position] for position in group])
        return [answer[place] for place in range(len(inputs))]

    def get_capabilities(self) -> EmbeddingCapabilities:
        """Tells the model and the limits."""
        return self._capabilities

    def _row(self, item: EmbeddingInput, instruction: str) -> tuple[Row, bool]:
        """What the model reads of an input, and whether its end was cut off."""
        rows = self._rows
        row = Row()
        row.add(rows.tokens("<|im_start|>", trusted=True))
        # What stands together is read together: tokens may reach over the parts.
        row.add(rows.tokens(f"system\n{_sentence(instruction) or self._instruction}"))
        row.add(rows.tokens("<|im_end|>\n<|im_start|>", trusted=True))
        tail = rows.tokens("<|im_end|>\n<|im_start|>assistant\n", trusted=True, special=True)
        room = self._max_tokens - len(row) - len(tail)
        if room < 1:
            raise InvalidArgument(
                "the instruction leaves no room for the input",
                field="instruction",
                allowed=f"fewer than {self._max_tokens} tokens",
            )
        cut = False
        if item.kind == "text":
            ids = rows.tokens(f"user\n{checked_text(item)}")
            cut = len(ids) > room
            row.add(ids[:room])
        else:
            before = len(row)
            rows.add(row, "user\n", rows.see(item))
            if len(row) - before > room:
                raise InvalidArgument(
                    f"the pictures take {len(row) - before} tokens",
                    field=item.kind,
                    allowed=f"{room} tokens; set max_frames, max_image_pixels or max_tokens",
                )
        row.add(tail)
        return row, cut

    def _pass(
        self, chosen: Sequence[tuple[int, Row, bool]]
    ) -> dict[int, Embedding | SkipstoneError]:
        """Vectors of rows that go through the model together, by their places."""
        answer: dict[int, Embedding | SkipstoneError] = {}
        patches: dict[int, list[Patches]] = {}
        for place, row, _ in chosen:
            try:
                patches[place] = row.patches()
            except InvalidArgument as error:
                answer[place] = error
        whole = [(place, row, cut) for place, row, cut in chosen if place in patches]
        if not whole:
            return answer
        vectors = self._forward([row for _, row, _ in whole], list(patches.values()))
        for (place, row, cut), vector in zip(whole, vectors, strict=True):
            answer[place] = (
                Embedding(vector, num_tokens=len(row), truncated=cut)
                if np.isfinite(vector).all()
                else Internal("the model gave a vector that is not finite")
            )
        return answer

    def _forward(self, rows: Sequence[Row], patches: Sequence[list[Patches]]) -> np.ndarray:
        """Vectors of a batch, float32 ``(rows, dimension)``."""
        features = model_inputs(rows, patches, self._device)
        with torch.inference_mode():
            hidden = self._model(**features, use_cache=False).last_hidden_state
            vectors: np.ndarray = pool(hidden, features["attention_mask"], "last").cpu().numpy()
        return vectors


def _sentence(instruction: str) -> str:
    """The instruction, ended as those that the model was trained with."""
    instruction = instruction.strip()
    ends = unicodedata.category(instruction[-1]).startswith("P") if instruction else True
    return instruction if ends else instruction + "."
