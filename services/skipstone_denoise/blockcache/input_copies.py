"""Keeps blocks that write into their input from changing what caching compares and stores."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_denoise.blockcache.patterns import Block, BlockArguments, Streams


class InputCopies:
    """Runs blocks on copies of the streams, where they would write into them.

    No known family does; a declared one may. The first call of a chain runs on copies, and their
    version counters tell whether the later ones must. Inference tensors have no such counter: under
    `torch.inference_mode` every call runs on copies.
    """

    __slots__ = ("_copies", "_written")

    def __init__(self) -> None:
        """Knows nothing of the blocks yet."""
        self._copies = True
        self._written = False

    def run(self, call: BlockArguments, blocks: Sequence[Block], streams: Streams) -> Streams:
        """Runs blocks; the streams that go in stay as they are."""
        if not self._copies:
            return call.run(blocks, streams)
        hidden, encoder = streams
        copies = [hidden.clone()] if encoder is None else [hidden.clone(), encoder.clone()]
        output = call.run(blocks, Streams(copies[0], None if encoder is None else copies[1]))
        self._written |= any(copy.is_inference() or copy._version > 0 for copy in copies)
        return output

    def settle(self) -> None:
        """All blocks have run once."""
        self._copies = self._written
