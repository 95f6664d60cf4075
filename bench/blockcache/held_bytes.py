"""Bytes of the tensors that a library holds between steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor


class PeakBytes:
    """The most bytes seen, each piece of memory counted once however many tensors view it."""

    def __init__(self) -> None:
        """Has seen nothing."""
        self.bytes = 0

    def see(self, held: object) -> None:
        """Counts the tensors reachable from an object, through containers and attributes."""
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for tensor in _tensors(held)
        }
        self.bytes = max(self.bytes, sum(storages.values()))


def _tensors(held: object) -> Iterator[Tensor]:
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, Mapping):
        for value in held.values():
            yield from _tensors(value)
    elif isinstance(held, list | tuple):
        for value in held:
            yield from _tensors(value)
    elif hasattr(held, "__dict__"):
        yield from _tensors(vars(held))
