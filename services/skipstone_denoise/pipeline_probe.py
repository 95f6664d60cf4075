"""Finds out how a stock pipeline behaves by calling it and stopping it on the way."""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from skipstone_denoise.pipeline_call import CallHooks, call_pipeline, has_step_callback
from skipstone_denoise.scheduler_view import SchedulerView
from skipstone_denoise.turns import Turns
from skipstone_shared.latents import GuidanceMode

PLACEHOLDER_PROMPT = "a picture"

_EVERY_STEP = 1 << 30
"""More steps than any schedule has."""


class _Stop(Exception):
    """Ends a call that was made only to look."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """What a pipeline has prepared when its loop begins.

    Attributes:
        latent_shape: Shape of the latents in the loop.
        scheduler: The scheduler with its timesteps set.
        guided: Whether classifier-free guidance is on; None when the pipeline does not tell.
    """

    latent_shape: tuple[int, ...]
    scheduler: Any
    guided: bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class FirstStep:
    """What a pipeline did in its first step: how it was guided, and the latents that left it."""

    guidance_mode: GuidanceMode
    latents: torch.Tensor


class PlaceholderEncoder:
    """Stands in for the text encoder where the result is not looked at.

    It encodes one placeholder for every way of calling (guided or not, ...) and repeats it, so
    that a plan or a decoding costs no run of the text encoder.

    Attributes:
        quiet: Kinds of encoding that are kept and in whose calls, of words only, no other model
            was seen to run before the loop.
    """

    def __init__(self, encode_lock: AbstractContextManager[Any]) -> None:
        """Shares the lock with all who encode."""
        self.quiet: set[str] = set()
        self._encode_lock = encode_lock
        self._results: dict[str, Any] = {}
        self._results_lock = threading.Lock()

    def encode(self, encode_prompt: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns what `encode_prompt` returned for arguments of this kind."""
        kind = call_kind(encode_prompt, *args, **kwargs)
        if kind not in self._results:
            # Who finds a result never waits for those who encode, which may be until their turn.
            with self._results_lock, self._encode_lock:
                if kind not in self._results:
                    self._results[kind] = encode_prompt(*args, **kwargs)
        return self._results[kind]


class PipelineProbe:
    """Calls a pipeline to look; safe beside running requests, except for `first_step`."""

    def __init__(
        self,
        pipeline: Any,
        placeholder: PlaceholderEncoder,
        latents_lock: AbstractContextManager[Any],
        turns: Turns | None = None,
    ) -> None:
        """Holds what all requests share.

        Args:
            pipeline: The loaded pipeline.
            placeholder: Encodes in the place of the text encoder.
            latents_lock: Held while latents are prepared.
            turns: Of computations, where the pipeline's weights are moved; None where they stay.
        """
        self._pipeline = pipeline
        self._placeholder = placeholder
        self._latents_lock = latents_lock
        self._turns = turns

    def of(self, pipeline: Any) -> PipelineProbe:
        """A probe of another pipeline object around the same models."""
        return PipelineProbe(pipeline, self._placeholder, self._latents_lock, self._turns)

    def prepare(self, scheduler: Any, arguments: dict[str, Any]) -> Prepared:
        """Lets the pipeline check and prepare everything and stops it before its loop.

        Waits for the turn only where a model runs, and for no lock where none does.

        Raises:
            ValueError: the pipeline refuses the arguments.
        """
        hooks = _PrepareHooks(self._placeholder, self._turns)
        with hooks.turn, suppress(_Stop):
            if not self._placeholder.quiet or not all(map(_is_plain, arguments.values())):
                hooks.take_turn()
            call_pipeline(
                self._pipeline,
                SchedulerView(scheduler),
                hooks,
                arguments,
                latents_lock=self._latents_lock,
            )
        return Prepared(hooks.latent_shape, scheduler, hooks.guided)

    def first_step(self, scheduler: Any, arguments: dict[str, Any]) -> FirstStep:
        """Runs one step and watches the denoiser. Not beside running requests.

        Raises:
            ValueError: the pipeline refuses the arguments.
        """
        hooks = _FirstStepHooks()
        observer = None if has_step_callback(type(self._pipeline)) else hooks.step_done
        view = SchedulerView(scheduler, on_step=observer)
        with ExitStack() as watching:
            for module in denoisers(self._pipeline).values():
                handle = module.register_forward_pre_hook(hooks.watch, with_kwargs=True)
                watching.callback(handle.remove)
            with suppress(_Stop):
                call_pipeline(self._pipeline, view, hooks, arguments)
        if hooks.latents is None:
            raise ValueError("the pipeline ends without a step")
        return FirstStep(_mode(hooks.batches), hooks.latents)

    def decode(self, scheduler: Any, arguments: dict[str, Any]) -> None:
        """Decodes noise without a step. Not beside running requests.

        Raises:
            ValueError: the pipeline refuses the arguments.
        """
        call_pipeline(
            self._pipeline,
            SchedulerView(scheduler, skip_steps=_EVERY_STEP),
            _DecodeHooks(self._placeholder),
            {**arguments, "output_type": "pil"},
        )


def denoisers(pipeline: Any) -> Mapping[str, torch.nn.Module]:
    """The modules that predict noise, by component name."""
    return {
        name: part
        for name, part in pipeline.components.items()
        if isinstance(part, torch.nn.Module) and name.startswith(("transformer", "unet"))
    }


class _PrepareHooks(CallHooks):
    """Stops a call before its loop, and lets it run models in its turn only.

    That a call of words only runs no model but the text encoder is seen and not assumed: LTX-2,
    for one, has another work on the result.
    """

    latent_shape: tuple[int, ...] = ()
    guided: bool | None = None

    def __init__(self, placeholder: PlaceholderEncoder, turns: Turns | None) -> None:
        self._placeholder = placeholder
        self._turns = turns
        self.turn = ExitStack()
        self.computes = turns is None  # nobody looks where models stay in their places
        self._thread = threading.get_ident()
        self._kinds: set[str] = set()
        self._encoding = False
        self._ran_beside = False

    def take_turn(self) -> None:
        """Waits for the turn, unless the call has it, and looks from now on what runs."""
        if self._turns is not None and not self.computes:
            self.turn.enter_context(self._turns.turn())
            self.turn.callback(register_module_forward_pre_hook(self._runs).remove)
            self.computes = True

    def encode(self, encode_prompt: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        kind = call_kind(encode_prompt, *args, **kwargs)
        if kind not in self._placeholder.quiet:
            self.take_turn()
        self._kinds.add(kind)
        self._encoding = True
        try:
            return self._placeholder.encode(encode_prompt, *args, **kwargs)
        finally:
            self._encoding = False

    def start_latents(self, noise: torch.Tensor) -> torch.Tensor:
        self.latent_shape = tuple(noise.shape)
        return noise

    def loop_begins(self, pipeline: Any) -> None:
        # A property of most pipelines; it reads what the call has set on the request's own object.
        self.guided = getattr(pipeline, "do_classifier_free_guidance", None)
        if self._turns is not None and not self._ran_beside:
            self._placeholder.quiet.update(self._kinds)
        raise _Stop

    def _runs(self, _module: torch.nn.Module, _inputs: Any) -> None:
        # Torch tells of every thread; models of others in the process are none of this call's.
        if threading.get_ident() == self._thread and not self._encoding:
            self._ran_beside = True


class _DecodeHooks(CallHooks):
    def __init__(self, placeholder: PlaceholderEncoder) -> None:
        self._placeholder = placeholder

    def encode(self, encode_prompt: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._placeholder.encode(encode_prompt, *args, **kwargs)


class _FirstStepHooks(CallHooks):
    latents: torch.Tensor | None = None

    def __init__(self) -> None:
        self.batches: list[int] = []

    def watch(self, _module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Notes the batch size of one call of the denoiser."""
        inputs = args[0] if args else kwargs.get("hidden_states", kwargs.get("sample"))
        self.batches.append(0 if inputs is None else len(inputs))

    def step_done(self, latents: torch.Tensor) -> None:
        self.latents = latents
        raise _Stop


def _mode(batches: list[int]) -> GuidanceMode:
    if max(batches, default=0) > 1:
        return GuidanceMode.BATCHED
    return GuidanceMode.SEPARATE if len(batches) > 1 else GuidanceMode.NONE


def call_kind(encode_prompt: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What of the arguments of an `encode_prompt` decides the form of its result."""
    arguments = inspect.signature(encode_prompt).bind(*args, **kwargs).arguments
    return repr([(name, _kind(value)) for name, value in arguments.items()])


def _is_plain(argument: Any) -> bool:
    """Whether an argument of a pipeline is nothing that a model would look at, as a picture is."""
    return argument is None or isinstance(argument, str | bool | int | float | torch.Generator)


def _kind(value: Any) -> Any:
    """What of an argument decides the form of the result: not the words of a prompt."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return [_kind(item) for item in value]
    if value is None or isinstance(value, bool | int | float | torch.dtype | torch.device):
        return repr(value)
    return type(value).__name__
