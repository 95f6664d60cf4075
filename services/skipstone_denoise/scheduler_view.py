"""A scheduler as one request's pipeline sees it: without the steps that are skipped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from skipstone_denoise.scheduler_resume import SolverHistory, restore_history

StepObserver = Callable[[torch.Tensor], None]


class SchedulerView:
    """Wraps a scheduler of one request so that a stock pipeline begins at step `skip_steps`.

    The pipeline sees `timesteps[skip_steps:]` (and the sigmas from there); the scheduler itself
    keeps the full list, because multistep solvers choose their order by the place in it. Truncating
    the scheduler's own list breaks UniPC, for one. All else passes through to the scheduler.
    """

    _scheduler: Any
    _skip_steps: int
    _shown_from: int
    _history: SolverHistory | None
    _unit_noise: bool

    def __init__(
        self,
        scheduler: Any,
        *,
        skip_steps: int = 0,
        history: SolverHistory | None = None,
        unit_noise: bool = False,
        on_step: StepObserver | None = None,
    ) -> None:
        """Wraps a scheduler that no other request uses.

        Args:
            scheduler: The scheduler.
            skip_steps: Steps not shown.
            history: Memory to give to a multistep solver.
            unit_noise: Show an initial noise scale of 1, so that a pipeline leaves its initial
                noise as it was drawn.
            on_step: Called with the latents that leave each step.
        """
        own = self.__dict__  # __setattr__ writes to the scheduler
        own["_scheduler"] = scheduler
        own["_skip_steps"] = skip_steps
        own["_shown_from"] = 0
        own["_history"] = history
        own["_unit_noise"] = unit_noise
        # Pipelines look at the signatures of these to see what a scheduler takes.
        own["set_timesteps"] = _same_signature(scheduler.set_timesteps, self._set_timesteps)
        if on_step is not None:
            own["step"] = _same_signature(scheduler.step, _observed(scheduler.step, on_step))
        if hasattr(scheduler, "set_begin_index"):
            own["set_begin_index"] = self._set_begin_index

    # isinstance only reads it, so read-only is enough.
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The scheduler's own class, for pipelines that ask with isinstance."""
        return type(self.__dict__["_scheduler"])

    @property
    def skipped_steps(self) -> int:
        """Steps not shown."""
        return self._skip_steps

    @property
    def loop_length(self) -> int:
        """Steps of the whole schedule, those not shown among them."""
        return len(self._scheduler.timesteps)

    @property
    def timesteps(self) -> torch.Tensor:
        """Timesteps of the steps that are run."""
        timesteps: torch.Tensor = self._scheduler.timesteps[self._shown_from :]
        return timesteps

    @property
    def sigmas(self) -> torch.Tensor:
        """Sigmas of the steps that are run; pipelines index them by their own step count."""
        sigmas: torch.Tensor = self._scheduler.sigmas[self._shown_from :]
        return sigmas

    @property
    def init_noise_sigma(self) -> Any:
        """Scale a pipeline applies to its initial noise."""
        return 1.0 if self._unit_noise else self._scheduler.init_noise_sigma

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_scheduler"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._scheduler, name, value)

    def _set_timesteps(self, *args: Any, **kwargs: Any) -> None:
        self._scheduler.set_timesteps(*args, **kwargs)
        self.__dict__["_shown_from"] = self._skip_steps
        if self._skip_steps and hasattr(self._scheduler, "set_begin_index"):
            # Not every pipeline sets it, and a search for the timestep finds the wrong place in a
            # list with equal ones.
            self._scheduler.set_begin_index(self._skip_steps)
        if self._history is not None:
            restore_history(self._scheduler, self._history, self._scheduler.timesteps.device)

    def _set_begin_index(self, begin_index: int = 0) -> None:
        self._scheduler.set_begin_index(begin_index + self._skip_steps)


def _observed(step: Callable[..., Any], on_step: StepObserver) -> Callable[..., Any]:
    def observed(*args: Any, **kwargs: Any) -> Any:
        output = step(*args, **kwargs)
        on_step(output[0])
        return output

    return observed


def _same_signature(method: Callable[..., Any], stand_in: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return stand_in(*args, **kwargs)

    return call
