"""Which requests of the trace get pictures, and those pictures, within a time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quality.measures import Pictures
from quality.pictures import Run, Studio

_SEED: Final = 11


class Deadline:
    """Tells when no further picture may be begun."""

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the time.

        Args:
            minutes: From now on; None for no end.
            clock: Seconds.
        """
        self._clock = clock
        self._end = None if minutes is None else clock() + 60.0 * minutes

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and self._clock() >= self._end


def sampled(total: int, count: int) -> list[int]:
    """Indices of requests drawn at random; a larger sample begins with the smaller one."""
    order = list(range(total))
    random.Random(_SEED).shuffle(order)
    return order[:count]


def make_pictures(
    studio: Studio, runs: Sequence[Mapping[str, Run]], deadline: Deadline
) -> dict[str, Pictures]:
    """The pictures of every method for the first requests, as far as the time goes.

    Pictures that were made before cost nothing. A request counts only with all its pictures.

    Args:
        studio: Makes them.
        runs: Per request, in the order of the sample, method -> run.
        deadline: Of this call.

    Returns:
        Method -> its pictures; as many of each.
    """
    done = 0
    for of_request in runs:
        if not all(made_in_time(studio, run, deadline) for run in of_request.values()):
            break
        done += 1
    return {
        name: Pictures.of(
            [studio.picture(of_request[name]) for of_request in runs[:done]],
            [studio.pixels(of_request[name]) for of_request in runs[:done]],
        )
        for name in (runs[0] if done else ())
    }


def made_in_time(studio: Studio, run: Run, deadline: Deadline) -> bool:
    """Whether a run's picture is there, made now if there is time for it."""
    if deadline.over and not studio.has(run):
        return False
    studio.picture(run)
    return True
