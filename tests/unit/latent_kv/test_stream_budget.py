"""Streams whose peer stops or trickles, and what all of them may hold together."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.contract.latent_store_cases import Clock

from skipstone_latent_kv.stream_budget import StreamBudget, StreamLimits
from skipstone_shared.errors import Cancelled, ResourceExhausted

KIB = 1 << 10


@pytest.fixture
def clock() -> Clock:
    return Clock()


def budget_of(clock: Clock, **limits: float) -> StreamBudget:
    values = {"max_streams": 4, "max_bytes": 100, "stall_timeout_s": 10.0, "wait_s": 0.0} | limits
    return StreamBudget(StreamLimits(**values), clock)  # type: ignore[arg-type]


def no_end() -> None:
    raise AssertionError("ended")


def messages(clock: Clock, interval_s: float, size: int) -> Iterator[int]:
    """A peer that sends a message of so many bytes every so many seconds."""
    while True:
        clock.advance(interval_s)
        yield size


def size_of(message: int) -> int:
    return message


def test_streams_above_the_bound_are_refused_until_one_is_over(clock: Clock) -> None:
    budget = budget_of(clock, max_streams=2)
    with budget.admit(no_end):
        with budget.admit(no_end):
            with pytest.raises(ResourceExhausted, match="raise max_streams"), budget.admit(no_end):
                pass
        with budget.admit(no_end):
            assert budget.running == 2
    assert budget.running == 0


@pytest.mark.parametrize("waits_for", ["a stream", "bytes"])
def test_a_caller_that_goes_away_gives_up_its_place(clock: Clock, waits_for: str) -> None:
    """Else the bound would be taken by callers that nobody can answer, up to wait_s each."""
    budget = budget_of(clock, max_streams=1 if waits_for == "a stream" else 4, wait_s=60.0)
    gone = threading.Event()
    with budget.admit(no_end) as first, ThreadPoolExecutor(1) as pool:
        first.hold(100)

        def wait_for_room() -> None:
            with budget.admit(no_end, is_wanted=lambda: not gone.is_set()) as stream:
                stream.hold(1)

        waiting = pool.submit(wait_for_room)
        while not budget.waiting:
            assert not waiting.done()
        gone.set()
        with pytest.raises(Cancelled):
            waiting.result(timeout=60.0)
        assert (budget.waiting, budget.running) == (0, 1)


def test_bytes_above_the_bound_are_refused_until_others_let_go(clock: Clock) -> None:
    budget = budget_of(clock)
    with budget.admit(no_end) as first:
        first.hold(60)
        with budget.admit(no_end) as second:
            second.hold(40)
            with pytest.raises(ResourceExhausted):
                second.hold(1)
        assert budget.held_bytes == 60
        with budget.admit(no_end) as third:
            third.hold(40)
    assert budget.held_bytes == 0


def test_more_than_all_takes_all(clock: Clock) -> None:
    """It is refused by its size where that is checked; here it must not wait for ever."""
    budget = budget_of(clock)
    with budget.admit(no_end) as stream:
        stream.hold(1 << 60)
        assert budget.held_bytes == 100


def test_a_peer_that_stops_is_ended(clock: Clock) -> None:
    budget = budget_of(clock)
    ended = []
    with budget.admit(lambda: ended.append("reader")) as stream, capture_logs() as logs:
        sending = stream.outgoing([5, 5], size_of)
        next(sending)
        clock.advance(9.9)
        assert (budget.sweep(), ended) == (0, [])
        clock.advance(0.1)
        assert (budget.sweep(), ended) == (1, ["reader"])
        assert budget.sweep() == 0
    assert [log["event"] for log in logs] == ["stalled stream ended"]


def test_the_stores_own_work_does_not_count_against_the_peer(clock: Clock) -> None:
    budget = budget_of(clock)
    with budget.admit(no_end) as stream:
        receiving = stream.incoming(messages(clock, 1.0, 5), size_of)
        for _ in range(8):
            assert next(receiving) == 5
            clock.advance(1000.0)
        assert budget.sweep() == 0


def test_a_peer_that_trickles_is_ended_and_one_that_keeps_up_is_not(clock: Clock) -> None:
    budget = budget_of(clock)
    ended = []
    with (
        capture_logs(),
        budget.admit(no_end) as steady,
        budget.admit(lambda: ended.append("trickle")) as trickle,
    ):
        steadily = steady.incoming(messages(clock, 0.9, 256 * KIB), size_of)
        slowly = trickle.incoming(messages(clock, 1.1, 10), size_of)
        for _ in range(9):
            next(slowly)
            next(steadily)
            assert budget.sweep() == 0
        next(slowly)
        assert (budget.sweep(), ended) == (1, ["trickle"])


def test_bytes_moved_early_are_no_credit_for_later(clock: Clock) -> None:
    budget = budget_of(clock)
    ended = []
    with capture_logs(), budget.admit(lambda: ended.append(1)) as stream:
        sending = stream.outgoing([1 << 30, 1], size_of)
        next(sending)
        next(sending)
        clock.advance(10.0)
        assert budget.sweep() == 1


@pytest.mark.parametrize("scarce", ["streams", "bytes"])
def test_who_is_furthest_behind_gives_way_when_others_need_the_room(
    clock: Clock, scarce: str
) -> None:
    budget = budget_of(clock, max_streams=2 if scarce == "streams" else 9, wait_s=100.0)
    ended: list[str] = []
    with capture_logs(), ExitStack() as slower, ExitStack() as slow:

        def end(name: str, stack: ExitStack) -> None:
            ended.append(name)
            stack.close()

        for name, stack, seconds in (("slower", slower, 3.0), ("slow", slow, 2.0)):
            stream = stack.enter_context(budget.admit(functools.partial(end, name, stack)))
            stream.hold(50)
            next(stream.outgoing([1], size_of))
            clock.advance(seconds)
        with budget.admit(no_end) as newcomer:
            newcomer.hold(50)
            assert ended == ["slower"]
            assert (budget.running, budget.held_bytes) == (2, 100)


def test_a_stream_that_keeps_up_gives_no_way(clock: Clock) -> None:
    budget = budget_of(clock, max_streams=1)
    with budget.admit(no_end) as stream:
        next(stream.outgoing([1], size_of))
        clock.advance(0.9)
        with pytest.raises(ResourceExhausted), budget.admit(no_end):
            pass


def served_in_order(callers: Sequence[str]) -> list[int]:
    """Numbers of the callers, who come one after another, in the order in which room is given."""
    budget = StreamBudget(StreamLimits(max_bytes=100, wait_s=60.0))
    served: list[int] = []

    def work(number: int) -> None:
        with budget.admit(no_end, callers[number]) as stream:
            stream.hold(60)
            served.append(number)

    with ThreadPoolExecutor(len(callers)) as pool:
        with budget.admit(no_end, "first") as stream:
            stream.hold(100)
            waiting = []
            for number in range(len(callers)):
                waiting.append(pool.submit(work, number))
                while budget.waiting <= number:
                    threading.Event().wait(0.001)
            assert served == []
        for future in waiting:
            future.result(60)
    assert (budget.held_bytes, budget.waiting) == (0, 0)
    return served


def test_those_who_wait_are_served_in_order_of_arrival() -> None:
    assert served_in_order([f"peer {number}" for number in range(16)]) == list(range(16))


def test_nobody_waits_behind_a_crowd_that_one_peer_sent() -> None:
    assert served_in_order(["crowd"] * 6 + ["two", "one", "two"]) == [0, 6, 7, 1, 8, 2, 3, 4, 5]


def test_whose_streams_run_already_waits_for_those_who_have_none() -> None:
    assert served_in_order(["first", "first", "other"]) == [2, 0, 1]


def test_newcomers_do_not_go_first_for_ever() -> None:
    """A busy orchestrator has one connection; callers with new ones must not starve it."""
    budget = StreamBudget(StreamLimits(max_streams=8, max_bytes=100, wait_s=60.0))
    served: list[str] = []

    def work(peer: str) -> None:
        with budget.admit(no_end, peer) as stream:
            stream.hold(60)
            served.append(peer)

    with ThreadPoolExecutor(2) as pool:
        with budget.admit(no_end, "busy") as stream:
            stream.hold(100)
            waiting = []
            for peer in ("busy", "newcomer"):
                waiting.append(pool.submit(work, peer))
                while budget.waiting < len(waiting):
                    threading.Event().wait(0.001)
                for number in range(8):
                    with budget.admit(no_end, f"other {number}"):
                        pass
        for future in waiting:
            future.result(60)
    assert served == ["busy", "newcomer"]


def test_memory_is_given_back_after_streams_were_ended(clock: Clock) -> None:
    freed: list[int] = []
    budget = StreamBudget(StreamLimits(), clock, lambda: freed.append(1))
    with capture_logs(), ExitStack() as stack:
        next(stack.enter_context(budget.admit(stack.close)).outgoing([1], size_of))
        budget.sweep()
        clock.advance(10.0)
        assert (budget.sweep(), freed) == (1, [])
        assert (budget.sweep(), freed) == (0, [1])
        assert (budget.sweep(), freed) == (0, [1])


def test_what_streams_hold_is_told_to_prometheus(clock: Clock) -> None:
    budget = budget_of(clock)
    registry = CollectorRegistry()
    for collector in budget.collectors:
        registry.register(collector)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"skipstone_latent_kv_{name}")

    with capture_logs(), budget.admit(lambda: None) as stream:
        stream.hold(70)
        assert (value("streams"), value("stream_bytes")) == (1, 70)
        next(stream.outgoing([1], size_of))
        clock.advance(10.0)
        budget.sweep()
    assert (value("streams"), value("stream_bytes")) == (0, 0)
    assert value("stalled_streams_total") == 1
