"""The guard of one service: what it translates, and that it leaves no call half recorded."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.unit.orchestrator.site import in_loop

from skipstone_orchestrator.breaker import BreakerOpen, CircuitBreaker
from skipstone_orchestrator.guard import Guard, Watching
from skipstone_shared.errors import DeadlineExceeded, EntryNotFound, Internal, Unavailable
from skipstone_shared.orchestration import BreakerState


async def answer() -> str:
    return "answer"


async def hang() -> str:
    await asyncio.Event().wait()
    raise AssertionError("never reached")


async def nobody() -> bool:
    return False


def guard_of(threshold: int = 2) -> Guard:
    breaker = CircuitBreaker(
        "embedding", failure_threshold=threshold, open_period_s=1000.0, clock=time.monotonic
    )
    watching = Watching(
        probe_timeout_s=0.01, healthy_interval_s=1000.0, sick_interval_s=0.001, return_wait_s=0.01
    )
    return Guard("embedding", "host:1", breaker, ping=answer, knock=nobody, watching=watching)


def failing(error: Exception) -> object:
    async def call() -> str:
        raise error

    return call


@in_loop
async def test_an_answer_passes_through() -> None:
    assert await guard_of().call(answer, 5.0) == "answer"


@in_loop
async def test_a_late_answer_is_a_deadline_of_that_service() -> None:
    with pytest.raises(DeadlineExceeded, match="embedding did not answer within"):
        await guard_of().call(hang, 0.01)


@in_loop
async def test_an_unknown_exception_becomes_internal_and_keeps_its_text_out() -> None:
    with pytest.raises(Internal) as caught:
        await guard_of().call(failing(ValueError("secret")), 5.0)  # type: ignore[arg-type]
    assert "secret" not in caught.value.message


@in_loop
async def test_a_miss_is_an_answer() -> None:
    guard = guard_of(threshold=1)
    with pytest.raises(EntryNotFound):
        await guard.call(failing(EntryNotFound("x")), 5.0)  # type: ignore[arg-type]
    assert guard.breaker.state is BreakerState.CLOSED


@in_loop
async def test_a_cancelled_trial_leaves_room_for_the_next() -> None:
    guard = guard_of(threshold=1)
    with pytest.raises(DeadlineExceeded):
        await guard.call(hang, 0.01)
    guard.breaker.record_probe(None)
    trial = asyncio.create_task(guard.call(hang, 5.0))
    await asyncio.sleep(0)
    with pytest.raises(BreakerOpen):
        await guard.call(answer, 5.0)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    assert await guard.call(answer, 5.0) == "answer"


@in_loop
async def test_check_tells_whether_a_call_would_be_made_without_making_one() -> None:
    guard = guard_of()
    await guard.check()
    with pytest.raises(Unavailable):
        await guard.call(failing(Unavailable("refused")), 5.0)  # type: ignore[arg-type]
    with pytest.raises(BreakerOpen, match="refused"):
        await guard.check()
    assert guard.state.last_error == "refused"


@in_loop
async def test_watching_brings_a_service_back_without_a_request() -> None:
    guard = guard_of()
    with pytest.raises(Unavailable):
        await guard.call(failing(Unavailable("refused")), 5.0)  # type: ignore[arg-type]
    watcher = asyncio.create_task(guard.watch())
    while guard.breaker.state is not BreakerState.CLOSED:
        await asyncio.sleep(0.001)
    watcher.cancel()
