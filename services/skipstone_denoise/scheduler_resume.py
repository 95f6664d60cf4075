"""Which schedulers go on from a stored latent, and what else of their state that takes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from skipstone_client.torch_arrays import Array, to_array, to_tensor
from skipstone_shared.denoise_runs import SchedulerResume
from skipstone_shared.errors import DataCorrupt

PART_PREFIX = "scheduler."
"""Parts of a snapshot that hold solver history are named `scheduler.<attribute>[.<place>]`."""


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryFields:
    """The attributes in which a multistep solver remembers earlier steps.

    Attributes:
        lists: Lists of tensors, oldest first; places may be None.
        tensors: Single tensors; None before the first step.
        numbers: Integers; absent before the first step.
    """

    lists: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


# Measured with diffusers 0.42: an interrupted run equals an uninterrupted one bit for bit with
# these attributes restored, and differs without. By exact class: a subclass may remember more.
_HISTORY: Mapping[str, HistoryFields] = MappingProxyType(
    {
        "UniPCMultistepScheduler": HistoryFields(
            lists=("model_outputs", "timestep_list"),
            tensors=("last_sample",),
            numbers=("lower_order_nums", "this_order"),
        ),
        "DPMSolverMultistepScheduler": HistoryFields(
            lists=("model_outputs",), numbers=("lower_order_nums",)
        ),
        "DEISMultistepScheduler": HistoryFields(
            lists=("model_outputs",), numbers=("lower_order_nums",)
        ),
        "LMSDiscreteScheduler": HistoryFields(lists=("derivatives",)),
    }
)
_EXACT = frozenset(
    {
        "FlowMatchEulerDiscreteScheduler",
        "EulerDiscreteScheduler",
        "DDIMScheduler",
        "CogVideoXDDIMScheduler",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class SolverHistory:
    """What a multistep solver remembered when it entered a step.

    Attributes:
        arrays: Tensors by part name.
        state_json: List lengths and numbers as a JSON object.
    """

    arrays: Mapping[str, Array]
    state_json: str


def scheduler_resume(scheduler: Any) -> SchedulerResume:
    """Whether a scheduler can go on from a latent.

    Schedulers that draw noise while they step are not resumed: a donor's random numbers are not
    stored. Neither are those of second order, which evaluate the model twice a step.
    """
    name = type(scheduler).__name__
    draws_noise = scheduler.config.get("stochastic_sampling", False) or str(
        scheduler.config.get("algorithm_type", "")
    ).startswith("sde")
    if draws_noise or scheduler.order != 1:
        return SchedulerResume.UNSUPPORTED
    if name in _EXACT:
        return SchedulerResume.EXACT
    return SchedulerResume.WITH_HISTORY if name in _HISTORY else SchedulerResume.UNSUPPORTED


def capture_history(scheduler: Any) -> SolverHistory | None:
    """Copies what a multistep solver remembers; None for solvers that remember nothing."""
    fields = _HISTORY.get(type(scheduler).__name__)
    if fields is None:
        return None
    arrays: dict[str, Array] = {}
    state: dict[str, int] = {}
    for name in fields.lists:
        values = getattr(scheduler, name)
        state[name] = len(values)
        for place, value in enumerate(values):
            if value is not None:
                arrays[f"{PART_PREFIX}{name}.{place}"] = to_array(torch.as_tensor(value))
    for name in fields.tensors:
        value = getattr(scheduler, name)
        if value is not None:
            arrays[f"{PART_PREFIX}{name}"] = to_array(value)
    state.update({name: int(getattr(scheduler, name)) for name in fields.numbers})
    return SolverHistory(MappingProxyType(arrays), json.dumps(state, sort_keys=True))


def restore_history(scheduler: Any, history: SolverHistory, device: torch.device) -> None:
    """Gives a scheduler, whose timesteps are set, the memory of another one of its class.

    Raises:
        DataCorrupt: the history is not one of this class.
    """
    fields = _HISTORY[type(scheduler).__name__]
    state = _checked_state(fields, history)
    tensors = {name: to_tensor(array, device) for name, array in history.arrays.items()}
    for name in fields.lists:
        places = range(state[name])
        setattr(scheduler, name, [tensors.get(f"{PART_PREFIX}{name}.{place}") for place in places])
    for name in fields.tensors:
        setattr(scheduler, name, tensors.get(f"{PART_PREFIX}{name}"))
    for name in fields.numbers:
        setattr(scheduler, name, state[name])


def _checked_state(fields: HistoryFields, history: SolverHistory) -> dict[str, int]:
    try:
        state = json.loads(history.state_json)
    except json.JSONDecodeError as error:
        raise DataCorrupt(f"scheduler state is not JSON: {error}") from None
    wanted = {*fields.lists, *fields.numbers}
    if not isinstance(state, dict) or not wanted <= state.keys():
        raise DataCorrupt(f"scheduler state lacks one of {', '.join(sorted(wanted))}")
    if any(not isinstance(state[name], int) or not 0 <= state[name] <= 16 for name in wanted):
        raise DataCorrupt("scheduler state has a number outside 0 to 16")
    return state
