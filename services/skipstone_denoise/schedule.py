"""The noise schedule of a run, read from a scheduler whose timesteps are set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch

from skipstone_shared.errors import InvalidArgument
from skipstone_shared.latents import canonical_hash

# diffusers puts this in place of an alpha of 0 (zero terminal signal) before it divides by it.
_SMALLEST_ALPHA = 2.0**-24


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """Noise levels of a run.

    Attributes:
        sigmas: Noise level entering each step and that of the clean latent (0): for flow matching
            the share of noise, 0 to 1; else noise over signal.
        is_flow: Whether latents are `(1 - sigma) * clean + sigma * noise`.
        prediction_type: What the model predicts: `flow`, `epsilon`, `v_prediction` or `sample`.
        sigmas_hash: Hash of the scheduler's whole list.
        config_hash: Hash of the scheduler's settings.
        scheduler_class: Its class name.
    """

    sigmas: tuple[float, ...]
    is_flow: bool
    prediction_type: str
    sigmas_hash: str
    config_hash: str
    scheduler_class: str


def read_schedule(scheduler: Any, num_inference_steps: int) -> Schedule:
    """Reads the schedule of a scheduler after `set_timesteps`.

    Raises:
        InvalidArgument: the scheduler makes another number of steps than was asked for.
    """
    flow = _is_flow(scheduler)
    timesteps = [float(t) for t in scheduler.timesteps]
    raw_sigmas = [float(s) for s in getattr(scheduler, "sigmas", ())]
    sigmas = _noise_levels(scheduler, timesteps, raw_sigmas, num_inference_steps)
    if len(sigmas) != num_inference_steps + 1:
        raise InvalidArgument(
            f"{type(scheduler).__name__} makes {len(sigmas) - 1} steps of {num_inference_steps}",
            field="params.num_inference_steps",
        )
    return Schedule(
        sigmas=tuple(sigmas),
        is_flow=flow,
        prediction_type="flow" if flow else str(scheduler.config.get("prediction_type", "epsilon")),
        sigmas_hash=canonical_hash(_plain({"timesteps": timesteps, "sigmas": raw_sigmas})),
        config_hash=config_hash(scheduler.config),
        scheduler_class=type(scheduler).__name__,
    )


def config_hash(config: Mapping[str, Any]) -> str:
    """Hash of the settings of a diffusers object; private entries do not change numbers."""
    return canonical_hash(
        {key: _plain(value) for key, value in config.items() if not key.startswith("_")}
    )


def renoised(
    scheduler: Any, schedule: Schedule, clean: torch.Tensor, noise: torch.Tensor, step_index: int
) -> torch.Tensor:
    """A clean latent with noise of the level that enters a step.

    Flow matching interpolates (Lipman et al., 2022, arXiv 2210.02747, equation 22); others use the
    scheduler's own forward process.

    Args:
        scheduler: A scheduler whose timesteps are set and that no run uses.
        schedule: Its schedule.
        clean: Clean latents in the layout of the loop.
        noise: Standard normal noise, same shape.
        step_index: The step to enter, 0 to num_inference_steps - 1.
    """
    if schedule.is_flow:
        sigma = schedule.sigmas[step_index]
        mixed = (1.0 - sigma) * clean.float() + sigma * noise.float()
        return mixed.to(clean.dtype)
    timesteps = scheduler.timesteps[step_index : step_index + 1]
    noised: torch.Tensor = scheduler.add_noise(clean, noise.to(clean.dtype), timesteps)
    return noised


def can_renoise(scheduler: Any) -> bool:
    """Whether `renoised` knows the forward process of a scheduler."""
    return _is_flow(scheduler) or hasattr(scheduler, "add_noise")


def _is_flow(scheduler: Any) -> bool:
    config = scheduler.config
    return bool(
        type(scheduler).__name__.startswith("FlowMatch")
        or config.get("use_flow_sigmas", False)
        or config.get("prediction_type") == "flow_prediction"
    )


def _noise_levels(
    scheduler: Any, timesteps: list[float], raw_sigmas: list[float], num_inference_steps: int
) -> list[float]:
    if raw_sigmas:
        # Second-order schedulers list each inner noise level twice.
        exact = len(raw_sigmas) == num_inference_steps + 1
        return [*(raw_sigmas if exact else _without_repeats(raw_sigmas))[:-1], 0.0]
    alphas = scheduler.alphas_cumprod
    levels = []
    for timestep in _without_repeats(timesteps):
        alpha = max(float(alphas[int(timestep)]), _SMALLEST_ALPHA)
        levels.append(math.sqrt((1.0 - alpha) / alpha))
    return [*levels, 0.0]


def _without_repeats(values: list[float]) -> list[float]:
    return [value for place, value in enumerate(values) if place == 0 or value != values[place - 1]]


def _plain(value: Any) -> Any:
    """The value as JSON has it; what JSON has not (infinity, arrays, classes) as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else repr(value)
