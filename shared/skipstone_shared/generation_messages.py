"""Dataclasses of ``generation`` <-> messages of ``skipstone/generation/v1``."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

from google.protobuf import duration_pb2
from google.protobuf.message import Message

from skipstone.generation.v1 import generation_pb2
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.enum_messages import enum_member, optional_enum, required_enum
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    AdapterSelection,
    Artifact,
    BlockCacheConfig,
    BlockCachePreset,
    BlockCacheReport,
    BranchReport,
    GenerationParams,
    ReferenceInput,
    ReferenceRole,
    ScmMaskPolicy,
    ScmMaskSource,
    ScmStepsPolicy,
    StepProgress,
    TaylorSeerCacheType,
    VideoFormat,
)
from skipstone_shared.latents import checksum
from skipstone_shared.optional_fields import new_message, set_fields

_E = TypeVar("_E", bound=Enum)

# Enum values of the messages are the dataclass enum's names behind a prefix, so that a table is
# needed only for the prefix.
_PREFIXES: dict[type[Enum], str] = {
    ReferenceRole: "REFERENCE_ROLE_",
    BlockCachePreset: "BLOCK_CACHE_PRESET_",
    ScmMaskPolicy: "SCM_MASK_POLICY_",
    ScmStepsPolicy: "SCM_STEPS_POLICY_",
    ScmMaskSource: "SCM_MASK_SOURCE_",
    TaylorSeerCacheType: "TAYLOR_SEER_CACHE_TYPE_",
    VideoFormat: "VIDEO_FORMAT_",
}
_PLAIN_PARAMS = ("num_inference_steps", "guidance_scale", "guidance_scale_2", "height", "width")
_OPTIONAL_PARAMS = (*_PLAIN_PARAMS, "num_frames", "seed", "shift")
_OPTIONAL_BLOCK_CACHE = (
    "fn_compute_blocks",
    "bn_compute_blocks",
    "max_warmup_steps",
    "warmup_interval",
    "max_cached_steps",
    "max_continuous_cached_steps",
    "residual_diff_threshold",
    "enable_taylorseer",
    "taylorseer_order",
    "enable_divided_difference",
    "max_accumulated_residual_diff_threshold",
    "cfg_diff_compute_separate",
)
_ENUM_BLOCK_CACHE: dict[str, type[Enum]] = {
    "preset": BlockCachePreset,
    "scm_steps_mask_policy": ScmMaskPolicy,
    "scm_steps_policy": ScmStepsPolicy,
    "scm_mask_source": ScmMaskSource,
    "taylorseer_cache_type": TaylorSeerCacheType,
}


def duration_to_message(seconds: float) -> duration_pb2.Duration:
    """A duration; seconds are rounded to nanoseconds."""
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def duration_from_message(message: duration_pb2.Duration) -> float:
    """Seconds of a duration."""
    return message.ToNanoseconds() / 1e9


def enum_to_message(value: Enum | None) -> Any:
    """The message's enum value; 0 (unspecified) for None."""
    if value is None:
        return 0
    return getattr(generation_pb2, _PREFIXES[type(value)] + value.name)


def enum_from_message(kind: type[_E], number: int, field: str) -> _E | None:
    """The dataclass's enum value; None for 0 (unspecified).

    Raises:
        InvalidArgument: a value this version does not know.
    """
    return optional_enum({enum_to_message(member): member for member in kind}, number, field)


_REFERENCE_ROLES = {enum_to_message(role): role for role in ReferenceRole}


def params_to_message(params: GenerationParams) -> generation_pb2.GenerationParams:
    """The message of generation parameters.

    Raises:
        InvalidArgument: a value that cannot be sent.
    """
    message = new_message(
        generation_pb2.GenerationParams,
        reference_inputs=[
            new_message(
                generation_pb2.ReferenceInput,
                role=enum_to_message(enum_member(ReferenceRole, r.role, "reference_inputs.role")),
                media_type=r.media_type,
                data=r.data,
            )
            for r in params.reference_inputs
        ],
        adapters=[
            generation_pb2.AdapterSelection(name=a.name, scale=a.scale) for a in params.adapters
        ],
    )
    set_fields(message, params, ("prompt", "negative_prompt", *_OPTIONAL_PARAMS))
    if params.block_cache is not None:
        message.block_cache.CopyFrom(block_cache_to_message(params.block_cache))
    if params.video_format is not None:
        form = enum_member(VideoFormat, params.video_format, "params.video_format")
        message.video_format = enum_to_message(form)
    return message


def params_from_message(message: generation_pb2.GenerationParams) -> GenerationParams:
    """The generation parameters of a message. Ranges are checked where they are known, not here.

    Raises:
        InvalidArgument: an enum value that is not known or must be set.
    """
    present = _present_fields(message)
    optional = {name: getattr(message, name) for name in _OPTIONAL_PARAMS if name in present}
    return GenerationParams(
        prompt=message.prompt,
        negative_prompt=message.negative_prompt,
        reference_inputs=tuple(_reference_from_message(r) for r in message.reference_inputs),
        adapters=tuple(
            AdapterSelection(a.name, a.scale if a.HasField("scale") else 1.0)
            for a in message.adapters
        ),
        block_cache=(
            block_cache_from_message(message.block_cache)
            if message.HasField("block_cache")
            else None
        ),
        video_format=enum_from_message(VideoFormat, message.video_format, "params.video_format"),
        **optional,
    )


def _present_fields(message: Message) -> set[str]:
    return {field.name for field, _ in message.ListFields()}


def _reference_from_message(message: generation_pb2.ReferenceInput) -> ReferenceInput:
    role = required_enum(_REFERENCE_ROLES, message.role, "reference_inputs.role")
    return ReferenceInput(role, message.media_type, message.data)


def block_cache_to_message(config: BlockCacheConfig) -> generation_pb2.BlockCacheConfig:
    """The message of block-cache settings.

    Raises:
        InvalidArgument: a value that cannot be sent.
    """
    message = new_message(
        generation_pb2.BlockCacheConfig,
        compute_bins=config.compute_bins,
        cache_bins=config.cache_bins,
    )
    set_fields(message, config, _OPTIONAL_BLOCK_CACHE)
    for name, kind in _ENUM_BLOCK_CACHE.items():
        value = getattr(config, name)
        if value is not None:
            value = enum_member(kind, value, f"block_cache.{name}")
        setattr(message, name, enum_to_message(value))
    if config.report_residual_diffs:
        message.report_residual_diffs = True
    if config.secondary is not None:
        message.secondary.CopyFrom(block_cache_to_message(config.secondary))
    return message


def block_cache_from_message(message: generation_pb2.BlockCacheConfig) -> BlockCacheConfig:
    """The block-cache settings of a message.

    Raises:
        InvalidArgument: an enum value that is not known, or a secondary inside a secondary.
    """
    if message.HasField("secondary") and message.secondary.HasField("secondary"):
        raise InvalidArgument(
            "block_cache.secondary has a secondary of its own",
            field="block_cache.secondary.secondary",
            allowed="unset",
        )
    present = _present_fields(message)
    values: dict[str, Any] = {
        name: getattr(message, name) for name in _OPTIONAL_BLOCK_CACHE if name in present
    }
    for name, kind in _ENUM_BLOCK_CACHE.items():
        values[name] = enum_from_message(kind, getattr(message, name), f"block_cache.{name}")
    return BlockCacheConfig(
        compute_bins=tuple(message.compute_bins),
        cache_bins=tuple(message.cache_bins),
        report_residual_diffs=message.report_residual_diffs,
        secondary=(
            block_cache_from_message(message.secondary) if message.HasField("secondary") else None
        ),
        **values,
    )


def block_cache_report_to_message(report: BlockCacheReport) -> generation_pb2.BlockCacheReport:
    """The message of a block-cache report."""
    return generation_pb2.BlockCacheReport(
        branches=[
            generation_pb2.BranchReport(
                transformer=b.transformer,
                branch=b.branch,
                computed_steps=b.computed_steps,
                reused_steps=b.reused_steps,
                reasons=b.reasons,
                residual_diffs=b.residual_diffs,
            )
            for b in report.branches
        ],
        block_calls=report.block_calls,
        block_calls_full=report.block_calls_full,
        notes=report.notes,
    )


def block_cache_report_from_message(message: generation_pb2.BlockCacheReport) -> BlockCacheReport:
    """The block-cache report of a message."""
    return BlockCacheReport(
        branches=tuple(
            BranchReport(
                transformer=b.transformer,
                branch=b.branch,
                computed_steps=tuple(b.computed_steps),
                reused_steps=tuple(b.reused_steps),
                reasons=dict(b.reasons),
                residual_diffs=tuple(b.residual_diffs),
            )
            for b in message.branches
        ),
        block_calls=message.block_calls,
        block_calls_full=message.block_calls_full,
        notes=tuple(message.notes),
    )


def progress_to_message(progress: StepProgress) -> generation_pb2.StepProgress:
    """The message of one step."""
    return generation_pb2.StepProgress(
        step_index=progress.step_index,
        num_inference_steps=progress.num_inference_steps,
        step_time=duration_to_message(progress.step_time_s),
        block_cache_reused=progress.block_cache_reused,
    )


def progress_from_message(message: generation_pb2.StepProgress) -> StepProgress:
    """The step of a message."""
    return StepProgress(
        step_index=message.step_index,
        num_inference_steps=message.num_inference_steps,
        step_time_s=duration_from_message(message.step_time),
        block_cache_reused=message.block_cache_reused,
    )


def artifact_header(artifact: Artifact) -> generation_pb2.ArtifactHeader:
    """The header that goes before an artifact's bytes."""
    return generation_pb2.ArtifactHeader(
        media_type=artifact.media_type,
        size_bytes=len(artifact.data),
        height=artifact.height,
        width=artifact.width,
        num_frames=artifact.num_frames,
        frame_rate=artifact.frame_rate,
        xxh3_64=checksum(artifact.data),
    )


def frames_to_messages(frames: Iterable[EncodedImage]) -> list[generation_pb2.FrameSample]:
    """The messages of frames.

    Raises:
        InvalidArgument: a value that cannot be sent; names the field.
    """
    return [
        new_message(generation_pb2.FrameSample, media_type=frame.media_type, data=frame.data)
        for frame in frames
    ]


def frames_from_messages(
    messages: Iterable[generation_pb2.FrameSample],
) -> tuple[EncodedImage, ...]:
    """The frames of messages, as they are: `checked_frames` is for those of callers."""
    return tuple(EncodedImage(message.media_type, message.data) for message in messages)
