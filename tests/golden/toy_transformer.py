"""The synthetic transformer of a trace file: no weights, float64, the same on every machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.patterns import ForwardPattern


class ToyBlock(nn.Module):
    """Adds `c[branch][step] * w` to the hidden states."""

    def __init__(self, coefficients: Tensor, direction: Tensor) -> None:
        """Takes `c`, `(branches, steps)`, and `w`, `(1, L, D)`, both float64."""
        super().__init__()
        self.coefficients = coefficients
        self.direction = direction

    def forward(self, hidden_states: Tensor, step: int, branch: int) -> Tensor:
        """The hidden states after this block, `(1, L, D)`."""
        return hidden_states + self.coefficients[branch, step] * self.direction


class ToyTransformer(nn.Module):
    """Blocks over an input that depends on the step alone."""

    def __init__(self, spec: Mapping[str, Any], n_steps: int) -> None:
        """Builds the blocks of a recorded specification, for runs of `n_steps` steps."""
        super().__init__()
        coefficients = torch.tensor(spec[f"c_{n_steps}"], dtype=torch.float64)
        shape = (1, spec["L"], spec["D"])
        self.places = torch.arange(spec["L"] * spec["D"], dtype=torch.float64).reshape(shape)
        self.blocks = nn.ModuleList(
            ToyBlock(
                coefficients[:, block],
                torch.cos(0.7 * (block * self.places.numel() + self.places) + 0.3),
            )
            for block in range(spec["n_blocks"])
        )

    def forward(self, step: int, branch: int) -> Tensor:
        """The output of one call, `(1, L, D)`, float64."""
        hidden_states = torch.sin(0.41 * self.places + 0.17 * step)
        for block in self.blocks:
            hidden_states = block(hidden_states, step=step, branch=branch)
        return hidden_states


def toy_adapter() -> TransformerAdapter:
    """How the toy is cached."""
    return TransformerAdapter(
        transformer_class="ToyTransformer",
        family="toy",
        chains=(BlockChain(lists=("blocks",), pattern=ForwardPattern.H_H),),
    )
