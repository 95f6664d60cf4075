"""What the source was told is repeated on the target, or counted, and the target slows nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from structlog.testing import capture_logs
from tests.e2e.processes import wait_until

from skipstone_shared.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)
from skipstone_shared.migration_mirror import AWAY_S, Mirror
from skipstone_shared.request_context import current_request_id, remaining_s, request_scope

WAIT_S = 30.0
LONG_S = 30.0
SHORT_S = 0.02


class Backend:
    """Keeps one value; can be told to raise, and to hang until it may go on."""

    def __init__(self) -> None:
        self.value = 0
        self.asked = 0
        self.error: Exception | None = None
        self.entered = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def hang(self) -> None:
        self.entered.clear()
        self.goes_on.clear()

    def put(self, value: int) -> None:
        self.asked += 1
        self.entered.set()
        assert self.goes_on.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        self.value = value


class Pair:
    """A source, a target, and a mirror whose clock stands still."""

    def __init__(self, bound_s: float) -> None:
        self.now = 0.0
        self.source = Backend()
        self.target = Backend()
        self.mirror = Mirror("latent_kv", bound_s, lambda: self.now)

    @property
    def missed(self) -> int:
        return self.mirror.missed().count

    def write(self, value: int) -> None:
        self.mirror.write("put", lambda: self.source.put(value), lambda _: self.target.put(value))

    def delete(self) -> None:
        self.mirror.delete(lambda: self.target.put(0), lambda: self.source.put(0))

    def wait_settled(self) -> None:
        """Waits until the last call that nobody waits for has ended."""

        def is_settled() -> bool:
            with suppress(Unavailable):
                self.mirror.settled()
                return True
            return False

        wait_until(is_settled, "the target has answered")


@pytest.fixture
def make_pair() -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(bound_s: float = LONG_S) -> Pair:
        made.append(Pair(bound_s))
        return made[-1]

    with capture_logs():
        yield make
    for pair in made:
        pair.target.goes_on.set()


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair()


def test_a_write_is_in_both_once_it_returns(pair: Pair) -> None:
    pair.write(1)
    assert (pair.source.value, pair.target.value, pair.missed) == (1, 1, 0)


@pytest.mark.parametrize("error", [Unavailable("away"), ResourceExhausted("full"), KeyError("bug")])
def test_what_the_target_does_not_take_is_counted_and_nobody_is_told(
    pair: Pair, error: Exception
) -> None:
    pair.target.error = error
    pair.write(1)
    assert (pair.source.value, pair.target.value, pair.missed) == (1, 0, 1)
    assert pair.mirror.settled() == pair.mirror.missed()


def test_the_target_has_the_id_of_the_request_and_not_its_deadline(pair: Pair) -> None:
    """A store that gives up with one impatient caller would be taken for away by all others."""

    def told() -> tuple[str | None, float | None]:
        return current_request_id(), remaining_s()

    with request_scope("abc", timeout_s=0.0):
        assert pair.mirror.ask(told) == ("abc", None)
        assert told() == ("abc", 0.0)


def test_a_target_that_is_full_is_asked_again_and_one_that_is_away_is_not(pair: Pair) -> None:
    pair.target.error = ResourceExhausted("full")
    pair.write(1)
    pair.write(2)
    assert pair.target.asked == 2
    pair.target.error = Unavailable("away")
    pair.write(3)
    pair.write(4)
    assert (pair.target.asked, pair.missed) == (3, 4)


@pytest.mark.parametrize(
    ("error", "missed"),
    [(InvalidArgument("bad"), 0), (Unavailable("away"), 1), (DeadlineExceeded(), 1)],
)
def test_a_write_that_the_source_may_have_made_all_the_same_is_counted(
    pair: Pair, error: SkipstoneError, missed: int
) -> None:
    pair.source.error = error
    with pytest.raises(type(error)):
        pair.write(1)
    assert (pair.target.asked, pair.missed) == (0, missed)


def test_a_deletion_that_the_source_did_not_make_is_counted(pair: Pair) -> None:
    """The target has made it, and lacks what the source has."""
    pair.write(1)
    pair.source.error = ResourceExhausted("full")
    with pytest.raises(ResourceExhausted):
        pair.delete()
    assert (pair.source.value, pair.target.value, pair.missed) == (1, 0, 1)


def test_a_deletion_fails_at_once_while_the_target_is_away(pair: Pair) -> None:
    pair.target.error = Unavailable("away")
    for _ in range(2):
        with pytest.raises(Unavailable):
            pair.delete()
    assert (pair.target.asked, pair.source.asked) == (1, 0)
    pair.target.error = None
    pair.now = AWAY_S
    pair.delete()
    assert pair.source.asked == 1


class TestATargetThatHangs:
    @pytest.fixture
    def pair(self, make_pair: Callable[..., Pair]) -> Pair:
        pair = make_pair(SHORT_S)
        pair.target.hang()
        return pair

    def test_one_write_waits_for_it_and_none_after_that(self, pair: Pair) -> None:
        for value in range(1, 6):
            pair.write(value)
        assert (pair.source.value, pair.missed, pair.target.asked) == (5, 5, 1)

    def test_no_time_brings_it_back_while_a_call_has_no_end(self, pair: Pair) -> None:
        """Its effect may still come, over whatever is written until then."""
        pair.write(1)
        pair.now += 100 * AWAY_S
        pair.write(2)
        with pytest.raises(Unavailable):
            pair.delete()
        for though_doubted in (False, True):
            with pytest.raises(Unavailable):
                pair.mirror.ask(lambda: pair.target.value, though_doubted=though_doubted)
        with pytest.raises(Unavailable):
            pair.mirror.settled()
        assert (pair.missed, pair.target.asked) == (2, 1)

    def test_an_answer_that_comes_late_brings_it_back_at_once(self, pair: Pair) -> None:
        pair.write(1)
        pair.write(2)
        pair.target.goes_on.set()
        pair.wait_settled()
        assert (pair.target.value, pair.missed) == (1, 2)
        pair.write(3)
        assert (pair.target.value, pair.missed) == (3, 2)

    def test_an_error_that_comes_late_leaves_it_away(self, pair: Pair) -> None:
        pair.write(1)
        pair.target.error = Unavailable("away")
        pair.target.goes_on.set()
        pair.wait_settled()
        pair.write(2)
        assert (pair.target.asked, pair.missed) == (1, 2)

    def test_after_a_while_a_write_tries_it_that_nobody_waits_for(self, pair: Pair) -> None:
        pair.write(1)
        pair.target.error = Unavailable("away")
        pair.target.goes_on.set()
        pair.wait_settled()
        pair.target.error = None
        pair.target.hang()
        pair.now += AWAY_S
        pair.write(2)  # returns, although the target hangs
        pair.write(3)
        assert pair.target.entered.wait(WAIT_S)
        assert (pair.target.asked, pair.missed) == (2, 3)
        pair.target.goes_on.set()
        pair.wait_settled()
        pair.write(4)
        assert (pair.target.value, pair.missed) == (4, 3)

    def test_a_question_of_a_mover_brings_it_back_before_that(self, pair: Pair) -> None:
        """Else the next write after a pass would be missed although the target is there."""
        pair.target.error = Unavailable("away")
        pair.target.goes_on.set()
        pair.write(1)
        pair.target.error = None
        with pytest.raises(Unavailable):
            pair.mirror.ask(lambda: None)
        assert pair.mirror.ask(lambda: 7, though_doubted=True) == 7
        pair.write(2)
        assert (pair.target.value, pair.missed) == (2, 1)


def test_who_asks_for_the_count_waits_for_the_writes_under_way(pair: Pair) -> None:
    """One is in the source, not in the target, and not counted yet; a pass has gone past it."""
    pair.target.hang()
    pair.target.error = Unavailable("away")
    with ThreadPoolExecutor() as threads:
        writing = threads.submit(pair.write, 1)
        assert pair.target.entered.wait(WAIT_S)
        asking = threading.Event()

        def ask() -> int:
            asking.set()
            return pair.mirror.settled().count

        counted: Future[int] = threads.submit(ask)
        assert asking.wait(WAIT_S)
        assert pair.missed == 0
        with request_scope(timeout_s=0.0), pytest.raises(DeadlineExceeded):
            pair.mirror.settled()
        pair.target.goes_on.set()
        assert counted.result(WAIT_S) == 1
        writing.result(WAIT_S)


def test_closing_tells_the_count_that_no_metric_tells_any_more(pair: Pair) -> None:
    """Also when the target cannot be closed, since it hangs."""
    pair.target.error = Unavailable("away")
    pair.write(1)
    with capture_logs() as logs:
        pair.mirror.close(lambda: pair.target.put(0), LONG_S)
    assert [line["event"] for line in logs] == ["the target was not closed", "mirroring ended"]
    assert logs[-1]["missed_writes"] == 1


def test_every_start_has_an_id_of_its_own(make_pair: Callable[..., Pair]) -> None:
    one, other = make_pair().mirror, make_pair().mirror
    assert one.missed().process_id == one.settled().process_id != other.missed().process_id


def test_the_metric_counts_the_same(pair: Pair) -> None:
    pair.target.error = Unavailable("away")
    pair.write(1)
    (metric,) = (m for c in pair.mirror.collectors for m in c.collect())
    assert metric.name == "skipstone_latent_kv_migration_missed_writes"
    assert metric.samples[0].value == 1
