"""Texts, pictures and clips -> what Qwen3-VL reads.

Tokens are put together here and not by the library: so a text can hold neither the end of
its own turn nor the place of a picture.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import torch

from skipstone_embedding.pictures import decode_frames
from skipstone_embedding.qwen3_vl_vision import Patches, VisionRules
from skipstone_shared.embeddings import EmbeddingInput

_TEXT, _IMAGE, _CLIP = 0, 1, 2
"""How the model's positions tell the kinds of tokens apart."""

_FRAMES_PER_S = 2.0
"""Frames come without times; the authors' tools take them as two a second."""


@dataclasses.dataclass(slots=True, eq=False)
class Row:
    """What the model reads of one input.

    Attributes:
        ids: Tokens.
        kinds: Kind of each token.
        patches: Pictures and clips, in the order of their tokens.
    """

    ids: list[int] = dataclasses.field(default_factory=list)
    kinds: list[int] = dataclasses.field(default_factory=list)
    patches: list[Patches] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, ids: Sequence[int], kind: int = _TEXT) -> None:
        """Appends tokens."""
        self.ids += ids
        self.kinds += [kind] * len(ids)


class RowBuilder:
    """Writes rows for one model. Threads may share it."""

    def __init__(self, tokenizer: Any, config: Any, vision: VisionRules, max_frames: int) -> None:
        """Knows a model.

        Args:
            tokenizer: Of the model; not used elsewhere.
            config: Of the model.
            vision: How it sees.
            max_frames: Frames of a clip that it looks at.
        """
        self._tokenizer = tokenizer
        self._config = config
        self._vision = vision
        self._max_frames = max_frames
        self._lock = threading.Lock()  # a fast tokenizer is changed while it is told how to work

    def tokens(self, text: str, *, trusted: bool = False, special: bool = False) -> list[int]:
        """Tokens of a text.

        Args:
            text: The text.
            trusted: Whether it is ours, so that words like ``<|im_end|>`` in it mean what they say.
            special: Whether the tokenizer adds what it adds to every text.
        """
        with self._lock:
            found = self._tokenizer(
                text, add_special_tokens=special, split_special_tokens=not trusted
            )
        return list(found["input_ids"])

    def add_pictures(self, row: Row, item: EmbeddingInput) -> None:
        """Appends a picture or clip.

        Raises:
            InvalidArgument: One of them cannot be decoded or is too large.
        """
        is_clip = item.kind == "frames"
        vision = self._vision
        limit = vision.max_frame_pixels if is_clip else vision.max_image_pixels
        patches = vision.prepare(decode_frames(item, self._max_frames, limit), is_clip=is_clip)
        times, rows, columns = patches.grid
        count = rows * columns // vision.patches_per_token
        config = self._config
        for time in range(times):
            if is_clip:
                # Of the two frames of a pair, the mean.
                seconds = (2 * time + 0.5) / _FRAMES_PER_S
                row.add(self.tokens(f"<{seconds:.1f} seconds>", trusted=True))
            row.add([config.vision_start_token_id])
            if is_clip:
                row.add([config.video_token_id] * count, _CLIP)
            else:
                row.add([config.image_token_id] * count, _IMAGE)
            row.add([config.vision_end_token_id])
        row.patches.append(patches)


def model_inputs(rows: Sequence[Row], device: torch.device) -> dict[str, torch.Tensor]:
    """The arguments of the model for a batch, padded on the right.

    Args:
        rows: The batch.
        device: Where the model is.
    """
    longest = max(map(len, rows))
    ids, kinds, mask = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(3))
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row.ids)
        kinds[place, : len(row)] = torch.tensor(row.kinds)
        mask[place, : len(row)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": kinds}
    every = [patches for row in rows for patches in row.patches]
    for is_clip, values, grid in (
        (False, "pixel_values", "image_grid_thw"),
        (True, "pixel_values_videos", "video_grid_thw"),
    ):
        found = [patches for patches in every if patches.is_clip == is_clip]
        if found:
            inputs[values] = torch.cat([patches.values for patches in found])
            inputs[grid] = torch.tensor([patches.grid for patches in found])
    return {name: tensor.to(device) for name, tensor in inputs.items()}
