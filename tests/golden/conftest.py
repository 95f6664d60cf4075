"""How golden tests compute: as the traces were recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _as_recorded() -> Iterator[None]:
    # With more threads, sums are made in another order.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)
