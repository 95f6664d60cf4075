"""One tiny transformer of the real diffusers class per family, with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from tests.unit.denoise.blockcache.families.tiny_inputs import Moments
from torch import nn


@dataclasses.dataclass(frozen=True)
class TinyFamily:
    """How to make and call a tiny transformer.

    Attributes:
        build: Makes the transformer; every list holds at least four blocks.
        inputs: Keyword arguments of one call for `moments` and the number of a guidance branch.
        branches: Names of a step's calls, as its pipeline makes them.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[Moments, int], dict[str, Any]]
    branches: tuple[str, ...] = ("cond", "uncond")

    def transformer(self) -> nn.Module:
        """A transformer in which every weight matters; equal weights at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2026)
            module = self.build()
            for parameter in module.parameters():
                # Many begin at zero or one, so that a fresh block would do nothing.
                nn.init.normal_(parameter, std=0.2)
        return module.eval().requires_grad_(False)
