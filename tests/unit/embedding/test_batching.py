"""Inputs of different callers share a batch, and nobody pays for another's trouble."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from skipstone_embedding.batching import BatchingEncoder
from skipstone_shared.embeddings import (
    Embedding,
    EmbeddingCapabilities,
    EmbeddingInput,
    EncodedImage,
)
from skipstone_shared.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    QueueFull,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.request_context import request_scope

TIMEOUT_S = 20.0
FOREVER_S = 3600.0


class LengthEncoder:
    """The vector of a text is its length; a batch waits until the test opens the gate."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def encode(
        self, inputs: Sequence[EmbeddingInput], instruction: str = ""
    ) -> list[Embedding | SkipstoneError]:
        texts = [item.text for item in inputs]
        self.batches.append((instruction, texts))
        self.entered.release()
        assert self.gate.wait(TIMEOUT_S)
        if "poison" in texts:
            raise RuntimeError("the model broke")
        if "away" in texts:
            raise Unavailable("the remote model is away")
        return [
            Embedding(np.array([len(text)], np.float32)) if text else InvalidArgument("empty")
            for text in texts
        ]

    def get_capabilities(self) -> EmbeddingCapabilities:
        return EmbeddingCapabilities("length", 1)


MakeBatching = Callable[..., BatchingEncoder]


@pytest.fixture
def model() -> LengthEncoder:
    return LengthEncoder()


@pytest.fixture
def batching(model: LengthEncoder) -> Iterator[MakeBatching]:
    made: list[BatchingEncoder] = []

    def make(batch: int = 8, wait_s: float = 0.0, queue: int = 100) -> BatchingEncoder:
        made.append(
            BatchingEncoder(model, max_batch_size=batch, max_wait_s=wait_s, max_queue_size=queue)
        )
        return made[-1]

    yield make
    model.gate.set()
    for encoder in made:
        encoder.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def texts(*words: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text=word) for word in words]


def lengths(results: Sequence[Embedding | SkipstoneError]) -> list[float]:
    return [float(r.vector[0]) for r in results if isinstance(r, Embedding)]


def occupy(
    encoder: BatchingEncoder, model: LengthEncoder, pool: ThreadPoolExecutor
) -> Future[list[Embedding | SkipstoneError]]:
    """Keeps the model busy, so that what comes next has to wait."""
    model.gate.clear()
    first = pool.submit(encoder.encode, texts("busy"))
    assert model.entered.acquire(timeout=TIMEOUT_S)
    return first


def wait_for_queue(encoder: BatchingEncoder, count: int) -> None:
    while encoder.queue_size < count:
        threading.Event().wait(0.001)


def test_results_come_in_the_order_of_the_inputs(batching: MakeBatching) -> None:
    assert lengths(batching().encode(texts("a", "abc", "ab"))) == [1, 3, 2]
    assert batching().encode([]) == []


def test_callers_that_wait_at_the_same_time_share_a_batch(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching()
    first = occupy(encoder, model, pool)
    calls = [pool.submit(encoder.encode, texts("x" * n, "y" * n)) for n in (2, 3, 4)]
    wait_for_queue(encoder, 6)
    model.gate.set()
    assert sorted(lengths(c.result(TIMEOUT_S))[0] for c in calls) == [2, 3, 4]
    assert lengths(first.result(TIMEOUT_S)) == [4]
    assert [len(batch) for _, batch in model.batches] == [1, 6]


def test_a_batch_is_never_larger_than_its_limit(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching(batch=4)
    first = occupy(encoder, model, pool)
    calls = [pool.submit(encoder.encode, texts("a", "b", "c")) for _ in range(3)]
    wait_for_queue(encoder, 9)
    model.gate.set()
    assert [lengths(call.result(TIMEOUT_S)) for call in calls] == [[1, 1, 1]] * 3
    first.result(TIMEOUT_S)
    assert [len(batch) for _, batch in model.batches] == [1, 4, 4, 1]
    assert encoder.get_capabilities().max_batch_size == 4


def test_a_batch_holds_few_long_texts(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    """So that a caller with a short text does not wait for all of them."""
    encoder = batching(batch=64)
    first = occupy(encoder, model, pool)
    long = pool.submit(encoder.encode, texts(*["x" * 20_000] * 20))
    wait_for_queue(encoder, 20)
    model.gate.set()
    assert lengths(long.result(TIMEOUT_S)) == [20_000] * 20
    first.result(TIMEOUT_S)
    assert [len(batch) for _, batch in model.batches] == [1, 8, 8, 4]


@pytest.mark.parametrize(
    ("frames", "sizes"), [(1, [1, 8, 1]), (3, [1, 2, 2, 2, 2, 1]), (16, [1] * 10)]
)
def test_every_frame_of_a_clip_counts_as_a_long_text(
    batching: MakeBatching,
    model: LengthEncoder,
    pool: ThreadPoolExecutor,
    frames: int,
    sizes: list[int],
) -> None:
    encoder = batching(batch=64)
    first = occupy(encoder, model, pool)
    clip = EmbeddingInput(frames=(EncodedImage("image/png", b""),) * frames)
    clips = pool.submit(encoder.encode, [clip] * 9)
    wait_for_queue(encoder, 9)
    model.gate.set()
    assert len(clips.result(TIMEOUT_S)) == 9
    first.result(TIMEOUT_S)
    assert [len(batch) for _, batch in model.batches] == sizes


def test_texts_go_before_pictures_but_not_for_ever(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    """A lookup waits for its text; what a finished run shows can wait."""
    encoder = batching(batch=1)
    first = occupy(encoder, model, pool)
    picture = EmbeddingInput(frames=(EncodedImage("image/png", b""),))
    seen = pool.submit(encoder.encode, [picture] * 2)
    wait_for_queue(encoder, 2)
    words = pool.submit(encoder.encode, texts(*["fox"] * 10))
    wait_for_queue(encoder, 12)
    model.gate.set()
    assert lengths(words.result(TIMEOUT_S)) == [3] * 10
    assert len(seen.result(TIMEOUT_S)) == 2
    first.result(TIMEOUT_S)
    order = [batch for _, (batch,) in model.batches[1:]]
    assert order == [*["fox"] * 8, "", "fox", "fox", ""]


def test_texts_and_pictures_do_not_share_a_batch(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching(batch=8)
    first = occupy(encoder, model, pool)
    picture = EmbeddingInput(frames=(EncodedImage("image/png", b""),))
    mixed = pool.submit(encoder.encode, [picture, *texts("a"), picture, *texts("bc")])
    wait_for_queue(encoder, 4)
    model.gate.set()
    found = mixed.result(TIMEOUT_S)
    assert [isinstance(item, Embedding) for item in found] == [False, True, False, True]
    first.result(TIMEOUT_S)
    assert [batch for _, batch in model.batches[1:]] == [["a", "bc"], ["", ""]]


def test_a_full_batch_does_not_wait_for_more(batching: MakeBatching) -> None:
    assert lengths(batching(batch=2, wait_s=FOREVER_S).encode(texts("a", "b"))) == [1, 1]


def test_a_batch_that_is_not_full_waits_for_company(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching(batch=2, wait_s=FOREVER_S)
    first = pool.submit(encoder.encode, texts("a"))
    wait_for_queue(encoder, 1)
    assert not model.batches
    assert lengths(encoder.encode(texts("bb"))) == [2]
    assert lengths(first.result(TIMEOUT_S)) == [1]
    assert len(model.batches) == 1


def test_inputs_with_different_instructions_do_not_share_a_batch(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching()
    first = occupy(encoder, model, pool)
    calls = []
    for count, instruction in enumerate(["x", "y", "x"], start=1):
        calls.append(pool.submit(encoder.encode, texts("t"), instruction))
        wait_for_queue(encoder, count)
    model.gate.set()
    assert all(lengths(call.result(TIMEOUT_S)) == [1] for call in [*calls, first][:3])
    assert model.batches[1:] == [("x", ["t", "t"]), ("y", ["t"])]


def test_a_bad_input_fails_alone(batching: MakeBatching) -> None:
    good, bad, last = batching().encode(texts("a", "", "b"))
    assert isinstance(bad, InvalidArgument)
    assert lengths([good, last]) == [1, 1]


def test_an_input_that_breaks_the_model_fails_alone(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching()
    first = occupy(encoder, model, pool)
    poisoned = pool.submit(encoder.encode, texts("a", "poison"))
    innocent = pool.submit(encoder.encode, texts("abc"))
    wait_for_queue(encoder, 3)
    model.gate.set()
    first.result(TIMEOUT_S)
    good, bad = poisoned.result(TIMEOUT_S)
    assert lengths([good]) == [1]
    assert isinstance(bad, Internal)
    assert "broke" not in bad.message, "the reason may hold secrets; it stays in the log"
    assert lengths(innocent.result(TIMEOUT_S)) == [3]
    assert lengths(encoder.encode(texts("after"))) == [5]


def test_an_encoder_that_is_away_is_asked_once_for_a_whole_batch(
    batching: MakeBatching, model: LengthEncoder
) -> None:
    """Else a dead remote would be asked, and waited for, once for each input."""
    errors = batching().encode(texts("a", "away", "b"))
    assert all(isinstance(error, Unavailable) for error in errors)
    assert len(model.batches) == 1
    assert len({id(error) for error in errors}) == 3, "each may be changed on its way"


def test_more_inputs_than_the_queue_takes_are_refused_as_a_whole(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching(queue=3)
    first = occupy(encoder, model, pool)
    second = pool.submit(encoder.encode, texts("a", "b"))
    wait_for_queue(encoder, 2)
    with pytest.raises(QueueFull, match="limit is 3"):
        encoder.encode(texts("c", "d"))
    assert encoder.queue_size == 2
    model.gate.set()
    assert lengths(second.result(TIMEOUT_S)) == [1, 1]
    first.result(TIMEOUT_S)


def test_a_caller_gives_up_at_its_deadline_and_its_inputs_leave_the_queue(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching()
    first = occupy(encoder, model, pool)
    with request_scope(timeout_s=0.01), pytest.raises(DeadlineExceeded):
        encoder.encode(texts("late"))
    assert encoder.queue_size == 0
    model.gate.set()
    assert lengths(first.result(TIMEOUT_S)) == [4]
    encoder.close()
    assert [words for _, words in model.batches] == [["busy"]]


def test_closing_answers_what_waits_and_refuses_what_comes(
    batching: MakeBatching, model: LengthEncoder, pool: ThreadPoolExecutor
) -> None:
    encoder = batching(wait_s=FOREVER_S)
    waiting = pool.submit(encoder.encode, texts("a"))
    wait_for_queue(encoder, 1)
    encoder.close()
    assert lengths(waiting.result(TIMEOUT_S)) == [1]
    with pytest.raises(Unavailable):
        encoder.encode(texts("b"))
    encoder.close()
