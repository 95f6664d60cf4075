"""The six shapes of a transformer block: which streams go in, which come out, in which order.

`h` is the image stream (`hidden_states`), `e` the text stream (`encoder_hidden_states`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Self

import torch
from torch import Tensor

Block = Callable[..., Any]
"""A transformer block, or anything called like one."""

HIDDEN_NAMES: Final = ("hidden_states", "x")
"""Names under which blocks take the image stream."""

ENCODER_NAME: Final = "encoder_hidden_states"
"""Name under which blocks take the text stream."""


class ForwardPattern(Enum):
    """What a block takes and returns; cache-dit numbers these 0 to 5, in this order.

    Attributes:
        takes_encoder: Whether the text stream goes in and may change from block to block.
        returns_encoder: Whether the text stream comes out.
        encoder_first: Whether it comes out first.
    """

    HE_HE = "(h,e)->(h,e)"
    HE_EH = "(h,e)->(e,h)"
    HE_H = "(h,e)->h"
    H_H = "h->h"
    H_HE = "h->(h,e)"
    H_EH = "h->(e,h)"

    # Worked out once: these are read for every block of every call.
    def __init__(self, shape: str) -> None:
        """Reads the shape."""
        takes, returns = shape.split("->")
        self.returns_encoder = "e" in returns
        self.takes_encoder = "e" in takes and self.returns_encoder
        self.encoder_first = returns == "(e,h)"

    def unpack(self, output: Any, encoder: Tensor | None) -> Streams:
        """Reads what a block returned.

        Args:
            output: A tensor, or a tuple of the streams.
            encoder: The text stream before the block, kept where the block returns none.
        """
        if not self.returns_encoder:
            return Streams(output[0] if isinstance(output, tuple) else output, encoder)
        first, second = output
        return Streams(second, first) if self.encoder_first else Streams(first, second)

    def pack(self, streams: Streams) -> Any:
        """The streams as a block of this pattern returns them."""
        hidden, encoder = streams
        if not self.returns_encoder:
            return hidden
        return (encoder, hidden) if self.encoder_first else (hidden, encoder)


StreamShapes = tuple[tuple[int, ...], tuple[int, ...] | None]


class Streams(NamedTuple):
    """The two streams between blocks.

    Attributes:
        hidden: `(batch, ...)`, working dtype.
        encoder: `(batch, ...)`, or None where the pattern has none yet.
    """

    hidden: Tensor
    encoder: Tensor | None

    @property
    def shapes(self) -> StreamShapes:
        """Shapes of both."""
        return self.hidden.shape, None if self.encoder is None else self.encoder.shape


class BlockArguments:
    """The arguments of one call of a block, with the places of the streams known."""

    __slots__ = ("_args", "_encoder_place", "_hidden_place", "_kwargs", "_pattern")

    def __init__(
        self, pattern: ForwardPattern, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Finds the streams in the arguments of a call.

        Args:
            pattern: The block's.
            args: Positional arguments, streams first.
            kwargs: Keyword arguments.

        Raises:
            TypeError: the call has no hidden states, or lacks the text stream of its pattern.
        """
        self._pattern = pattern
        self._args = list(args)
        self._kwargs = kwargs
        self._hidden_place: int | str = 0 if args else _name_of_hidden(kwargs)
        self._encoder_place: int | str | None = None
        if pattern.takes_encoder:
            self._encoder_place = ENCODER_NAME if ENCODER_NAME in kwargs else 1
            if ENCODER_NAME not in kwargs and len(args) < 2:
                raise TypeError(f"a block of pattern {pattern.value} was called without its text")

    @property
    def streams(self) -> Streams:
        """The streams that came with the call."""
        encoder = None if self._encoder_place is None else self._read(self._encoder_place)
        return Streams(self._read(self._hidden_place), encoder)

    def run(self, blocks: Sequence[Block], streams: Streams) -> Streams:
        """Runs blocks one after another on the streams, all with these arguments."""
        unpack, args, kwargs = self._pattern.unpack, self._args, self._kwargs
        hidden, encoder = streams
        for block in blocks:
            self._write(self._hidden_place, hidden)
            if self._encoder_place is not None:
                self._write(self._encoder_place, encoder)
            hidden, encoder = unpack(block(*args, **kwargs), encoder)
        return Streams(hidden, encoder)

    def rows(
        self,
        index: Tensor,
        batch: int,
        names: list[str],
        unbatched: Container[str] = (),
        repeated: Container[str] = (),
    ) -> Self:
        """The same arguments for some samples of the batch.

        Args:
            index: `(rows,)`, int64: which samples.
            batch: Samples of the whole batch. A tensor of that length is taken to be batched.
            names: Names of the positional arguments.
            unbatched: Names of arguments that have no batch dimension.
            repeated: Names of arguments that may hold several batches, one after another.
        """

        def chosen(name: str, value: Any) -> Any:
            if name in unbatched:
                return value
            if name in repeated and value.shape[0] > batch:
                several = torch.arange(0, value.shape[0], batch, device=index.device)
                return value[(several[:, None] + index).flatten()]
            return _rows_of(value, index, batch)

        # A block may take more than it names (*args), but not less.
        named = itertools.zip_longest(names[: len(self._args)], self._args, fillvalue="")
        args = tuple(chosen(name, value) for name, value in named)
        kwargs = {name: chosen(name, value) for name, value in self._kwargs.items()}
        return type(self)(self._pattern, args, kwargs)

    def _read(self, place: int | str) -> Any:
        return self._args[place] if isinstance(place, int) else self._kwargs[place]

    def _write(self, place: int | str, value: Tensor | None) -> None:
        if isinstance(place, int):
            self._args[place] = value
        else:
            self._kwargs[place] = value


def _name_of_hidden(kwargs: dict[str, Any]) -> str:
    for name in HIDDEN_NAMES:
        if name in kwargs:
            return name
    raise TypeError(f"a block was called without {' or '.join(HIDDEN_NAMES)}")


def _rows_of(value: Any, index: Tensor, batch: int) -> Any:
    if isinstance(value, Tensor):
        return value[index] if value.ndim and value.shape[0] == batch else value
    if isinstance(value, tuple | list):
        return type(value)(_rows_of(item, index, batch) for item in value)
    if isinstance(value, dict):
        return {key: _rows_of(item, index, batch) for key, item in value.items()}
    return value
