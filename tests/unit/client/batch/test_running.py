"""Rows in threads: how many at a time, what is tried again, and what ends them all."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from skipstone_client.batch.rows import Row
from skipstone_client.batch.running import BatchStopped, Failed, Made, run_rows
from skipstone_shared.errors import InvalidArgument, QueueFull, Unauthenticated, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.orchestration import CacheOptions

ROWS = [Row(n, str(n), "", GenerationParams(str(n)), CacheOptions()) for n in range(1, 9)]


def run(make, rows=ROWS, concurrency=3, retry_for_s=0.0, cancel=lambda: None):
    return run_rows(rows, make, concurrency=concurrency, retry_for_s=retry_for_s, cancel=cancel)


def test_as_many_rows_run_at_a_time_as_were_asked_for():
    together = threading.Barrier(4, timeout=30)

    def make(row):
        together.wait()  # breaks unless exactly four run at once
        return row.number

    made = [ended.made for ended in run(make, concurrency=4) if isinstance(ended, Made)]
    assert sorted(made) == [row.number for row in ROWS]


def test_a_bad_row_fails_and_the_others_go_on():
    def make(row):
        if row.number == 3:
            raise InvalidArgument("no", field="prompt")
        return row.number

    ended = list(run(make))
    (failed,) = [e for e in ended if isinstance(e, Failed)]
    assert failed.row.number == 3
    assert len(ended) == len(ROWS)


def test_a_full_queue_is_asked_again():
    refused = {row.number for row in ROWS}

    def make(row):
        if row.number in refused:
            refused.discard(row.number)
            raise QueueFull("full")
        return row.number

    assert all(isinstance(e, Made) for e in run(make, rows=ROWS[:2], retry_for_s=60.0))
    assert len(refused) == len(ROWS) - 2


@pytest.mark.parametrize("error", [Unavailable("gone"), Unauthenticated("who")])
def test_what_every_row_would_meet_ends_the_batch(error):
    ran = []

    def make(row):
        ran.append(row.number)
        raise error

    with pytest.raises(BatchStopped) as stopped:
        list(run(make, concurrency=1))
    assert stopped.value.error is error
    assert ran == [1]


def test_a_defect_is_raised_and_not_counted_as_a_failed_row():
    def make(row):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        list(run(make))


def test_closing_ends_what_runs_and_begins_nothing_more():
    gone, begun = threading.Event(), []

    def make(row):
        begun.append(row.number)
        if row.number > 1:
            assert gone.wait(30)  # as a call that is cancelled
        return row.number

    with closing(run(make, concurrency=2, cancel=gone.set)) as ending:
        next(ending)
    assert gone.is_set()
    assert len(begun) <= 3
