"""The engine that runs diffusers pipelines."""

from __future__ import annotations

import contextvars
import dataclasses
import queue
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Any

from skipstone_denoise.admission import Admission
from skipstone_denoise.block_cache_start import check_default_block_cache, usable_block_caching
from skipstone_denoise.computing import computing_facts
from skipstone_denoise.concurrency import check_concurrency, moves_weights
from skipstone_denoise.config import DenoiseSettings
from skipstone_denoise.denoise_run import DenoiseRun, SharedModel
from skipstone_denoise.engine import never_cancelled
from skipstone_denoise.fingerprint import fingerprint_model, with_settings
from skipstone_denoise.guiders import check_guiders
from skipstone_denoise.latent_comparison import LatentComparison
from skipstone_denoise.latent_store import LatentStores
from skipstone_denoise.model_inspection import inspect_model
from skipstone_denoise.pipeline_probe import PipelineProbe, PlaceholderEncoder
from skipstone_denoise.placement import place
from skipstone_denoise.planning import Planner, RunPlan, model_resume, resume_kinds
from skipstone_denoise.request_checks import check_request
from skipstone_denoise.resume import DonorReader
from skipstone_denoise.run_counters import RunCounters
from skipstone_denoise.snapshots import SnapshotRecorder, SnapshotWriter
from skipstone_denoise.turns import Turns
from skipstone_shared.denoise_runs import (
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    DenoiseStats,
    GenerationPlan,
)
from skipstone_shared.errors import Cancelled, Unavailable
from skipstone_shared.generation import GenerationParams
from skipstone_shared.latents import LatentRef, checked_namespace

_POLL_S = 0.1
_MIB = 1 << 20
_WRITES_PER_RUN = 2


class DiffusersEngine:
    """A `DenoiseEngine` around one diffusers pipeline."""

    def __init__(
        self,
        pipeline: Any,
        settings: DenoiseSettings,
        stores: LatentStores,
        *,
        instance_id: str = "",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Inspects the pipeline: hashes its weights and runs one small step.

        Args:
            pipeline: From `pipeline_loader`; the engine owns it from now on.
            settings: Of the service.
            stores: Where donors are read and snapshots written.
            instance_id: Told with plans; a new one by default.
            clock: Seconds, for the times told.

        Raises:
            ModelUnusable: the pipeline cannot be served.
        """
        self._settings = settings
        self._clock = clock
        fingerprint = fingerprint_model(pipeline, settings.model, settings.model_revision)
        place(pipeline, settings)
        check_guiders(pipeline)
        check_concurrency(pipeline, settings.max_concurrent_requests)
        fingerprint = with_settings(fingerprint, computing_facts(pipeline))
        turns = Turns() if moves_weights(pipeline) else None
        encode_lock, decoder_lock = threading.Lock(), threading.RLock()
        placeholder = PlaceholderEncoder(encode_lock)
        probe = PipelineProbe(pipeline, placeholder, decoder_lock, turns)
        self._profile = inspect_model(pipeline, settings, probe)
        self._model = SharedModel(
            pipeline,
            self._profile,
            encode_lock,
            decoder_lock,
            placeholder,
            settings.video_crf,
            turns,
        )
        self._block_caching = usable_block_caching(pipeline, settings, self._profile, probe)
        self._planner = Planner(
            pipeline,
            self._profile,
            fingerprint,
            probe,
            self._block_caching,
            instance_id or uuid.uuid4().hex,
        )
        check_default_block_cache(self._planner, self._profile)
        self._admission = Admission(settings.max_concurrent_requests, settings.max_queued_requests)
        self._donors = DonorReader(
            stores,
            timeout_s=settings.resume_read_timeout_ms / 1000,
            bytes_per_s=settings.resume_read_mib_per_s * _MIB,
            max_reads=settings.max_concurrent_requests,
            clock=clock,
        )
        self._writer = SnapshotWriter(
            stores,
            write_timeout_s=settings.snapshot_write_timeout_ms / 1000,
            max_writes=_WRITES_PER_RUN * settings.max_concurrent_requests,
            queue_size=settings.snapshot_queue_size,
        )
        self._comparison = LatentComparison(stores)
        self._counters = RunCounters()
        self._closing = threading.Event()

    def get_capabilities(self) -> DenoiseCapabilities:
        """The model, its defaults and its limits."""
        profile, pipeline = self._profile, self._model.pipeline
        return DenoiseCapabilities(
            instance_id=self._planner.instance_id(),
            model_id=self._settings.model,
            pipeline_class=type(pipeline).__name__,
            scheduler_class=type(pipeline.scheduler).__name__,
            default_steps=profile.default_steps,
            max_steps=profile.max_steps,
            default_guidance_scale=profile.default_guidance_scale,
            default_height=profile.default_height,
            default_width=profile.default_width,
            size_multiple=profile.size_multiple,
            min_size=profile.min_size,
            max_size=profile.max_size,
            max_concurrent_requests=self._settings.max_concurrent_requests,
            resume_kinds=resume_kinds(pipeline.scheduler, profile),
            scheduler_resume=model_resume(pipeline.scheduler, profile),
            default_num_frames=profile.default_num_frames,
            max_num_frames=profile.max_num_frames,
            block_cache_supported=self._block_caching.supported,
            adapters=self._planner.adapter_names(),
            latent_kv_target=self._settings.latent_kv_target,
            frame_rate=profile.frame_rate if profile.is_video else 0.0,
            frame_step=profile.frame_step,
        )

    def plan(self, params: GenerationParams) -> GenerationPlan:
        """What a run with these parameters would be; plans are kept."""
        return self._planner.plan(params).plan

    def run(
        self, request: DenoiseRequest, cancelled: Callable[[], bool] = never_cancelled
    ) -> Generator[DenoiseEvent, None, None]:
        """Runs one generation on a thread of the engine."""
        if self._closing.is_set():
            raise Unavailable("the executor is shutting down")
        plan = self._planner.plan(request.params)
        request = dataclasses.replace(request, namespace=checked_namespace(request.namespace))
        check_request(request, plan.num_inference_steps, plan.plan.compatibility_key)
        events: queue.SimpleQueue[DenoiseEvent | Exception] = queue.SimpleQueue()
        given_up = threading.Event()

        def is_cancelled() -> bool:
            return given_up.is_set() or self._closing.is_set() or cancelled()

        queued_at = self._clock()

        def work() -> None:
            try:
                events.put(self._execute(request, plan, events.put, is_cancelled, queued_at))
            except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
                events.put(error)

        context = contextvars.copy_context()
        future = self._admission.submit(lambda: context.run(work))
        try:
            yield from self._events(events, future, cancelled)
        finally:
            given_up.set()
            if future.cancel():
                self._counters.cancelled()

    def compare_latents(self, first: LatentRef, second: LatentRef, namespace: str = "") -> float:
        """How far apart two stored latents are."""
        return self._comparison.distance(checked_namespace(namespace), first, second)

    def get_stats(self) -> DenoiseStats:
        """Counts since the start."""
        return dataclasses.replace(
            self._counters.stats(),
            running_count=self._admission.running_count,
            queued_count=self._admission.waiting_count,
        )

    def close(self) -> None:
        """Stops every run within a step."""
        self._closing.set()
        self._admission.close()
        self._writer.close()
        self._donors.close()

    def _events(
        self,
        events: queue.SimpleQueue[DenoiseEvent | Exception],
        future: Future[None],
        cancelled: Callable[[], bool],
    ) -> Iterator[DenoiseEvent]:
        """Yields what a run puts into its queue, until its last event."""
        while True:
            try:
                event = events.get(timeout=_POLL_S)
            except queue.Empty:
                # A run that waits has no step at which it could notice.
                if cancelled():
                    raise Cancelled("the caller went away") from None
                if future.cancelled():
                    raise Unavailable("the executor is shutting down") from None
                continue
            if isinstance(event, Cancelled) and self._closing.is_set():
                raise Unavailable("the executor is shutting down") from None
            if isinstance(event, Exception):
                raise event
            yield event
            if isinstance(event, DenoiseFinished):
                return

    def _execute(
        self,
        request: DenoiseRequest,
        plan: RunPlan,
        emit: Callable[[DenoiseEvent], None],
        is_cancelled: Callable[[], bool],
        queued_at: float,
    ) -> DenoiseFinished:
        """Runs one request in this thread and counts how it ended."""
        began = self._clock()
        with self._counters.run():
            start = self._donors.start_point(request.namespace, request.resume, plan)
            emit(
                DenoiseStarted(
                    skip_steps=start.skip_steps,
                    refusal_reason=start.refusal_reason,
                    refusal_message=start.refusal_message,
                    queue_time_s=began - queued_at,
                    resume_read_time_s=start.read_time_s,
                )
            )
            recorder = self._recorder(request, plan, start.depth, emit)
            run = DenoiseRun(
                self._model,
                plan,
                start,
                self._planner.new_scheduler(plan.plan.params.shift),
                recorder,
                emit,
                is_cancelled,
                wants_artifact=request.wants_artifact,
                sample_frames=request.sample_frames,
                clock=self._clock,
            )
            try:
                # A store that has already cost its time on the read costs less at the end.
                lost_s = start.read_time_s if start.refusal_reason else 0.0
                return run.execute(max(0.0, self._settings.snapshot_wait_ms / 1000 - lost_s))
            except BaseException:
                if recorder is not None:
                    recorder.abandon()
                raise
            finally:
                self._counters.steps(run.executed_steps, start.skip_steps)
                if run.block_cache_report is not None:
                    self._counters.block_cache(run.block_cache_report)

    def _recorder(
        self,
        request: DenoiseRequest,
        plan: RunPlan,
        depth: int,
        emit: Callable[[DenoiseEvent], None],
    ) -> SnapshotRecorder | None:
        if request.snapshots is None:
            return None
        return SnapshotRecorder(
            self._writer,
            request.namespace,
            request.snapshots,
            plan,
            model_resume(self._model.pipeline.scheduler, self._profile),
            depth=depth,
            on_written=emit,
        )
