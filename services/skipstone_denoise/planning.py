"""What a run with given parameters would be, found without running the model."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections import OrderedDict
from typing import Any

import torch

from skipstone_denoise.adapters import ActiveAdapters
from skipstone_denoise.block_caching import BlockCaching, RunBlockCachePlan
from skipstone_denoise.fingerprint import ModelFingerprint, fingerprint_run, reference_hash
from skipstone_denoise.model_profile import ModelProfile
from skipstone_denoise.parameters import filled_parameters
from skipstone_denoise.pipeline_call import call_arguments
from skipstone_denoise.pipeline_probe import PLACEHOLDER_PROMPT, PipelineProbe, Prepared
from skipstone_denoise.references import reference_arguments
from skipstone_denoise.schedule import Schedule, can_renoise, read_schedule
from skipstone_denoise.scheduler_resume import scheduler_resume
from skipstone_shared.denoise_runs import GenerationPlan, ResumeKind, SchedulerResume
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import (
    AdapterFingerprint,
    canonical_hash,
    compatibility_key,
)

_MAX_KEPT_PLANS = 128
_BLOCK_CACHE = "params.block_cache"


@dataclasses.dataclass(frozen=True, slots=True)
class RunPlan:
    """A plan with what its run needs.

    Attributes:
        plan: What is told to callers.
        schedule: Noise levels.
        scheduler: A scheduler with the timesteps of this plan set. Many runs share it: copy it.
        block_cache: Block caching in the run; None when it is off.
    """

    plan: GenerationPlan
    schedule: Schedule
    scheduler: Any
    block_cache: RunBlockCachePlan | None = None

    @property
    def loop_length(self) -> int:
        """Turns of the denoising loop: more than the steps for schedulers of second order."""
        return len(self.scheduler.timesteps)

    def copied_scheduler(self) -> Any:
        """A copy of the scheduler, since even looking up its noise levels changes some."""
        return copy.deepcopy(self.scheduler)

    @property
    def num_inference_steps(self) -> int:
        """Steps of the schedule."""
        return self.plan.fingerprint.num_inference_steps


class Planner:
    """Makes plans and keeps them. Threads may share it."""

    def __init__(
        self,
        pipeline: Any,
        profile: ModelProfile,
        model_fingerprint: ModelFingerprint,
        probe: PipelineProbe,
        block_caching: BlockCaching,
        instance_id: str,
    ) -> None:
        """Creates the planner of a loaded model.

        Args:
            pipeline: The model.
            profile: Its profile.
            model_fingerprint: Its hashes.
            probe: Looks at what the pipeline prepares.
            block_caching: How its blocks are cached.
            instance_id: Told with every plan, beside what adapters are applied.
        """
        self._pipeline = pipeline
        self._adapters = ActiveAdapters(pipeline)
        self._profile = profile
        self._model_fingerprint = model_fingerprint
        self._probe = probe
        self._block_caching = block_caching
        self._instance_id = instance_id
        self._plans: OrderedDict[_PlanKey, RunPlan] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, params: GenerationParams) -> RunPlan:
        """Checks parameters and plans their run.

        Raises:
            InvalidArgument: a parameter is out of range.
        """
        filled = filled_parameters(params, self._profile)
        adapters = self._adapters.fingerprints()
        key = (*_plan_key(filled), adapters)
        with self._lock:
            kept = self._plans.get(key)
            if kept is not None:
                self._plans.move_to_end(key)
        if kept is None:
            try:
                kept = self._make(filled, adapters)
            except InvalidArgument as error:
                if params.block_cache is None and (error.field or "").startswith(_BLOCK_CACHE):
                    raise _of_default(error) from None
                raise
            with self._lock:
                self._plans[key] = kept
                if len(self._plans) > _MAX_KEPT_PLANS:
                    self._plans.popitem(last=False)
        return dataclasses.replace(kept, plan=dataclasses.replace(kept.plan, params=filled))

    def new_scheduler(self, shift: float | None) -> Any:
        """A scheduler for one run, its timesteps not set."""
        scheduler = self._pipeline.scheduler
        if shift is None:
            return copy.deepcopy(scheduler)
        return type(scheduler).from_config(scheduler.config, **{self._profile.shift_key: shift})

    def instance_id(self) -> str:
        """Changes with every start and with every change of the adapters that are applied."""
        return self._instance_id_with(self._adapters.fingerprints())

    def adapter_names(self) -> tuple[str, ...]:
        """Names of the adapters that are loaded."""
        return self._adapters.names()

    def _instance_id_with(self, adapters: tuple[AdapterFingerprint, ...]) -> str:
        if not adapters:
            return self._instance_id
        applied = [dataclasses.asdict(adapter) for adapter in adapters]
        return f"{self._instance_id}-{canonical_hash(applied)[:8]}"

    def _make(self, params: GenerationParams, adapters: tuple[AdapterFingerprint, ...]) -> RunPlan:
        prepared = self._prepare(params)
        steps = params.num_inference_steps or 0
        schedule = read_schedule(prepared.scheduler, steps)
        guidance_mode = self._profile.guidance_mode(params, prepared.guided)
        block_cache = self._block_caching.plan(
            params.block_cache, prepared.scheduler, guidance_mode
        )
        fingerprint = fingerprint_run(
            self._model_fingerprint,
            self._profile,
            params,
            schedule,
            prepared.latent_shape,
            guidance_mode,
            block_cache.canonical if block_cache is not None else "",
            adapters,
        )
        plan = GenerationPlan(
            params=_without_inputs(params),
            fingerprint=fingerprint,
            compatibility_key=compatibility_key(fingerprint),
            sigmas=schedule.sigmas,
            resume_kinds=resume_kinds(self._pipeline.scheduler, self._profile),
            instance_id=self._instance_id_with(adapters),
        )
        return RunPlan(plan, schedule, prepared.scheduler, block_cache)

    def _prepare(self, params: GenerationParams) -> Prepared:
        arguments = call_arguments(
            dataclasses.replace(params, prompt=PLACEHOLDER_PROMPT),
            self._profile,
            torch.Generator("cpu").manual_seed(0),
            reference_arguments(params.reference_inputs, self._profile),
        )
        try:
            return self._probe.prepare(self.new_scheduler(params.shift), arguments)
        except ValueError as error:
            raise InvalidArgument(
                f"params: the model refuses them: {error}", field="params"
            ) from None


_PlanKey = tuple[GenerationParams, tuple[str, ...], tuple[AdapterFingerprint, ...]]


def _plan_key(params: GenerationParams) -> tuple[GenerationParams, tuple[str, ...]]:
    """What a plan depends on: neither megabytes of reference inputs nor what follows decoding."""
    planned = dataclasses.replace(_without_inputs(params), video_format=None)
    return planned, tuple(reference_hash(r) for r in params.reference_inputs)


def _of_default(error: InvalidArgument) -> InvalidArgument:
    """Says whose settings they are that the request never named."""
    return InvalidArgument(
        "the executor's default block_cache does not fit this request, which sets none of its own "
        f"(preset none turns it off): {error.message}",
        field=error.field,
        allowed=error.allowed,
    )


def _without_inputs(params: GenerationParams) -> GenerationParams:
    return dataclasses.replace(params, prompt="", seed=None, reference_inputs=())


def model_resume(scheduler: Any, profile: ModelProfile) -> SchedulerResume:
    """Whether a model with its scheduler can go on from a latent."""
    # Momentum of guidance is kept by no snapshot.
    return SchedulerResume.UNSUPPORTED if profile.remembers_steps else scheduler_resume(scheduler)


def resume_kinds(scheduler: Any, profile: ModelProfile) -> tuple[ResumeKind, ...]:
    """Ways of resuming that are safe with a model and its scheduler."""
    if not profile.starts_from_noise:
        return ()
    if model_resume(scheduler, profile) is SchedulerResume.UNSUPPORTED:
        return (ResumeKind.DECODE,)
    renoise = (ResumeKind.RENOISE,) if can_renoise(scheduler) else ()
    return (ResumeKind.TRAJECTORY, *renoise, ResumeKind.DECODE)
