"""CLIP and SigLIP through transformers: texts, pictures and clips in one space.

CLIP is of Radford et al. 2021 (arXiv 2103.00020), SigLIP of Zhai et al. 2023 (arXiv 2303.15343).
The vector of a clip is the mean of its frames' vectors (Luo et al. 2021, arXiv 2104.08860).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
import xxhash
from PIL import Image

from skipstone_embedding.devices import find_device
from skipstone_embedding.input_rules import checked_text
from skipstone_embedding.model_files import ModelFiles
from skipstone_embedding.pictures import decoded_frames
from skipstone_embedding.reranker_inputs import usable
from skipstone_embedding.transformers_encoder import MAX_BATCH_SIZE, EncoderOptions
from skipstone_embedding.weights import load_weights
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import FailedPrecondition, Internal, InvalidArgument, SkipstoneError
from skipstone_shared.frame_samples import MAX_FRAMES
from skipstone_shared.index_entries import Vector

_MAX_PASS_PICTURES = 16
"""Pictures in one pass, whosever they are; bounds memory."""

_PREPARATION = "2"
"""Changes with what is done to pictures here: it is part of the model's id."""


class ContrastiveEncoder:
    """An `Encoder` around ``CLIPModel`` or ``SiglipModel``.

    Instructions are passed over. Only safetensors are read and no code of a model is run.
    """

    def __init__(self, files: ModelFiles, options: EncoderOptions | None = None) -> None:
        """Loads a model and embeds a word and a picture to see that it works.

        Args:
            files: The model.
            options: How it is loaded and used; it has its own pooling and no template.

        Raises:
            FailedPrecondition: The model or the device cannot be used.
        """
        options = options or EncoderOptions()
        if options.template or options.default_instruction:
            raise FailedPrecondition(
                f"model {files.name} takes no instruction; leave instruction_template and "
                "default_instruction empty"
            )
        self._device = find_device(options.device)
        self._max_frames = min(options.max_frames, MAX_FRAMES)
        self._lock = threading.Lock()  # a fast tokenizer is changed while it is told how to pad
        with usable(files, "model"):
            self._load(files, options)
            dimension = self._text_vectors(["fox"]).shape[1]
            self._picture_vectors([self._pixels(Image.new("RGB", (64, 64)))])
        hasher = xxhash.xxh3_64(files.digest().encode())
        hasher.update(f"{_PREPARATION}\0{self._max_tokens}\0{self._max_frames}".encode())
        self._capabilities = EmbeddingCapabilities(
            model_id=f"{files.name}/{hasher.hexdigest()[:8]}/{options.dtype}",
            dimension=dimension,
            input_kinds=("text", "image", "frames"),
            max_batch_size=MAX_BATCH_SIZE,
            max_tokens=self._max_tokens,
        )

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        """Embeds texts, pictures and clips; see `Encoder`."""
        answer: dict[int, Embedding | SkipstoneError] = {}
        texts: dict[int, str] = {}
        seen: dict[int, EmbeddingInput] = {}
        for place, item in enumerate(inputs):
            try:
                if item.kind == "text":
                    texts[place] = checked_text(item)
                else:
                    seen[place] = item
            except InvalidArgument as error:
                answer[place] = error
        if texts:
            answer |= dict(zip(texts, self._of_texts(list(texts.values())), strict=True))
        answer |= self._of_pictures(seen)
        return [answer[place] for place in range(len(inputs))]

    def get_capabilities(self) -> EmbeddingCapabilities:
        """Tells the model and the limits."""
        return self._capabilities

    def _of_texts(self, texts: list[str]) -> list[Embedding | SkipstoneError]:
        with self._lock:
            lengths = [len(ids) for ids in self._tokenizer(texts, verbose=False)["input_ids"]]
        return [
            _embedding(vector, min(length, self._max_tokens), length > self._max_tokens)
            for vector, length in zip(self._text_vectors(texts), lengths, strict=True)
        ]

    def _of_pictures(
        self, items: dict[int, EmbeddingInput]
    ) -> dict[int, Embedding | SkipstoneError]:
        """Vectors of pictures and clips by their places; passes reach over several of them."""
        answer: dict[int, Embedding | SkipstoneError] = {}
        vectors: dict[int, list[Vector]] = {place: [] for place in items}
        waiting: list[tuple[int, torch.Tensor]] = []

        def run() -> None:
            found = self._picture_vectors([pixels for _, pixels in waiting])
            for (place, _), vector in zip(waiting, found, strict=True):
                vectors[place].append(vector)
            waiting.clear()

        for place, item in items.items():
            try:
                for frame in decoded_frames(item, self._max_frames):
                    waiting.append((place, self._pixels(frame)))
                    if len(waiting) == _MAX_PASS_PICTURES:
                        run()
            except InvalidArgument as error:
                answer[place] = error
        if waiting:
            run()
        for place in items.keys() - answer.keys():
            mean = np.mean(vectors[place], axis=0)
            answer[place] = _embedding(mean / np.linalg.norm(mean))
        return answer

    def _text_vectors(self, texts: list[str]) -> np.ndarray:
        """Vectors of norm 1, float32 ``(texts, dimension)``."""
        with self._lock:
            features = self._tokenizer(
                texts,
                # SigLIP saw nothing but texts padded to its whole length, and no mask.
                padding="max_length" if self._pads_fully else True,
                truncation=True,
                max_length=self._max_tokens,
                return_tensors="pt",
            )
        names = ["input_ids"] if self._pads_fully else ["input_ids", "attention_mask"]
        with torch.inference_mode():
            found = self._model.get_text_features(
                **{name: features[name].to(self._device) for name in names}
            )
        return _unit(found)

    def _pixels(self, picture: Image.Image) -> torch.Tensor:
        """A picture as the model takes it, float32 ``(channels, side, side)``."""
        (values,) = self._processor([picture], return_tensors="pt")["pixel_values"]
        pixels: torch.Tensor = values
        return pixels

    def _picture_vectors(self, pictures: Sequence[torch.Tensor]) -> np.ndarray:
        """Vectors of norm 1, float32 ``(pictures, dimension)``."""
        values = torch.stack(list(pictures)).to(self._device, self._model.dtype)
        with torch.inference_mode():
            return _unit(self._model.get_image_features(pixel_values=values))

    def _load(self, files: ModelFiles, options: EncoderOptions) -> None:
        self._pads_fully = files.model_type() == "siglip"
        if self._pads_fully:
            model_class, processor_class = (
                transformers.SiglipModel,
                transformers.SiglipImageProcessorPil,
            )
        else:
            model_class, processor_class = (
                transformers.CLIPModel,
                transformers.CLIPImageProcessorPil,
            )
        self._tokenizer, model = load_weights(model_class, files, options)
        self._model = model.to(self._device).eval()
        # That one, whether torchvision is installed or not: the other scales a little differently.
        self._processor: Any = processor_class.from_pretrained(files.directory)
        readable: int = model.config.text_config.max_position_embeddings
        self._max_tokens = min(readable, options.max_tokens or readable)


def _unit(found: Any) -> np.ndarray:
    """Vectors scaled to norm 1."""
    pooled = found if isinstance(found, torch.Tensor) else found.pooler_output
    unit: np.ndarray = torch.nn.functional.normalize(pooled.float(), dim=1).cpu().numpy()
    return unit


def _embedding(
    vector: Vector, num_tokens: int = 0, truncated: bool = False
) -> Embedding | SkipstoneError:
    if not np.isfinite(vector).all():
        return Internal("the model gave a vector that is not finite")
    return Embedding(np.asarray(vector, np.float32), num_tokens=num_tokens, truncated=truncated)
