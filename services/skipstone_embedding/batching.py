"""Inputs of different callers go through the model together."""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Sequence

from skipstone_embedding.encoder import Encoder
from skipstone_shared.embeddings import Embedding, EmbeddingCapabilities, EmbeddingInput
from skipstone_shared.errors import (
    DeadlineExceeded,
    Internal,
    QueueFull,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.request_context import remaining_s
from skipstone_shared.structured_logging import get_logger

Result = Embedding | SkipstoneError

_MAX_BATCH_LENGTH = 16_384
"""Characters in one batch, about 4,000 tokens: a second on a CPU core. It bounds how long a
caller waits behind others' long texts, and how long work goes on after its caller gave up."""

_MAX_INPUT_LENGTH = 2_048
"""What one input counts for at most: models read about 256 to 512 tokens and ignore the rest."""


_MAX_PASSED_OVER = 8
"""Batches of texts that go before pictures which wait: texts take milliseconds and lookups wait for
them, but pictures must get their turn under any load."""


class BatchingEncoder:
    """An `Encoder` that gathers calls and passes them on in batches, from one thread of its own.

    While a batch is computed new inputs gather for the next one, so batches grow with load. An
    input that waits alone waits at most ``max_wait_s`` for company. Texts go before pictures and
    never together with them.
    """

    def __init__(
        self, encoder: Encoder, *, max_batch_size: int, max_wait_s: float, max_queue_size: int
    ) -> None:
        """Starts the thread.

        Args:
            encoder: Computes the batches.
            max_batch_size: Inputs in one batch, and in one call.
            max_wait_s: Seconds that a batch that is not full waits for more.
            max_queue_size: Inputs that may wait; more are refused.
        """
        self._encoder = encoder
        self._max_batch_size = max_batch_size
        self._max_wait_s = max_wait_s
        self._max_queue_size = max_queue_size
        self._queue: deque[_Item] = deque()
        self._passed_over = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="embedding-batches", daemon=True)
        self._thread.start()

    def encode(self, inputs: Sequence[EmbeddingInput], instruction: str = "") -> list[Result]:
        """Embeds inputs, together with those of other callers; see `Encoder`."""
        if not inputs:
            return []
        call = _Call(len(inputs))
        now = time.monotonic()
        items = [_Item(call, i, item, instruction, now) for i, item in enumerate(inputs)]
        with self._changed:
            if self._closing:
                raise Unavailable("the encoder is closed")
            if len(self._queue) + len(items) > self._max_queue_size:
                raise QueueFull(
                    f"{len(self._queue)} inputs are waiting, the limit is {self._max_queue_size}"
                )
            self._queue.extend(items)
            self._changed.notify_all()
        if not call.done.wait(remaining_s()):
            self._give_up(call)
            raise DeadlineExceeded("the inputs were not embedded in time")
        return call.results

    def get_capabilities(self) -> EmbeddingCapabilities:
        """Tells the model and the limits."""
        capabilities = self._encoder.get_capabilities()
        return dataclasses.replace(capabilities, max_batch_size=self._max_batch_size)

    @property
    def queue_size(self) -> int:
        """Inputs that wait for a batch."""
        return len(self._queue)

    def close(self) -> None:
        """Refuses new calls, answers those that wait, and ends the thread. May be called twice."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _give_up(self, call: _Call) -> None:
        """Takes what still waits out of the queue; what is being computed is dropped when done."""
        with self._changed:
            self._queue = deque(item for item in self._queue if item.call is not call)

    def _work(self) -> None:
        while batch := self._next_batch():
            inputs = [item.input for item in batch]
            results = self._encode(inputs, batch[0].instruction)
            for item, result in zip(batch, results, strict=True):
                item.call.set(item.index, result)

    def _next_batch(self) -> list[_Item]:
        """Waits for the next batch; empty when the encoder is closed and nothing waits."""
        with self._changed:
            while True:
                if self._queue:
                    wait_s = self._queue[0].arrived + self._max_wait_s - time.monotonic()
                    full = len(self._queue) >= self._max_batch_size
                    if full or self._closing or wait_s <= 0:
                        return self._take()
                    self._changed.wait(wait_s)
                elif self._closing:
                    return []
                else:
                    self._changed.wait()

    def _take(self) -> list[_Item]:
        """Takes the oldest inputs of the kind and instruction whose turn it is."""
        first = self._first()
        batch: list[_Item] = []
        left: deque[_Item] = deque()
        room = _MAX_BATCH_LENGTH
        for item in self._queue:
            fits = len(batch) < self._max_batch_size and item.length <= room
            if fits and (item.instruction, item.is_text) == (first.instruction, first.is_text):
                batch.append(item)
                room -= item.length
            else:
                left.append(item)
        self._queue = left
        return batch

    def _first(self) -> _Item:
        """The input whose turn it is."""
        text = next((item for item in self._queue if item.is_text), None)
        picture = next((item for item in self._queue if not item.is_text), None)
        if text is None or picture is None:
            self._passed_over = 0
            return self._queue[0]
        if self._passed_over == _MAX_PASSED_OVER:
            self._passed_over = 0
            return picture
        self._passed_over += 1
        return text

    def _encode(self, inputs: list[EmbeddingInput], instruction: str) -> list[Result]:
        """Embeds a batch. When that breaks as a whole, each input alone.

        Otherwise one caller's input that breaks the model would fail every caller in its batch. An
        error raised on purpose is of the encoder and not of an input: a remote one that is away
        would be asked in vain for each.
        """
        try:
            return self._encoder.encode(inputs, instruction)
        except SkipstoneError as error:
            # Each caller gets its own: on the way it is told where it came from.
            return [copy.copy(error) for _ in inputs]
        except Exception as error:  # noqa: BLE001 - the thread must live on
            if len(inputs) > 1:
                return [self._encode([item], instruction)[0] for item in inputs]
            get_logger().error("an input broke the model", exc_info=error)
            return [Internal("the model failed on this input; the server's log has the reason")]


class _Call:
    """Results of one call, filled in by the thread."""

    def __init__(self, count: int) -> None:
        self.results: list[Result] = [Unavailable("the encoder is closed")] * count
        self.done = threading.Event()
        self._missing = count

    def set(self, index: int, result: Result) -> None:
        """Fills in one result; only the thread calls it."""
        self.results[index] = result
        self._missing -= 1
        if not self._missing:
            self.done.set()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Item:
    call: _Call
    index: int
    input: EmbeddingInput
    instruction: str
    arrived: float

    @property
    def is_text(self) -> bool:
        """Whether it is no picture and no clip."""
        return self.input.kind == "text"

    @property
    def length(self) -> int:
        """Characters it adds to a batch; a picture and each frame count as a long text."""
        if self.is_text:
            return min(len(self.input.text), _MAX_INPUT_LENGTH)
        return min(len(self.input.frames) * _MAX_INPUT_LENGTH, _MAX_BATCH_LENGTH)
