"""What may be found in a store after a kill: all that was acknowledged, and nothing half done."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

StateT = TypeVar("StateT")


class KnownStates(Generic[StateT]):
    """The states that each entry may be in: one, or two where a change was not acknowledged.

    None stands for "not there". Changes of different entries may come from different threads.
    """

    def __init__(self) -> None:
        self._possible: dict[str, tuple[StateT | None, ...]] = {}
        self._changed = threading.Condition()
        self._acknowledged = 0

    @property
    def acknowledged(self) -> int:
        """Changes that were acknowledged."""
        return self._acknowledged

    def state(self, entry_id: str) -> StateT | None:
        """The state of an entry none of whose changes is open."""
        (state,) = self._possible.get(entry_id, (None,))
        return state

    def present(self, prefix: str = "") -> list[str]:
        """Ids of the entries that are there for certain, oldest first."""
        return [
            entry_id
            for entry_id, states in list(self._possible.items())
            if entry_id.startswith(prefix) and None not in states
        ]

    @contextmanager
    def changing(self, changes: Mapping[str, StateT | None]) -> Iterator[None]:
        """Around the call that makes changes: when it raises, both states remain possible."""
        with self._changed:
            for entry_id, after in changes.items():
                self._possible[entry_id] = (self.state(entry_id), after)
        yield
        with self._changed:
            for entry_id, after in changes.items():
                self._possible[entry_id] = (after,)
            self._acknowledged += 1
            self._changed.notify_all()

    def wait_acknowledged(self, count: int, timeout_s: float) -> None:
        """Waits until so many changes were acknowledged."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self._acknowledged >= count, timeout_s)
        assert reached, f"{self._acknowledged} changes were acknowledged, not {count}"

    def settle(self, found: Mapping[str, StateT]) -> None:
        """Checks what a store has after a restart. From then on that is what is known."""
        strange = found.keys() - self._possible.keys()
        assert not strange, f"entries that were never written: {sorted(strange)}"
        for entry_id, states in self._possible.items():
            assert found.get(entry_id) in states, f"entry {entry_id}: one of {states} was expected"
        self._possible = {entry_id: (state,) for entry_id, state in found.items()}
