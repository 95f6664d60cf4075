"""Latent reuse in a script that calls a stock diffusers pipeline itself.

from skipstone_denoise.callback import SkipstoneCallback

skipstone = SkipstoneCallback(pipe)
picture = skipstone("a red circle", generator=torch.Generator().manual_seed(7)).images[0]
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import threading
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Self

import torch
from PIL import Image

from skipstone_client import EngineRun, ReuseSession
from skipstone_client.donor_checks import DonorRefused
from skipstone_client.engine_runs import Donor, ReuseProvenance, SolverState
from skipstone_client.reuse_request import ReuseRequest
from skipstone_client.torch_arrays import to_tensor
from skipstone_denoise.adapters import ActiveAdapters
from skipstone_denoise.callback_arguments import (
    CallSays,
    NotCacheable,
    bound_arguments,
    read_call,
)
from skipstone_denoise.computing import computing_facts
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.fingerprint import fingerprint_model, fingerprint_run, with_settings
from skipstone_denoise.guiders import draws_at_random, guiders_of, remembers_steps
from skipstone_denoise.model_inspection import inspect_model
from skipstone_denoise.pipeline_call import CallHooks, has_step_callback, request_pipeline
from skipstone_denoise.pipeline_probe import (
    PLACEHOLDER_PROMPT,
    PipelineProbe,
    PlaceholderEncoder,
)
from skipstone_denoise.planning import resume_kinds
from skipstone_denoise.resume import checked_history
from skipstone_denoise.schedule import Schedule, read_schedule, renoised
from skipstone_denoise.scheduler_resume import SolverHistory, capture_history
from skipstone_denoise.scheduler_view import SchedulerView
from skipstone_shared.denoise_runs import ResumeKind
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.latents import LATENTS_PART
from skipstone_shared.orchestration import CacheOptions, HitTier, ReuseKind

NOT_CACHEABLE = "NOT_CACHEABLE"

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A call that the cache takes part in."""

    says: CallSays
    run: EngineRun
    schedule: Schedule
    scheduler: Any  # timesteps set; shared by nobody
    kinds: tuple[ResumeKind, ...]

    @property
    def loop_length(self) -> int:
        """Turns of the loop: more than the steps for schedulers of second order."""
        return len(self.scheduler.timesteps)


class SkipstoneCallback:
    """Called in place of a pipeline, with its arguments; gives what the pipeline gives.

    The pipeline object, its scheduler and its modules stay as they are. A call that the cache
    cannot serve (``provenance.reason`` says why) is the plain call. One thread at a time.
    """

    def __init__(
        self,
        pipeline: Any,
        session: ReuseSession | None = None,
        *,
        cache: CacheOptions | None = None,
        model_id: str = "",
    ) -> None:
        """Hashes the pipeline's weights and runs one small step and the decoder, to see how.

        Args:
            pipeline: A diffusers pipeline, loaded and on its device. Adapters and how it computes
                (attention, tiling, compilation, caches, element types) are looked at in every
                call; other changes of its weights need a new callback.
            session: Where latents are reused from and stored; None: the default ports here.
            cache: How calls use the cache; None: as the session says.
            model_id: Name of the model in the keys; empty: where it was loaded from.

        Raises:
            ModelUnusable: the pipeline cannot run.
        """
        self._pipeline = pipeline
        self._owns_session = session is None
        self._session = session or ReuseSession()
        self._cache = cache or self._session.cache
        placeholder = PlaceholderEncoder(threading.Lock())
        self._probe = PipelineProbe(pipeline, placeholder, nullcontext())
        name = model_id or pipeline.config.get("_name_or_path") or type(pipeline).__name__
        self._model = fingerprint_model(pipeline, str(name), "")
        self._profile = inspect_model(pipeline, DenoiseSettings(model=str(name)), self._probe)
        self._adapters = ActiveAdapters(pipeline)
        self._provenance: ReuseProvenance | None = None
        self._request: ReuseRequest | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def provenance(self) -> ReuseProvenance | None:
        """Where the last call started and why; None before the first."""
        return self._request.provenance if self._request is not None else self._provenance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the pipeline from where the cache lets it start, and stores what it gives.

        Args:
            *args: Of the pipeline.
            **kwargs: Of the pipeline. Without a ``generator`` the seed is drawn.

        Returns:
            What the pipeline returns.
        """
        arguments = bound_arguments(self._pipeline, args, kwargs)
        if arguments.get("generator") is None:
            arguments["generator"] = torch.Generator("cpu")
            arguments["generator"].seed()
        try:
            call = self._planned(arguments)
        except NotCacheable as reason:
            return self._plain(arguments, str(reason))
        except Exception as error:  # noqa: BLE001 - the pipeline's own call says it better
            _log.warning("call not planned, it runs without the cache: %s", error)
            return self._plain(arguments, str(error))
        with self._session.request(call.says.prompt, call.run, self._options(call)) as request:
            self._request = request
            reuse = _CallReuse(call, request)
            output = reuse.execute(self._pipeline, arguments)
            request.finish(reuse.clean, _pictures(output) if request.donor_frames else ())
        return output

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until everything that is to be stored is stored, or not; whether it is done."""
        return self._session.flush(timeout_s)

    def close(self) -> None:
        """Closes the session, unless it was given."""
        if self._owns_session:
            self._session.close()

    def _plain(self, arguments: dict[str, Any], reason: str) -> Any:
        self._request = None
        self._provenance = ReuseProvenance("", HitTier.MISS, f"{NOT_CACHEABLE}: {reason}")
        return self._pipeline(**arguments)

    def _planned(self, arguments: dict[str, Any]) -> _Call:
        guiders = guiders_of(self._pipeline).values()
        if any(map(draws_at_random, guiders)):
            raise NotCacheable("a guider drops a share of a layer at random")
        says = read_call(arguments, self._profile, type(self._pipeline))
        # Not as the profile has it: a script may have set another guider since.
        remembers = any(map(remembers_steps, guiders))
        profile = dataclasses.replace(self._profile, remembers_steps=remembers)
        kinds = resume_kinds(self._pipeline.scheduler, profile)
        if not kinds:
            raise NotCacheable(f"{type(self._pipeline).__name__} does not start from noise")
        prepared = self._probe.prepare(
            copy.deepcopy(self._pipeline.scheduler),
            {
                **arguments,
                "prompt": PLACEHOLDER_PROMPT,
                "generator": torch.Generator("cpu").manual_seed(0),
            },
        )
        try:
            schedule = read_schedule(prepared.scheduler, says.params.num_inference_steps or 0)
        except InvalidArgument as error:
            raise NotCacheable(error.message) from None
        fingerprint = fingerprint_run(
            with_settings(self._model, computing_facts(self._pipeline)),
            self._profile,
            says.params,
            schedule,
            prepared.latent_shape,
            self._profile.guidance_mode(says.params, prepared.guided),
            "",
            self._adapters.fingerprints(),
        )
        # A script's call is not the executor's, which sets arguments of its own: never share.
        fingerprint = dataclasses.replace(fingerprint, reference_hashes=("script", *says.hashes))
        run = EngineRun(fingerprint, schedule.sigmas, says.seed)
        return _Call(says, run, schedule, prepared.scheduler, kinds)

    def _options(self, call: _Call) -> CacheOptions:
        """The options, without what the scheduler cannot do."""
        if ResumeKind.TRAJECTORY not in call.kinds and ResumeKind.RENOISE not in call.kinds:
            return dataclasses.replace(self._cache, allow_approximate=False)
        if ResumeKind.RENOISE not in call.kinds:
            return dataclasses.replace(self._cache, reuse_kind=ReuseKind.TRAJECTORY)
        return self._cache


class _CallReuse(CallHooks):
    """One call: its start, and the latents that leave its steps."""

    def __init__(self, call: _Call, request: ReuseRequest) -> None:
        self._call = call
        self._request = request
        self._donor, self._history = self._usable(request.donor())
        self._start = 0 if self._donor is None else self._donor.start_step
        self._done = 0
        self._scheduler: Any = None
        self.clean: torch.Tensor | None = None
        """What left the last step; None when none was run."""

    def _usable(self, donor: Donor | None) -> tuple[Donor | None, SolverHistory | None]:
        if donor is None or donor.kind is not ReuseKind.TRAJECTORY:
            return donor, None
        arrays = {LATENTS_PART: donor.latents, **donor.solver.parts}
        try:
            history = checked_history(donor.solver.state_json, arrays, self._call.scheduler)
        except DonorRefused as refusal:
            self._request.refuse(refusal.reason, str(refusal))
            return None, None
        return donor, history

    def execute(self, pipeline: Any, arguments: dict[str, Any]) -> Any:
        """Calls the pipeline."""
        observed = not has_step_callback(type(pipeline))
        exact = self._donor is not None and self._donor.kind is None
        self._scheduler = copy.deepcopy(pipeline.scheduler)
        view = SchedulerView(
            self._scheduler,
            skip_steps=self._call.loop_length if exact else self._start,
            history=self._history,
            unit_noise=self._donor is not None and self._donor.kind is ReuseKind.RENOISE,
            on_step=self.step_done if observed else None,
        )
        mine = request_pipeline(pipeline, view, self, nullcontext())
        # The script's own bar: nothing here needs to know where the loop begins.
        mine.__dict__["progress_bar"] = pipeline.progress_bar
        if not observed:
            arguments = {
                **arguments,
                "callback_on_step_end": self._on_step_end,
                "callback_on_step_end_tensor_inputs": ["latents"],
            }
        return mine(**arguments)

    def start_latents(self, noise: torch.Tensor) -> torch.Tensor:
        """The donor's latents, renoised where they are clean; the noise itself without one."""
        if self._donor is None:
            return noise
        latents = to_tensor(self._donor.latents, noise.device)
        if self._donor.kind is not ReuseKind.RENOISE:
            return latents
        scheduler = copy.deepcopy(self._call.scheduler)
        return renoised(scheduler, self._call.schedule, latents, noise, self._start)

    def step_done(self, latents: torch.Tensor) -> None:
        """Takes a snapshot where one is wanted."""
        self._done += 1
        step_index = self._start + self._done
        self.clean = latents
        single = self._call.loop_length == self._call.run.num_inference_steps
        if single and step_index < self._call.loop_length and self._request.wants(step_index):
            history = capture_history(self._scheduler)
            solver = SolverState(history.arrays, history.state_json) if history else None
            self._request.snapshot(step_index, latents, solver)

    def _on_step_end(
        self, _pipeline: Any, _step: int, _timestep: Any, tensors: dict[str, Any]
    ) -> dict[str, Any]:
        self.step_done(tensors["latents"])
        return tensors


def _pictures(output: Any) -> list[Image.Image]:
    """All frames of what a call gives; none where it gives arrays or latents."""
    made = output[0]
    if not isinstance(made, list) or not made:
        return []
    frames = made if isinstance(made[0], Image.Image) else made[0]
    return [frame for frame in frames if isinstance(frame, Image.Image)]
