"""From the vectors of tokens to the vector of a text."""

from __future__ import annotations

from typing import Literal

import torch

Pooling = Literal["mean", "cls", "last"]


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """Pools tokens and scales to norm 1.

    Args:
        hidden: Last hidden state, ``(batch, tokens, dimension)``, padded on the right.
        mask: 1 for tokens and 0 for padding, ``(batch, tokens)``.
        pooling: ``mean`` of the tokens (Reimers and Gurevych 2019, arXiv 1908.10084), the first one
            (``cls``), or the ``last`` one, which alone has seen all others in a causal model.

    Returns:
        float32 ``(batch, dimension)``.
    """
    hidden = hidden.float()
    if pooling == "mean":
        weights = mask.unsqueeze(-1).float()
        pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
    elif pooling == "cls":
        pooled = hidden[:, 0]
    else:
        rows = torch.arange(len(hidden), device=hidden.device)
        pooled = hidden[rows, mask.sum(dim=1) - 1]
    unit: torch.Tensor = pooled / torch.linalg.vector_norm(pooled, dim=1, keepdim=True)
    return unit
