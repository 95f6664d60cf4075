"""One service, changed by several callers and killed in the middle of it, again and again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.e2e.faults.known_states import KnownStates
from tests.e2e.processes import START_TIMEOUT_S

from skipstone_shared.errors import Unavailable

ROUNDS = [
    # Took 210 s with ten other processes on two cores.
    pytest.param(12, marks=pytest.mark.timeout(900)),
    pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
]
"""How often a service is killed: in `make test`, and in `make test-faults`."""

_MAX_DELAY_S = 0.03
"""After the last of them: about two changes, so that the kill falls anywhere into one."""


class Callers:
    """Threads that change a service one change after another, until it is not there any more."""

    def __init__(self, changes: Sequence[Callable[[], None]]) -> None:
        """Starts a thread for each of the changes, which it makes over and over."""
        self._failures: list[Exception] = []
        self._threads = [threading.Thread(target=self._work, args=[c]) for c in changes]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Waits until every caller has found out that the service is gone."""
        for thread in self._threads:
            thread.join(START_TIMEOUT_S)
            assert not thread.is_alive(), "a caller waits for a dead service"
        if self._failures:
            raise ExceptionGroup("callers met errors that a kill does not explain", self._failures)

    def _work(self, change: Callable[[], None]) -> None:
        try:
            while True:
                change()
        except Unavailable:
            return
        except Exception as error:  # noqa: BLE001 - raised again by finish
            self._failures.append(error)


def wait_for_kill(states: KnownStates[Any], rng: random.Random, max_changes: int = 30) -> None:
    """Returns at a random point of a stream of changes, after so many of them or fewer."""
    wanted = states.acknowledged + rng.randrange(max_changes)
    states.wait_acknowledged(wanted, START_TIMEOUT_S)
    # Not a wait for something to happen: the point in time is what is random.
    time.sleep(rng.uniform(0.0, _MAX_DELAY_S))
