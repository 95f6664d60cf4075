"""One call of a stock diffusers pipeline, with hooks at the points that every pipeline passes.

Nothing of a pipeline's source is patched: the hooks are attributes of a shallow copy that belongs
to the request, around the same modules.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import torch

from skipstone_denoise.guiders import guiders_of, own_guiders, unhook
from skipstone_denoise.model_families import RATE_PARAMETERS
from skipstone_denoise.model_profile import ModelProfile
from skipstone_shared.generation import GenerationParams

HOOKED_METHODS = ("encode_prompt", "prepare_latents", "progress_bar")
"""Methods a pipeline must have to be served."""


class CallHooks:
    """What happens during a call, all in the thread of the call. By default nothing special.

    Attributes:
        computes: Whether the call runs models, so that what others compute is in its way.
    """

    computes: bool = True

    def encode(self, encode_prompt: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Encodes a prompt by calling the pipeline's own `encode_prompt`, or stands in for it."""
        return encode_prompt(*args, **kwargs)

    def start_latents(self, noise: torch.Tensor) -> torch.Tensor:
        """The latents to begin with, given the initial noise in the layout of the loop."""
        return noise

    def loop_begins(self, pipeline: Any) -> None:
        """All is prepared; the denoising loop is next. `pipeline` is the request's own object."""

    def step_done(self, latents: torch.Tensor) -> None:
        """A step is done; `latents` leave it."""

    def loop_ended(self) -> None:
        """The loop is over; decoding is next."""


def call_arguments(
    params: GenerationParams,
    profile: ModelProfile,
    generator: torch.Generator,
    references: dict[str, Any],
) -> dict[str, Any]:
    """The arguments with which a pipeline is called, as far as it takes them.

    Args:
        params: Parameters with defaults filled in.
        profile: The model.
        generator: Source of the initial noise.
        references: Reference inputs by call parameter.
    """
    arguments: dict[str, Any] = {
        "num_inference_steps": params.num_inference_steps,
        "height": params.height,
        "width": params.width,
        "guidance_scale": params.guidance_scale,
        # Pipelines map other sizes than those they were trained on to these if left alone.
        "use_resolution_binning": False,
        # Otherwise what is encoded would depend on which libraries are installed.
        "clean_caption": False,
        **references,
    }
    if profile.is_video:
        arguments |= {"num_frames": params.num_frames}
        arguments |= dict.fromkeys(RATE_PARAMETERS, profile.frame_rate)
    if params.negative_prompt:
        arguments["negative_prompt"] = params.negative_prompt
    if profile.second_guidance and params.guidance_scale_2 is not None:
        arguments[profile.second_guidance] = params.guidance_scale_2
    taken = {key: value for key, value in arguments.items() if key in profile.call_parameters}
    return {**taken, "prompt": params.prompt, "generator": generator, "return_dict": False}


def call_pipeline(
    pipeline: Any,
    scheduler: Any,
    hooks: CallHooks,
    arguments: dict[str, Any],
    *,
    latents_lock: AbstractContextManager[Any] | None = None,
) -> Any:
    """Calls a pipeline once and returns its first output. However it ends, nothing stays behind.

    Args:
        pipeline: The loaded pipeline; it is not changed.
        scheduler: A `SchedulerView` of this call alone. When the pipeline has no
            `callback_on_step_end`, its observer must be `hooks.step_done`.
        hooks: What happens on the way.
        arguments: From `call_arguments`.
        latents_lock: Held while latents are prepared if the call computes, since image-to-video
            pipelines encode there and some autoencoders keep state between frames on themselves.
    """
    mine = request_pipeline(pipeline, scheduler, hooks, latents_lock or nullcontext())
    if has_step_callback(type(mine)):

        def on_step_end(_pipe: Any, _step: int, _t: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            hooks.step_done(tensors["latents"])
            return tensors

        arguments = {
            **arguments,
            "callback_on_step_end": on_step_end,
            "callback_on_step_end_tensor_inputs": ["latents"],
        }
    try:
        return mine(**arguments)[0]
    except BaseException:
        _tidy_up(pipeline, mine, moves_back=hooks.computes)
        raise


def request_pipeline(
    pipeline: Any, scheduler: Any, hooks: CallHooks, latents_lock: AbstractContextManager[Any]
) -> Any:
    """A pipeline object of its own around the same modules, with the hooks attached."""
    mine = copy.copy(pipeline)
    encode_prompt, prepare_latents = mine.encode_prompt, mine.prepare_latents

    def encode(*args: Any, **kwargs: Any) -> Any:
        return hooks.encode(encode_prompt, *args, **kwargs)

    def prepare(*args: Any, **kwargs: Any) -> Any:
        with latents_lock if hooks.computes else nullcontext():
            prepared = prepare_latents(*args, **kwargs)
        # Some pipelines return position ids or conditions beside the latents.
        if isinstance(prepared, tuple):
            return (hooks.start_latents(prepared[0]), *prepared[1:])
        return hooks.start_latents(prepared)

    def progress_bar(iterable: Iterable[Any] | None = None, total: int | None = None) -> _LoopBar:
        hooks.loop_begins(mine)
        return _LoopBar(() if iterable is None else iterable, hooks.loop_ended)

    mine.__dict__.update(own_guiders(pipeline, scheduler))
    # Not by plain assignment: a pipeline would enter the wrapper's class in its configuration.
    mine.__dict__.update(
        scheduler=scheduler,
        encode_prompt=encode,
        prepare_latents=prepare,
        progress_bar=progress_bar,
    )
    return mine


def _tidy_up(pipeline: Any, mine: Any, *, moves_back: bool) -> None:
    """Leaves the shared modules as a call that succeeds leaves them."""
    unhook(pipeline, {name: getattr(mine, name) for name in guiders_of(pipeline)})
    if moves_back and getattr(pipeline, "_all_hooks", None):
        # Offloaded models go back to main memory, as stock pipelines see to at the end of a call.
        pipeline.maybe_free_model_hooks()


def has_step_callback(pipeline_class: type) -> bool:
    """Whether a pipeline hands out the latents after each step."""
    names = inspect.signature(pipeline_class.__call__).parameters
    return "callback_on_step_end" in names and "callback_on_step_end_tensor_inputs" in names


class _LoopBar:
    """Stands in for the pipeline's progress bar, which spans exactly the denoising loop."""

    def __init__(self, iterable: Iterable[Any], on_end: Callable[[], None]) -> None:
        self._iterable = iterable
        self._on_end = on_end

    def __enter__(self) -> _LoopBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._on_end()

    def __iter__(self) -> Iterator[Any]:
        yield from self._iterable
        self._on_end()

    def update(self, count: int = 1) -> None:
        """Steps are counted by the hooks."""

    def set_postfix(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is shown."""
