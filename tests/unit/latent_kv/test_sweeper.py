"""The sweeping thread: goes on after an error, ends when told."""

from __future__ import annotations

import threading

import pytest

from skipstone_latent_kv.sweeper import Sweeper
from skipstone_shared.errors import ResourceExhausted


class FailsAtFirst:
    """A store whose first sweep fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.sweeps = 0
        self.swept_twice = threading.Event()

    def sweep(self) -> int:
        self.sweeps += 1
        if self.sweeps == 1:
            raise self.error
        self.swept_twice.set()
        return 1


@pytest.mark.parametrize("error", [ResourceExhausted("the disk is full"), ZeroDivisionError()])
def test_a_failed_sweep_is_followed_by_the_next_and_stop_ends_them(error: Exception) -> None:
    store = FailsAtFirst(error)
    sweeper = Sweeper(store, interval_s=0.001)
    assert store.swept_twice.wait(20)
    sweeper.stop()
    assert "sweeper" not in {thread.name for thread in threading.enumerate()}
