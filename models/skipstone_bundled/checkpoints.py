"""Training state on disk: written whole or not at all, so a killed run resumes."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import torch


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Writes a training state; a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Reads a training state, or returns None where there is none yet.

    Only tensors and plain values are read (`weights_only`), never code.
    """
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


class TimeBudget:
    """Training time spent and left, over all restarts of a run.

    The learning rate follows the time, not the number of updates: a run then always ends with a
    finished decay, however fast the machine is and whatever else runs on it.
    """

    def __init__(self, minutes: float, spent_seconds: float = 0.0) -> None:
        """Starts the clock.

        Args:
            minutes: Budget of the whole run, restarts included.
            spent_seconds: What earlier starts of the same run have used.
        """
        self._budget = minutes * 60.0
        self._spent = spent_seconds
        self._started = time.monotonic()

    @property
    def spent_seconds(self) -> float:
        """Seconds used so far, earlier starts included."""
        return self._spent + time.monotonic() - self._started

    @property
    def progress(self) -> float:
        """Share of the budget used, 0 to 1."""
        return min(1.0, self.spent_seconds / self._budget)


def learning_rate_factor(progress: float, update: int, warmup_updates: int) -> float:
    """Linear warm-up by updates, then cosine decay to 2 % by time."""
    warmup = min(1.0, (update + 1) / warmup_updates)
    return warmup * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * progress)))
