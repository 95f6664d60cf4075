"""The scheduler a pipeline sees: shorter than the real one, and otherwise the same."""

from __future__ import annotations

import inspect

import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from skipstone_denoise.scheduler_resume import SolverHistory, capture_history, restore_history
from skipstone_denoise.scheduler_view import SchedulerView
from skipstone_shared.errors import DataCorrupt


def test_only_the_steps_that_run_are_shown_and_the_scheduler_keeps_all() -> None:
    scheduler = UniPCMultistepScheduler()
    view = SchedulerView(scheduler, skip_steps=3)
    view.set_timesteps(10)
    assert torch.equal(view.timesteps, scheduler.timesteps[3:])
    assert torch.equal(view.sigmas, scheduler.sigmas[3:])
    assert (len(scheduler.timesteps), scheduler.begin_index) == (10, 3)
    view.set_begin_index(0)
    assert scheduler.begin_index == 3


def test_a_pipeline_cannot_tell_the_view_from_the_scheduler() -> None:
    """Pipelines ask for the class and for the signatures of methods."""
    scheduler = FlowMatchEulerDiscreteScheduler()
    view = SchedulerView(scheduler, on_step=lambda _: None)
    assert isinstance(view, FlowMatchEulerDiscreteScheduler)
    assert inspect.signature(view.set_timesteps) == inspect.signature(scheduler.set_timesteps)
    assert inspect.signature(view.step) == inspect.signature(scheduler.step)
    assert not hasattr(SchedulerView(DDIMScheduler()), "set_begin_index")
    assert not hasattr(SchedulerView(DDIMScheduler()), "sigmas")
    view.shift_seen = 4
    assert scheduler.shift_seen == 4


def test_the_initial_noise_scale_can_be_hidden() -> None:
    scheduler = UniPCMultistepScheduler()
    scheduler.init_noise_sigma = 14.6
    assert SchedulerView(scheduler).init_noise_sigma == 14.6
    assert SchedulerView(scheduler, unit_noise=True).init_noise_sigma == 1.0


def test_history_travels_from_one_scheduler_to_another() -> None:
    first, second = UniPCMultistepScheduler(), UniPCMultistepScheduler()
    for scheduler in (first, second):
        scheduler.set_timesteps(6)
    sample = torch.randn(1, 2, 2, 2, generator=torch.Generator().manual_seed(0))
    for timestep in first.timesteps[:3]:
        sample = first.step(sample * 0.1, timestep, sample, return_dict=False)[0]
    history = capture_history(first)
    assert history is not None
    restore_history(second, history, torch.device("cpu"))
    second.set_begin_index(3)
    rest = [s.step(sample, first.timesteps[3], sample)[0] for s in (first, second)]
    assert torch.equal(*rest)


@pytest.mark.parametrize(
    "state", ["", "[]", "{}", '{"model_outputs": 2, "timestep_list": 2, "lower_order_nums": "2"}']
)
def test_a_history_that_is_not_one_is_corrupt(state: str) -> None:
    scheduler = UniPCMultistepScheduler()
    scheduler.set_timesteps(6)
    with pytest.raises(DataCorrupt):
        restore_history(scheduler, SolverHistory({}, state), torch.device("cpu"))
