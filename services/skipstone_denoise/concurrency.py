"""Why requests of a loaded model cannot run at once, where they cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from accelerate.hooks import AlignDevicesHook, CpuOffload, ModelHook, SequentialHook

from skipstone_denoise.attention import switched_for_all
from skipstone_denoise.guiders import guiders_of, hooks_models
from skipstone_denoise.model_folder import ModelUnusable

_GROUP_OFFLOADING = "group_offloading"


def check_concurrency(pipeline: Any, max_concurrent_requests: int) -> None:
    """Checks a placed pipeline against the number of requests that are to run at once.

    Raises:
        ModelUnusable: they would change each other's results; says by what.
    """
    if max_concurrent_requests == 1:
        return
    for reason in _reasons(pipeline):
        raise ModelUnusable(
            f"max_concurrent_requests is {max_concurrent_requests}, but must be 1: {reason}"
        )


def moves_weights(pipeline: Any) -> bool:
    """Whether weights are moved to the device when they compute, and away again."""
    return any(_is_moved(part) for model in _models(pipeline).values() for part in model.modules())


def _reasons(pipeline: Any) -> Iterator[str]:
    for name, part in _models(pipeline).items():
        for backend in sorted(switched_for_all(part)):
            yield (
                f"the {name} computes attention by {backend} (attention_backend, or the environment"
                " variable DIFFUSERS_ATTN_BACKEND), which torch switches on and off for all "
                "requests at once"
            )
    for name, guider in guiders_of(pipeline).items():
        if hooks_models(guider):
            yield (
                f"the {name}, a {type(guider).__name__}, hooks the transformer during a step, and "
                "requests share it"
            )
    if moves_weights(pipeline):
        yield (
            "weights are kept in main memory (offload, device_map), and a request moves away what "
            "another one computes with"
        )


def _models(pipeline: Any) -> Mapping[str, torch.nn.Module]:
    return {
        name: part
        for name, part in pipeline.components.items()
        if isinstance(part, torch.nn.Module)
    }


def _is_moved(module: torch.nn.Module) -> bool:
    registry: Any = getattr(module, "_diffusers_hook", None)
    return (registry is not None and _GROUP_OFFLOADING in registry.hooks) or any(
        isinstance(hook, CpuOffload) or (isinstance(hook, AlignDevicesHook) and hook.offload)
        for hook in _accelerate_hooks(module)
    )


def _accelerate_hooks(module: torch.nn.Module) -> Iterator[ModelHook]:
    hook: Any = getattr(module, "_hf_hook", None)
    if isinstance(hook, SequentialHook):
        yield from hook.hooks
    elif hook is not None:
        yield hook
