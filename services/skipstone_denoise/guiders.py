"""Parts that combine guided predictions: what they keep, and what they do to the model.

HunyuanVideo 1.5 has one, under the name `guider`. diffusers makes them exchangeable, so that any of
its guiders may come with a model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from diffusers.guiders.guider_utils import BaseGuidance
from diffusers.hooks import LayerSkipConfig

from skipstone_denoise.model_folder import ModelUnusable

_TRIED_STEPS = 100
"""Guiders tell in shares of the steps where they begin and end."""


def guiders_of(pipeline: Any) -> Mapping[str, BaseGuidance]:
    """The guiders of a pipeline by component name; most have none."""
    return {
        name: part for name, part in pipeline.components.items() if isinstance(part, BaseGuidance)
    }


def own_guiders(pipeline: Any, scheduler: Any) -> dict[str, BaseGuidance]:
    """Copies for one request, which count the steps of the whole schedule.

    Shared, they would mix up the requests that run at once; and in a resumed run they must count
    the steps that are not run, since they may guide only some of them.

    Args:
        pipeline: The loaded pipeline; it is not changed.
        scheduler: The `SchedulerView` of the request.
    """
    return {name: _counting_from(part, scheduler) for name, part in guiders_of(pipeline).items()}


def check_guiders(pipeline: Any) -> None:
    """Checks that a guider can do what it is set to, and does the same each time.

    Raises:
        ModelUnusable: it cannot, or no request could be repeated.
    """
    for name, guider in guiders_of(pipeline).items():
        who = f"the {name} of {type(pipeline).__name__}, a {type(guider).__name__},"
        if draws_at_random(guider):
            raise ModelUnusable(
                f"{who} drops a share of a layer at random, by numbers that no seed decides; set "
                "its dropout to 1"
            )
        if hooks_models(guider):
            try:
                _try_hooks(pipeline.transformer, guider)
            except Exception as error:
                # It would fail in the middle of a request: the first step often has no such hook.
                raise ModelUnusable(f"{who} cannot hook the transformer: {error}") from error


def _try_hooks(transformer: torch.nn.Module, guider: BaseGuidance) -> None:
    """Hooks a transformer as a run does, which runs nothing."""
    mine = copy.deepcopy(guider)
    for step in range(_TRIED_STEPS):
        mine.set_state(step, _TRIED_STEPS, None)
        for _ in range(mine.num_conditions):
            try:
                mine.prepare_models(transformer)
            finally:
                mine.cleanup_models(transformer)


def unhook(pipeline: Any, own: Mapping[str, BaseGuidance]) -> None:
    """Takes off the shared transformer what a call that failed has left hooked.

    Args:
        pipeline: The loaded pipeline.
        own: The guiders of the call, as it left them.
    """
    for guider in own.values():
        # A call that came to no step, as a plan's, must not take off what a run beside it needs.
        if hooks_models(guider) and guider._count_prepared:
            guider.cleanup_models(pipeline.transformer)


def hooks_models(guider: BaseGuidance) -> bool:
    """Whether a guider hooks the transformer during a step, for a prediction without some layers.

    Requests share the transformer, so such a guider wants it alone.
    """
    return type(guider).prepare_models is not BaseGuidance.prepare_models


def remembers_steps(guider: BaseGuidance) -> bool:
    """Whether what a guider does in a step depends on steps before, of which no snapshot tells."""
    momentum = getattr(guider, "adaptive_projected_guidance_momentum", None)
    return momentum is not None


def draws_at_random(guider: BaseGuidance) -> bool:
    """Whether a guider drops at random, out of numbers that no seed of a request decides."""
    configs = [
        config
        for value in vars(guider).values()
        for config in (value if isinstance(value, list) else [value])
        if isinstance(config, LayerSkipConfig)
    ]
    return any(0.0 < config.dropout < 1.0 for config in configs)


def _counting_from(guider: BaseGuidance, scheduler: Any) -> BaseGuidance:
    mine = copy.deepcopy(guider)
    set_state = mine.set_state

    def set_absolute_state(step: int, num_inference_steps: int, timestep: Any) -> None:
        set_state(scheduler.skipped_steps + step, scheduler.loop_length, timestep)

    mine.__dict__["set_state"] = set_absolute_state
    return mine
