"""How long a lookup may take: each stage, and all of them together."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skipstone_orchestrator.breaker import Clock
from skipstone_orchestrator.guard import Guard
from skipstone_shared.errors import DeadlineExceeded

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class LookupLimits:
    """Deadlines of the lookup, in seconds: of each stage, and of all together."""

    embedding_s: float
    index_s: float
    store_s: float
    gate_s: float
    total_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Guards:
    """Guards of the services that a lookup asks."""

    embedding: Guard
    index: Guard
    store: Guard


class Budget:
    """Time that is left to all stages of one lookup together."""

    def __init__(self, total_s: float, clock: Clock) -> None:
        """Starts with all of it."""
        self._clock = clock
        self._end = clock() + total_s

    async def call(self, guard: Guard, make: Callable[[], Awaitable[T]], limit_s: float) -> T:
        """Makes a call within the stage's deadline and what is left.

        Raises:
            DeadlineExceeded: Nothing is left, or the call took too long.
        """
        return await guard.call(make, self.limit(limit_s, guard.service))

    def limit(self, limit_s: float, service: str) -> float:
        """The lower of a stage's deadline and what is left, in seconds.

        Raises:
            DeadlineExceeded: Nothing is left.
        """
        left = self._end - self._clock()
        if left <= 0:
            raise DeadlineExceeded(f"no time left to ask {service}")
        return min(limit_s, left)
