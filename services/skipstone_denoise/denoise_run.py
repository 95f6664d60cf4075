"""One run: calls the pipeline from its start point and tells what happens."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from skipstone_client.torch_arrays import to_tensor
from skipstone_denoise.artifacts import ArtifactFormat, encode_artifact, frames_of
from skipstone_denoise.model_profile import ModelProfile
from skipstone_denoise.pipeline_call import (
    CallHooks,
    call_arguments,
    call_pipeline,
    has_step_callback,
)
from skipstone_denoise.pipeline_probe import PlaceholderEncoder
from skipstone_denoise.planning import RunPlan
from skipstone_denoise.references import reference_arguments
from skipstone_denoise.resume import StartPoint
from skipstone_denoise.run_block_cache import RunBlockCache
from skipstone_denoise.schedule import renoised
from skipstone_denoise.scheduler_resume import capture_history
from skipstone_denoise.scheduler_view import SchedulerView
from skipstone_denoise.snapshots import SnapshotRecorder
from skipstone_denoise.turns import Turns
from skipstone_shared.denoise_runs import DenoiseEvent, DenoiseFinished, ResumeKind
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.errors import Cancelled, Internal
from skipstone_shared.frame_samples import sampled_frames
from skipstone_shared.generation import BlockCacheReport, StepProgress

_LOCK_POLL_S = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class SharedModel:
    """What all runs share: the model, and the locks around its parts that keep state.

    Attributes:
        pipeline: The loaded pipeline; runs use copies of it.
        profile: Its profile.
        encode_lock: Held while a prompt is encoded: fast tokenizers refuse two callers at once.
        decoder_lock: Held while the autoencoder works: video ones keep state between frames.
            Reentrant, so that a pipeline that goes on after its loop cannot wait for itself.
        placeholder: Stands in for the text encoder where no prompt matters.
        video_crf: Constant rate factor of MP4: 0 (lossless) to 51.
        turns: Of computations, where the pipeline's weights are moved; None where they stay.
    """

    pipeline: Any
    profile: ModelProfile
    encode_lock: threading.Lock
    decoder_lock: threading.RLock
    placeholder: PlaceholderEncoder
    video_crf: int
    turns: Turns | None = None


@dataclasses.dataclass(slots=True)
class _Times:
    encode_s: float = 0.0
    step_began: float = 0.0
    loop_began: float = 0.0
    loop_ended: float = 0.0


class DenoiseRun(CallHooks):
    """One run, in one thread."""

    def __init__(
        self,
        model: SharedModel,
        plan: RunPlan,
        start: StartPoint,
        scheduler: Any,
        recorder: SnapshotRecorder | None,
        emit: Callable[[DenoiseEvent], None],
        is_cancelled: Callable[[], bool],
        *,
        wants_artifact: bool = True,
        sample_frames: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepares a run.

        Args:
            model: What all runs share.
            plan: Plan of this one; its parameters have a seed.
            start: Where it starts.
            scheduler: A scheduler of its own.
            recorder: Takes snapshots, if any are wanted.
            emit: Told of every step and of the artifact.
            is_cancelled: Asked at least once a step.
            wants_artifact: Whether to decode.
            sample_frames: Frames of the artifact to tell at the end, 0 and up.
            clock: Seconds, for the times told.
        """
        self._model = model
        self._plan = plan
        self._start = start
        self._scheduler = scheduler
        self._recorder = recorder
        self._emit = emit
        self._is_cancelled = is_cancelled
        self._wants_artifact = wants_artifact
        self._sample_frames = sample_frames
        self._clock = clock
        self._times = _Times()
        self._executed_steps = 0
        self._decoding = False
        self._block_cache: RunBlockCache | None = None
        if plan.block_cache is not None and start.kind is not ResumeKind.DECODE:
            self._block_cache = RunBlockCache(plan.block_cache)

    @property
    def executed_steps(self) -> int:
        """Steps that were run so far."""
        return self._executed_steps

    @property
    def block_cache_report(self) -> BlockCacheReport | None:
        """What block caching did so far; None when it is off or no step has run."""
        return self._block_cache.report() if self._block_cache is not None else None

    def execute(self, snapshot_wait_s: float) -> DenoiseFinished:
        """Runs to the end.

        Args:
            snapshot_wait_s: Seconds to wait for snapshots that are still on their way.

        Raises:
            Cancelled: `is_cancelled` said so.
        """
        turns = self._model.turns
        try:
            with nullcontext() if turns is None else turns.turn():
                output = self._call()
        finally:
            if self._decoding:
                self._model.decoder_lock.release()
        artifact = encode_artifact(output, self._form()) if self._wants_artifact else None
        decode_ended = self._clock()
        if artifact is not None:
            if self._recorder is not None:
                self._recorder.stop_telling()
            self._emit(artifact)
        frames = self._samples(output)
        refs, failures = self._recorder.finish(snapshot_wait_s) if self._recorder else ((), ())
        return DenoiseFinished(
            executed_steps=self._executed_steps,
            skip_steps=self._start.skip_steps,
            compatibility_key=self._plan.plan.compatibility_key,
            snapshots=refs,
            snapshot_failures=failures,
            block_cache=self.block_cache_report,
            denoise_time_s=self._times.loop_ended - self._times.loop_began,
            encode_time_s=self._times.encode_s,
            decode_time_s=decode_ended - self._times.loop_ended,
            snapshot_time_s=self._clock() - decode_ended,
            frames=frames,
        )

    def encode(self, encode_prompt: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Encodes the prompt; a run that only decodes has no use for it."""
        if self._start.kind is ResumeKind.DECODE:
            return self._model.placeholder.encode(encode_prompt, *args, **kwargs)
        self._acquire(self._model.encode_lock)
        began = self._clock()
        try:
            return encode_prompt(*args, **kwargs)
        finally:
            self._times.encode_s += self._clock() - began
            self._model.encode_lock.release()

    def start_latents(self, noise: torch.Tensor) -> torch.Tensor:
        """The donor's latents, the donor's clean latents re-noised, or the noise itself.

        The pipeline has drawn its noise in any case, so that the random numbers after it are those
        of the full run.
        """
        if self._start.latents is None:
            return noise
        latents = to_tensor(self._start.latents, noise.device)
        if self._start.kind is not ResumeKind.RENOISE:
            return latents
        return renoised(
            self._plan.copied_scheduler(),
            self._plan.schedule,
            latents,
            noise,
            self._start.skip_steps,
        )

    def loop_begins(self, pipeline: Any) -> None:
        """Begins block caching and notes the time.

        Raises:
            Internal: the pipeline has had a loop before. What leaves the first one would be taken
                for the clean latent of the whole.
        """
        self._raise_if_cancelled()
        if self._times.loop_ended:
            raise _too_many_steps(pipeline)
        if self._block_cache is not None:
            self._block_cache.loop_begins(pipeline, self._start.skip_steps)
        self._times.loop_began = self._times.step_began = self._clock()

    def step_done(self, latents: torch.Tensor) -> None:
        """Records and tells one step.

        Raises:
            Internal: the pipeline runs more steps than its scheduler has.
        """
        self._raise_if_cancelled()
        step_index = self._start.skip_steps + self._executed_steps
        if step_index >= self._plan.loop_length:
            raise _too_many_steps(self._model.pipeline)
        self._executed_steps += 1
        self._record(step_index + 1, latents)
        reused = self._block_cache is not None and self._block_cache.step_done(step_index)
        now = self._clock()
        took_s = now - self._times.step_began
        self._emit(StepProgress(step_index, self._plan.loop_length, took_s, reused))
        self._times.step_began = now
        if self._model.turns is not None:
            self._model.turns.let_others()
            self._times.step_began = self._clock()

    def loop_ended(self) -> None:
        """Ends block caching and takes the autoencoder, unless nothing is decoded."""
        self._times.loop_ended = self._clock()
        if self._block_cache is not None:
            self._block_cache.loop_ended()
        if self._wants_artifact and not self._decoding:
            self._acquire(self._model.decoder_lock)
            self._decoding = True

    def _call(self) -> Any:
        profile, params = self._model.profile, self._plan.plan.params
        if params.seed is None:
            raise ValueError("a run needs a seed")
        arguments = call_arguments(
            params,
            profile,
            torch.Generator("cpu").manual_seed(params.seed),
            reference_arguments(params.reference_inputs, profile),
        )
        arguments["output_type"] = "pil" if self._wants_artifact else "latent"
        observed = not has_step_callback(type(self._model.pipeline))
        decode = self._start.kind is ResumeKind.DECODE
        view = SchedulerView(
            self._scheduler,
            skip_steps=self._plan.loop_length if decode else self._start.skip_steps,
            history=self._start.history,
            unit_noise=self._start.kind is ResumeKind.RENOISE,
            on_step=self.step_done if observed else None,
        )
        return call_pipeline(
            self._model.pipeline, view, self, arguments, latents_lock=self._model.decoder_lock
        )

    def _form(self) -> ArtifactFormat:
        model, params = self._model, self._plan.plan.params
        video = params.video_format or model.profile.default_video_format
        return ArtifactFormat(video, model.profile.frame_rate, model.video_crf)

    def _samples(self, output: Any) -> tuple[EncodedImage, ...]:
        """Frames of the artifact; the caller has it already and does not wait for them."""
        if not self._sample_frames or not self._wants_artifact:
            return ()
        return sampled_frames(frames_of(output), self._sample_frames)

    def _record(self, step_index: int, latents: torch.Tensor) -> None:
        # A loop of a second-order scheduler has more turns than steps: its last turn is step N.
        if step_index == self._plan.loop_length:
            step_index = self._plan.num_inference_steps
        elif step_index >= self._plan.num_inference_steps:
            return
        if self._recorder is not None and self._recorder.wants(step_index):
            self._recorder.record(step_index, latents, capture_history(self._scheduler))

    def _acquire(self, lock: threading.Lock | threading.RLock) -> None:
        while not lock.acquire(timeout=_LOCK_POLL_S):
            self._raise_if_cancelled()

    def _raise_if_cancelled(self) -> None:
        if self._is_cancelled():
            raise Cancelled("the caller went away")


def _too_many_steps(pipeline: Any) -> Internal:
    return Internal(
        f"{type(pipeline).__name__} denoises more than once in a call, which is not served"
    )
