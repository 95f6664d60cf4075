"""The simulation of fleets agrees with what queueing theory knows."""

from __future__ import annotations

import random
import statistics

import pytest

from capacity.fleet import MOST_BUSY, Fleet, Load, executors_needed, p95_wait_s, waits_s

REQUESTS = 40_000


def test_one_queue_waits_as_pollaczek_and_khinchine_say() -> None:
    """M/D/1 at 70 %: a mean wait of rho / (2 (1 - rho)) runs."""
    waits = waits_s(Load(0.7, 1.0, spread=0.0), Fleet(1, orchestrators=0), 4 * REQUESTS)
    assert statistics.fmean(waits) == pytest.approx(0.7 / 0.6, rel=0.1)


def test_turns_never_beat_one_queue_and_more_of_them_are_worse() -> None:
    load = Load(16.0, 1.0)
    means = [
        statistics.fmean(waits_s(load, Fleet(20, orchestrators=count), REQUESTS))
        for count in (0, 1, 8)
    ]
    assert means[0] <= means[1] < means[2]


def test_what_the_cache_saves_is_what_executors_do_not_do() -> None:
    load = Load(1.0, 10.0, 0.1, 0.5, 0.2, 0.5)
    assert load.busy_s() == pytest.approx(0.1 * 0.5 + 0.2 * 5.0 + 0.7 * 10.0)
    dice = random.Random(1)
    drawn = [load.draw_s(dice) for _ in range(REQUESTS)]
    assert statistics.fmean(drawn) == pytest.approx(load.busy_s(), rel=0.02)


def test_the_fewest_executors_are_found() -> None:
    load = Load(8.0, 1.0)
    count = executors_needed(load, 1.0, requests=REQUESTS)
    assert count >= 8.0 / MOST_BUSY
    assert p95_wait_s(load, Fleet(count), REQUESTS) <= 1.0
    assert p95_wait_s(load, Fleet(count - 1), REQUESTS) > 1.0


def test_a_slot_is_worth_an_executor_where_all_share_a_queue() -> None:
    load = Load(8.0, 1.0)
    one = waits_s(load, Fleet(12, orchestrators=0), REQUESTS)
    two = waits_s(load, Fleet(6, slots=2, orchestrators=0), REQUESTS)
    assert one == two
