"""Inputs of tiny transformers: latents that drift from step to step, conditioning that stays."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Moments = Sequence[tuple[int, int]]
"""(sample, step) of every row of a batch: one call may hold samples at different steps."""

TEXT_LENGTH = 6
TEXT_WIDTH = 16


def drifting(moments: Moments, *shape: int) -> torch.Tensor:
    """Latents `(len(moments), *shape)`; those of neighbouring steps look alike."""
    return torch.stack(
        [
            (1 - step / 10) * _normal(shape, 2 * sample)
            + step / 10 * _normal(shape, 2 * sample + 1)
            for sample, step in moments
        ]
    )


def staying(moments: Moments, seed: int, *shape: int) -> torch.Tensor:
    """Conditioning `(len(moments), *shape)` of each sample, the same at every step."""
    return torch.stack([_normal(shape, 1000 * (seed + 1) + sample) for sample, _ in moments])


def text(moments: Moments, branch: int, width: int = TEXT_WIDTH) -> torch.Tensor:
    """Prompt embeddings `(len(moments), TEXT_LENGTH, width)` of a guidance branch."""
    return staying(moments, branch, TEXT_LENGTH, width)


def text_mask(moments: Moments, dtype: torch.dtype = torch.bool) -> torch.Tensor:
    """All tokens valid, `(len(moments), TEXT_LENGTH)`."""
    return torch.ones(len(moments), TEXT_LENGTH, dtype=dtype)


def timesteps(moments: Moments, scale: float = 1000.0) -> torch.Tensor:
    """`(len(moments),)`, falling from `scale`."""
    return torch.tensor([scale * (1 - step / 25) for _, step in moments])


def picture_ids(side: int, axes: int = 3) -> torch.Tensor:
    """Positions of a square of tokens, `(side * side, axes)`; row and column are axes 1 and 2."""
    ids = torch.zeros(side * side, axes)
    ids[:, 1] = torch.arange(side * side) // side
    ids[:, 2] = torch.arange(side * side) % side
    return ids


def rotary_table(tokens: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines `(tokens, head_dim)` as pipelines hand them to video transformers."""
    angles = torch.arange(tokens)[:, None] / 10 ** torch.linspace(0, 2, head_dim // 2)
    angles = angles.repeat_interleave(2, dim=1)
    return angles.cos(), angles.sin()


def _normal(shape: Sequence[int], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
