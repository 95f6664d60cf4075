"""Dataclasses of ``denoise_runs`` <-> messages of ``skipstone/denoise/v1``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from skipstone.denoise.v1 import denoise_pb2
from skipstone_shared.artifact_messages import ArtifactReader, artifact_chunks
from skipstone_shared.denoise_runs import (
    BlockCacheSteps,
    DenoiseCapabilities,
    DenoiseEvent,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseStarted,
    DenoiseStats,
    GenerationPlan,
    ResumeFrom,
    ResumeKind,
    SchedulerResume,
    SnapshotFailure,
    SnapshotPlan,
    SnapshotWritten,
)
from skipstone_shared.enum_messages import required_enum
from skipstone_shared.generation import Artifact, StepProgress
from skipstone_shared.generation_messages import (
    artifact_header,
    block_cache_report_from_message,
    block_cache_report_to_message,
    duration_from_message,
    duration_to_message,
    frames_from_messages,
    frames_to_messages,
    params_from_message,
    params_to_message,
    progress_from_message,
    progress_to_message,
)
from skipstone_shared.latent_messages import (
    fingerprint_from_message,
    fingerprint_to_message,
    ref_from_message,
    ref_to_message,
)
from skipstone_shared.latents import checked_entry_id
from skipstone_shared.optional_fields import new_message
from skipstone_shared.stored_entries import DEFAULT_LEASE_S

_RESUME_TO_MESSAGE: dict[ResumeKind, denoise_pb2.ResumeKind.ValueType] = {
    ResumeKind.TRAJECTORY: denoise_pb2.RESUME_KIND_TRAJECTORY,
    ResumeKind.RENOISE: denoise_pb2.RESUME_KIND_RENOISE,
    ResumeKind.DECODE: denoise_pb2.RESUME_KIND_DECODE,
}
_RESUME_FROM_MESSAGE: dict[int, ResumeKind] = {m: kind for kind, m in _RESUME_TO_MESSAGE.items()}

_SCHEDULER_TO_MESSAGE: dict[SchedulerResume, denoise_pb2.SchedulerResume.ValueType] = {
    SchedulerResume.EXACT: denoise_pb2.SCHEDULER_RESUME_EXACT,
    SchedulerResume.WITH_HISTORY: denoise_pb2.SCHEDULER_RESUME_WITH_HISTORY,
    SchedulerResume.UNSUPPORTED: denoise_pb2.SCHEDULER_RESUME_UNSUPPORTED,
}
_SCHEDULER_FROM_MESSAGE: dict[int, SchedulerResume] = {
    m: value for value, m in _SCHEDULER_TO_MESSAGE.items()
}


def request_to_message(request: DenoiseRequest) -> denoise_pb2.RunDenoiseRequest:
    """The message of one run."""
    return new_message(
        denoise_pb2.RunDenoiseRequest,
        namespace=request.namespace,
        params=params_to_message(request.params),
        resume=_resume_to_message(request.resume) if request.resume else None,
        snapshots=_snapshot_plan_to_message(request.snapshots) if request.snapshots else None,
        expected_compatibility_key=request.expected_compatibility_key,
        output=(
            denoise_pb2.OUTPUT_KIND_ENCODED
            if request.wants_artifact
            else denoise_pb2.OUTPUT_KIND_NONE
        ),
        sample_frames=request.sample_frames,
    )


def request_from_message(message: denoise_pb2.RunDenoiseRequest) -> DenoiseRequest:
    """The run of a message. Ranges are checked where the model is known, not here.

    Raises:
        InvalidArgument: a bad reference or entry id, or an enum that is not known or must be set.
    """
    return DenoiseRequest(
        namespace=message.namespace,
        params=params_from_message(message.params),
        resume=_resume_from_message(message.resume) if message.HasField("resume") else None,
        snapshots=(
            _snapshot_plan_from_message(message.snapshots)
            if message.HasField("snapshots")
            else None
        ),
        expected_compatibility_key=message.expected_compatibility_key,
        wants_artifact=message.output != denoise_pb2.OUTPUT_KIND_NONE,
        sample_frames=message.sample_frames,
    )


def _resume_to_message(resume: ResumeFrom) -> denoise_pb2.ResumeFrom:
    return new_message(
        denoise_pb2.ResumeFrom,
        donor=ref_to_message(resume.donor),
        skip_steps=resume.skip_steps,
        kind=_RESUME_TO_MESSAGE[resume.kind],
    )


def _resume_from_message(message: denoise_pb2.ResumeFrom) -> ResumeFrom:
    return ResumeFrom(
        donor=ref_from_message(message.donor),
        skip_steps=message.skip_steps,
        kind=required_enum(_RESUME_FROM_MESSAGE, message.kind, "resume.kind"),
    )


def _snapshot_plan_to_message(plan: SnapshotPlan) -> denoise_pb2.SnapshotPlan:
    return new_message(
        denoise_pb2.SnapshotPlan,
        entry_id=plan.entry_id,
        key_steps=plan.key_steps,
        store_clean=plan.store_clean,
        store=plan.store,
        lease=duration_to_message(plan.lease_s),
    )


def _snapshot_plan_from_message(message: denoise_pb2.SnapshotPlan) -> SnapshotPlan:
    return SnapshotPlan(
        entry_id=checked_entry_id(message.entry_id),
        key_steps=tuple(message.key_steps),
        store_clean=message.store_clean,
        store=message.store,
        lease_s=(
            duration_from_message(message.lease) if message.HasField("lease") else DEFAULT_LEASE_S
        ),
    )


def plan_to_message(plan: GenerationPlan) -> denoise_pb2.PlanGenerationResponse:
    """The message of a plan."""
    return denoise_pb2.PlanGenerationResponse(
        params=params_to_message(plan.params),
        fingerprint=fingerprint_to_message(plan.fingerprint),
        compatibility_key=plan.compatibility_key,
        sigmas=plan.sigmas,
        resume_kinds=[_RESUME_TO_MESSAGE[kind] for kind in plan.resume_kinds],
        instance_id=plan.instance_id,
        resumable_steps=plan.resumable_steps,
    )


def plan_from_message(message: denoise_pb2.PlanGenerationResponse) -> GenerationPlan:
    """The plan of a message; ways of resuming that this version does not know are left out."""
    return GenerationPlan(
        params=params_from_message(message.params),
        fingerprint=fingerprint_from_message(message.fingerprint),
        compatibility_key=message.compatibility_key,
        sigmas=tuple(message.sigmas),
        resume_kinds=_known_resume_kinds(message.resume_kinds),
        instance_id=message.instance_id,
        resumable_steps=tuple(message.resumable_steps),
    )


def _known_resume_kinds(
    numbers: Iterable[denoise_pb2.ResumeKind.ValueType],
) -> tuple[ResumeKind, ...]:
    return tuple(_RESUME_FROM_MESSAGE[n] for n in numbers if n in _RESUME_FROM_MESSAGE)


def event_to_messages(event: DenoiseEvent) -> Iterator[denoise_pb2.RunDenoiseResponse]:
    """The messages of one event: several for an artifact, one for every other."""
    match event:
        case DenoiseStarted():
            yield denoise_pb2.RunDenoiseResponse(started=_started_to_message(event))
        case StepProgress():
            yield denoise_pb2.RunDenoiseResponse(step=progress_to_message(event))
        case SnapshotWritten():
            written = denoise_pb2.SnapshotWritten(ref=ref_to_message(event.ref))
            yield denoise_pb2.RunDenoiseResponse(snapshot=written)
        case Artifact():
            yield denoise_pb2.RunDenoiseResponse(artifact=artifact_header(event))
            for chunk in artifact_chunks(event):
                yield denoise_pb2.RunDenoiseResponse(artifact_data=chunk)
        case DenoiseFinished():
            yield denoise_pb2.RunDenoiseResponse(finished=_finished_to_message(event))


class DenoiseEventReader:
    """Turns the messages of one RunDenoise into events. Not shared between threads."""

    def __init__(self) -> None:
        self._artifacts = ArtifactReader()

    def read(self, message: denoise_pb2.RunDenoiseResponse) -> DenoiseEvent | None:
        """The event that a message completes.

        None while an artifact is incomplete, and for a kind of event that this version does not
        know.

        Raises:
            DataCorrupt: an artifact is truncated, or does not match its checksum.
        """
        kind = message.WhichOneof("event")
        if kind == "artifact_data":
            return self._artifacts.add(message.artifact_data)
        if kind == "artifact":
            return self._artifacts.start(message.artifact)
        self._artifacts.check_complete()
        match kind:
            case "started":
                return _started_from_message(message.started)
            case "step":
                return progress_from_message(message.step)
            case "snapshot":
                return SnapshotWritten(ref_from_message(message.snapshot.ref))
            case "finished":
                return _finished_from_message(message.finished)
            case _:
                return None

    def finish(self) -> None:
        """Called when the stream has ended.

        Raises:
            DataCorrupt: an artifact is truncated.
        """
        self._artifacts.check_complete()


def _started_to_message(event: DenoiseStarted) -> denoise_pb2.DenoiseStarted:
    refusal = denoise_pb2.ResumeRefusal(reason=event.refusal_reason, message=event.refusal_message)
    return denoise_pb2.DenoiseStarted(
        skip_steps=event.skip_steps,
        resume_refusal=refusal if event.refusal_reason else None,
        queue_time=duration_to_message(event.queue_time_s),
        resume_read_time=duration_to_message(event.resume_read_time_s),
    )


def _started_from_message(message: denoise_pb2.DenoiseStarted) -> DenoiseStarted:
    return DenoiseStarted(
        skip_steps=message.skip_steps,
        refusal_reason=message.resume_refusal.reason,
        refusal_message=message.resume_refusal.message,
        queue_time_s=duration_from_message(message.queue_time),
        resume_read_time_s=duration_from_message(message.resume_read_time),
    )


def _finished_to_message(event: DenoiseFinished) -> denoise_pb2.DenoiseFinished:
    return denoise_pb2.DenoiseFinished(
        executed_steps=event.executed_steps,
        skip_steps=event.skip_steps,
        snapshots=[ref_to_message(ref) for ref in event.snapshots],
        snapshot_failures=[
            denoise_pb2.SnapshotFailure(
                step_index=failure.step_index, reason=failure.reason, message=failure.message
            )
            for failure in event.snapshot_failures
        ],
        block_cache=block_cache_report_to_message(event.block_cache) if event.block_cache else None,
        denoise_time=duration_to_message(event.denoise_time_s),
        encode_time=duration_to_message(event.encode_time_s),
        decode_time=duration_to_message(event.decode_time_s),
        snapshot_time=duration_to_message(event.snapshot_time_s),
        compatibility_key=event.compatibility_key,
        frames=frames_to_messages(event.frames),
    )


def _finished_from_message(message: denoise_pb2.DenoiseFinished) -> DenoiseFinished:
    return DenoiseFinished(
        executed_steps=message.executed_steps,
        skip_steps=message.skip_steps,
        snapshots=tuple(ref_from_message(ref) for ref in message.snapshots),
        snapshot_failures=tuple(
            SnapshotFailure(f.step_index, f.reason, f.message) for f in message.snapshot_failures
        ),
        block_cache=(
            block_cache_report_from_message(message.block_cache)
            if message.HasField("block_cache")
            else None
        ),
        denoise_time_s=duration_from_message(message.denoise_time),
        encode_time_s=duration_from_message(message.encode_time),
        decode_time_s=duration_from_message(message.decode_time),
        snapshot_time_s=duration_from_message(message.snapshot_time),
        compatibility_key=message.compatibility_key,
        frames=frames_from_messages(message.frames),
    )


_PLAIN_CAPABILITIES = (
    "instance_id",
    "model_id",
    "pipeline_class",
    "scheduler_class",
    "default_steps",
    "max_steps",
    "default_guidance_scale",
    "default_height",
    "default_width",
    "size_multiple",
    "min_size",
    "max_size",
    "default_num_frames",
    "max_num_frames",
    "max_concurrent_requests",
    "block_cache_supported",
    "latent_kv_target",
    "frame_rate",
    "frame_step",
)
"""Fields that are called the same and mean the same in message and dataclass."""

_STATS = (
    "finished_count",
    "failed_count",
    "cancelled_count",
    "running_count",
    "queued_count",
    "executed_steps",
    "skipped_steps",
    "block_calls",
    "block_calls_full",
)


def denoise_capabilities_to_message(
    capabilities: DenoiseCapabilities,
) -> denoise_pb2.GetCapabilitiesResponse:
    """The message of the model, its defaults and its limits."""
    plain: dict[str, Any] = {name: getattr(capabilities, name) for name in _PLAIN_CAPABILITIES}
    return denoise_pb2.GetCapabilitiesResponse(
        resume_kinds=[_RESUME_TO_MESSAGE[kind] for kind in capabilities.resume_kinds],
        scheduler_resume=_SCHEDULER_TO_MESSAGE[capabilities.scheduler_resume],
        adapters=capabilities.adapters,
        **plain,
    )


def denoise_capabilities_from_message(
    message: denoise_pb2.GetCapabilitiesResponse,
) -> DenoiseCapabilities:
    """The model, its defaults and its limits of a message."""
    plain: dict[str, Any] = {name: getattr(message, name) for name in _PLAIN_CAPABILITIES}
    return DenoiseCapabilities(
        resume_kinds=_known_resume_kinds(message.resume_kinds),
        scheduler_resume=required_enum(
            _SCHEDULER_FROM_MESSAGE, message.scheduler_resume, "scheduler_resume"
        ),
        adapters=tuple(message.adapters),
        **plain,
    )


def denoise_stats_to_message(stats: DenoiseStats) -> denoise_pb2.GetStatsResponse:
    """The message of the counts."""
    return denoise_pb2.GetStatsResponse(
        block_cache_steps=[
            denoise_pb2.BlockCacheSteps(
                transformer=steps.transformer,
                computed_steps=steps.computed_steps,
                reused_steps=steps.reused_steps,
                reasons=steps.reasons,
            )
            for steps in stats.block_cache_steps
        ],
        **{name: getattr(stats, name) for name in _STATS},
    )


def denoise_stats_from_message(message: denoise_pb2.GetStatsResponse) -> DenoiseStats:
    """The counts of a message."""
    return DenoiseStats(
        block_cache_steps=tuple(
            BlockCacheSteps(
                steps.transformer, steps.computed_steps, steps.reused_steps, dict(steps.reasons)
            )
            for steps in message.block_cache_steps
        ),
        **{name: getattr(message, name) for name in _STATS},
    )
