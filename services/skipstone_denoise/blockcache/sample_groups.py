"""Which samples of a batch belong to which request."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class SampleGroups:
    """The layout of a batch of several requests, repeated over the batch.

    `(0, 1)` is the layout of `[A, B]` and, with batched guidance, of
    `[A uncond, B uncond, A cond, B cond]`.

    Attributes:
        requests: Number of requests.
    """

    def __init__(self, layout: Sequence[int]) -> None:
        """Takes the request of each sample, 0-based.

        Raises:
            ValueError: the layout is empty or leaves a request out.
        """
        self._layout = tuple(layout)
        self.requests = len(set(self._layout))
        if not self._layout or set(self._layout) != set(range(self.requests)):
            raise ValueError(
                f"sample_groups {self._layout} must name the requests 0, 1, ... without a gap"
            )
        self._rows: dict[tuple[tuple[int, ...], int, torch.device], Tensor] = {}

    def samples_of(self, request: int, batch: int) -> int:
        """How many samples of a batch are a request's.

        Raises:
            ValueError: the layout does not fit into a batch of this size a whole number of times.
        """
        times, rest = divmod(batch, len(self._layout))
        if rest:
            raise ValueError(
                f"a batch of {batch} samples can't hold the requests {self._layout}: its size must "
                f"be a multiple of {len(self._layout)}"
            )
        return times * self._layout.count(request)

    def rows(self, requests: tuple[int, ...], batch: int, device: torch.device) -> Tensor:
        """Where the samples of some requests are: `(rows,)`, int64, rising.

        Made once for every combination: a transfer to the device is a wait for it.
        """
        key = (requests, batch, device)
        if key not in self._rows:
            layout = self._layout
            rows = [row for row in range(batch) if layout[row % len(layout)] in requests]
            self._rows[key] = torch.tensor(rows, device=device)
        return self._rows[key]
