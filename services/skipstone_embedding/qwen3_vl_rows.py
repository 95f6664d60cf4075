"""Texts, pictures and clips -> what Qwen3-VL reads.

Tokens are put together here and not by the library: so a text can hold neither the end of
its own turn nor the place of a picture, and a clip is what the authors' scripts make of it with
transformers 4.57, as the model was published (5.24 puts a second pair of marks around its frames).
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from skipstone_embedding.pictures import decoded_frames, picture_sizes
from skipstone_embedding.qwen3_vl_vision import Patches, VisionRules
from skipstone_shared.embeddings import EmbeddingInput

_TEXT, _IMAGE, _CLIP = 0, 1, 2
"""How the model's positions tell the kinds of tokens apart."""

_FRAMES_PER_S = 2.0
"""Frames come without times; the authors' tools take them as two a second."""


PREPARATION = "2"
"""Changes with what is done to texts and pictures here: it is part of the models' ids, so that what
was made before and after is never compared."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """A picture or clip. What it costs is known; its patches are made when they are needed.

    Attributes:
        times: Steps of time.
        tokens: Tokens of each.
        is_clip: Whether it is a clip.
        patches: Makes them. Raises InvalidArgument when a picture turns out to be damaged.
    """

    times: int
    tokens: int
    is_clip: bool
    patches: Callable[[], Patches]

    def kept(self) -> Sight:
        """The same, whose patches are made once."""
        return dataclasses.replace(self, patches=functools.cache(self.patches))


@dataclasses.dataclass(slots=True, eq=False)
class Row:
    """What the model reads of one input.

    Attributes:
        ids: Tokens.
        kinds: Kind of each token.
        sights: Pictures and clips, in the order of their tokens.
    """

    ids: list[int] = dataclasses.field(default_factory=list)
    kinds: list[int] = dataclasses.field(default_factory=list)
    sights: list[Sight] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, ids: Sequence[int], kind: int = _TEXT) -> None:
        """Appends tokens."""
        self.ids += ids
        self.kinds += [kind] * len(ids)

    def copy(self) -> Row:
        """A row that begins like this one."""
        return Row([*self.ids], [*self.kinds], [*self.sights])

    def patches(self) -> list[Patches]:
        """The patches of its pictures.

        Raises:
            InvalidArgument: A picture is damaged.
        """
        return [sight.patches() for sight in self.sights]


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

    def see(self, item: EmbeddingInput) -> Sight:
        """Looks at the headers of a picture or clip.

        Raises:
            InvalidArgument: One of them is no picture, or is too large.
        """
        is_clip = item.kind == "frames"
        sizes = picture_sizes(item, self._max_frames)
        grid = self._vision.grid(*sizes[0], len(sizes), is_clip=is_clip)
        return Sight(
            times=grid[0],
            tokens=grid[1] * grid[2] // self._vision.patches_per_token,
            is_clip=is_clip,
            patches=lambda: self._vision.prepare(
                decoded_frames(item, self._max_frames), len(sizes), is_clip=is_clip
            ),
        )

    def add(self, row: Row, text: str, sight: Sight) -> None:
        """Appends a text and a picture or clip behind it to a row.

        The text comes along since what stands together is read together: tokens may reach over its
        end into the time of a clip's first frames.
        """
        config = self._config
        token, kind = (
            (config.video_token_id, _CLIP) if sight.is_clip else (config.image_token_id, _IMAGE)
        )
        for time in range(sight.times):
            if sight.is_clip:
                # Of the two frames of a pair, the mean.
                text += f"<{(2 * time + 0.5) / _FRAMES_PER_S:.1f} seconds>"
            row.add(self.tokens(text))
            text = ""
            row.add([config.vision_start_token_id])
            row.add([token] * sight.tokens, kind)
            row.add([config.vision_end_token_id])
        row.sights.append(sight)


def model_inputs(
    rows: Sequence[Row], patches: Sequence[Sequence[Patches]], device: torch.device
) -> dict[str, torch.Tensor]:
    """The arguments of the model for a batch, padded on the right.

    Args:
        rows: The batch.
        patches: Of each row.
        device: Where the model is.
    """
    longest = max(map(len, rows))
    ids, kinds, mask = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(3))
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row.ids)
        kinds[place, : len(row)] = torch.tensor(row.kinds)
        mask[place, : len(row)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": kinds}
    every = [item for items in patches for item in items]
    for is_clip, values, grid in (
        (False, "pixel_values", "image_grid_thw"),
        (True, "pixel_values_videos", "video_grid_thw"),
    ):
        found = [item for item in every if item.is_clip == is_clip]
        if found:
            # One alone is not copied: it may be the largest thing in memory.
            alone = len(found) == 1
            inputs[values] = found[0].values if alone else torch.cat([x.values for x in found])
            inputs[grid] = torch.tensor([item.grid for item in found])
    return {name: tensor.to(device) for name, tensor in inputs.items()}
