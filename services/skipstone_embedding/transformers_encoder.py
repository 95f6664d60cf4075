"""Any text model of transformers as an encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
import xxhash

from skipstone_embedding.devices import find_device
from skipstone_embedding.input_rules import checked_text
from skipstone_embedding.instructions import InstructionTemplate
from skipstone_embedding.length_buckets import length_buckets
from skipstone_embedding.model_files import ModelFiles
from skipstone_embedding.pooling import Pooling, pool
from skipstone_embedding.text_tokenizer import TextTokenizer, TokenizedText
from skipstone_embedding.weights import load_weights
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    SkipstoneError,
)

MAX_BATCH_SIZE = 64

_MAX_PASS_TOKENS = 8192
"""Tokens with padding in one pass: bounds memory, and more is no faster on a CPU core."""

_DEFAULT_MAX_TOKENS = 8192
"""For models that name no limit of their own."""

_UNUSED_WEIGHTS = "pooler."
"""Weights that may be missing: the vector is pooled here, not by the model's own layer."""


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderOptions:
    """How a model is loaded and used.

    Attributes:
        device: Torch device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        dtype: Element type of the weights.
        pooling: How the tokens become one vector.
        max_tokens: Tokens of a text that are read; 0 for all that the model can.
        template: ``{instruction}`` and ``{text}`` in it are replaced; used when an instruction is
            given. Empty for models that take none.
        default_instruction: Instruction of calls that give none.
        attention: Attention implementation of transformers; ``auto`` leaves it to the model.
        max_frames: Frames of a clip that a model which sees looks at.
        max_image_pixels: Pixels of a picture for Qwen3-VL at most, after scaling; 0: its own.
    """

    device: str = "cpu"
    dtype: str = "float32"
    pooling: Pooling = "mean"
    max_tokens: int = 0
    template: str = ""
    default_instruction: str = ""
    attention: str = "auto"
    max_frames: int = 16
    max_image_pixels: int = 0


class TransformersEncoder:
    """An `Encoder` of texts around ``AutoModel`` and ``AutoTokenizer``.

    Only safetensors are read and no code that comes with a model is run.
    """

    def __init__(self, files: ModelFiles, options: EncoderOptions | None = None) -> None:
        """Loads a model and embeds a word to see that it works.

        Args:
            files: The model.
            options: How it is loaded and used.

        Raises:
            FailedPrecondition: The model or the device cannot be used.
        """
        self._options = options or EncoderOptions()
        self._instructions = InstructionTemplate(
            self._options.template, self._options.default_instruction
        )
        if self._options.default_instruction and not self._options.template:
            raise FailedPrecondition(
                f"default_instruction needs instruction_template: model {files.name} has none"
            )
        self._device = find_device(self._options.device)
        try:
            model, tokenizer, max_tokens = _load(files, self._options)
            self._model = model.to(self._device).eval()
            self._tokenizer = TextTokenizer(tokenizer, max_tokens)
            (probe,) = self.encode([EmbeddingInput(text="fox")])
        except FailedPrecondition:
            raise
        except Exception as error:  # whatever it is, the model cannot be used
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise FailedPrecondition(
                f"model {files.name} in {files.directory} cannot be loaded: {first_line}"
            ) from error
        if isinstance(probe, SkipstoneError):
            raise FailedPrecondition(f"model {files.name} cannot embed texts: {probe}") from probe
        self._capabilities = EmbeddingCapabilities(
            model_id=_model_id(files, self._options, max_tokens),
            dimension=len(probe.vector),
            input_kinds=("text",),
            max_batch_size=MAX_BATCH_SIZE,
            max_tokens=max_tokens,
        )

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        """Embeds texts; see `Encoder`."""
        prepared = self._prepare(inputs, instruction)
        ready = [(i, item) for i, item in enumerate(prepared) if isinstance(item, TokenizedText)]
        answer: dict[int, Embedding | SkipstoneError] = {
            i: item for i, item in enumerate(prepared) if isinstance(item, SkipstoneError)
        }
        for group in length_buckets([len(text) for _, text in ready], _MAX_PASS_TOKENS):
            chosen = [ready[position] for position in group]
            vectors = self._forward([text for _, text in chosen])
            answer |= {i: vector for (i, _), vector in zip(chosen, vectors, strict=True)}
        return [answer[index] for index in range(len(inputs))]

    def get_capabilities(self) -> EmbeddingCapabilities:
        """Tells the model and the limits."""
        return self._capabilities

    def _prepare(
        self, inputs: Sequence[EmbeddingInput], instruction: str
    ) -> list[TokenizedText | SkipstoneError]:
        """Returns the tokens of each input, or why it cannot be embedded."""
        texts: list[str | SkipstoneError] = []
        for item in inputs:
            try:
                texts.append(self._instructions.apply(checked_text(item), instruction))
            except InvalidArgument as error:
                texts.append(error)
        tokenized = iter(
            self._tokenizer.tokenize([text for text in texts if isinstance(text, str)])
        )
        return [
            text if isinstance(text, SkipstoneError) else self._with_words(next(tokenized))
            for text in texts
        ]

    def _with_words(self, text: TokenizedText) -> TokenizedText | SkipstoneError:
        """Refuses texts without tokens of their own: they would all have the same vector."""
        if len(text) > self._tokenizer.num_special_tokens:
            return text
        return InvalidArgument(
            "the text has no token that the model knows", field="text", allowed="readable text"
        )

    def _forward(self, texts: Sequence[TokenizedText]) -> list[Embedding | SkipstoneError]:
        """Runs the model once."""
        features = {k: v.to(self._device) for k, v in self._tokenizer.pad(texts).items()}
        with torch.inference_mode():
            hidden = self._model(**features).last_hidden_state
            pooled = pool(hidden, features["attention_mask"], self._options.pooling)
        vectors = pooled.cpu().numpy()
        finite = np.isfinite(vectors).all(axis=1)
        return [
            Embedding(vector, num_tokens=len(text), truncated=text.truncated)
            if good
            else Internal("the model gave a vector that is not finite")
            for vector, good, text in zip(vectors, finite, texts, strict=True)
        ]


def _load(files: ModelFiles, options: EncoderOptions) -> tuple[torch.nn.Module, Any, int]:
    """Returns model, tokenizer and the tokens that the model reads."""
    tokenizer, model = load_weights(transformers.AutoModel, files, options, _UNUSED_WEIGHTS)
    limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    limits.append(options.max_tokens or _DEFAULT_MAX_TOKENS)
    max_tokens = min(limit for limit in limits if limit)
    return model, tokenizer, max_tokens


def _model_id(files: ModelFiles, options: EncoderOptions, max_tokens: int) -> str:
    """Returns the id of the vectors: whatever changes them changes it."""
    hasher = xxhash.xxh3_64(files.digest().encode())
    for part in (options.pooling, max_tokens, options.template, options.default_instruction):
        hasher.update(f"{part}\0".encode())
    return f"{files.name}/{hasher.hexdigest()[:8]}/{options.dtype}"
