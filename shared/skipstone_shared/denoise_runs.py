"""What a denoise executor is asked and what it streams back, as plain dataclasses.

The messages of ``skipstone/denoise/v1/denoise.proto`` say what each field means. Times are seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum

from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.generation import (
    Artifact,
    BlockCacheReport,
    GenerationParams,
    StepProgress,
)
from skipstone_shared.latents import LatentFingerprint, LatentRef
from skipstone_shared.stored_entries import DEFAULT_LEASE_S


class ResumeKind(Enum):
    """How a donor's latent is used."""

    TRAJECTORY = "trajectory"
    RENOISE = "renoise"
    DECODE = "decode"


class SchedulerResume(Enum):
    """Whether a scheduler can go on from a latent alone."""

    EXACT = "exact"
    WITH_HISTORY = "with_history"
    UNSUPPORTED = "unsupported"


@dataclasses.dataclass(frozen=True, slots=True)
class ResumeFrom:
    """Where a run starts from: a snapshot, the steps not run, and how the latent is used."""

    donor: LatentRef
    skip_steps: int
    kind: ResumeKind


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Which snapshots a run stores; an empty ``store`` is the executor's configured one."""

    entry_id: str
    key_steps: tuple[int, ...] = ()
    store_clean: bool = True
    store: str = ""
    lease_s: float = DEFAULT_LEASE_S


@dataclasses.dataclass(frozen=True, slots=True)
class DenoiseRequest:
    """One run. ``params.seed`` must be set; ``sample_frames`` frames come with the end, 0 to 16."""

    namespace: str
    params: GenerationParams
    resume: ResumeFrom | None = None
    snapshots: SnapshotPlan | None = None
    expected_compatibility_key: str = ""
    wants_artifact: bool = True
    sample_frames: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What a run with given parameters would be.

    Attributes:
        params: The parameters with every default filled in, except the seed.
        fingerprint: Fingerprint of the run.
        compatibility_key: Its hash.
        sigmas: Noise level entering each step, ``num_inference_steps + 1`` values, the last 0.
        resume_kinds: Ways of resuming that are safe.
        resumable_steps: Steps a trajectory resume may start at; empty: all of 1 to N - 1.
        instance_id: Changes whenever plans may change.
    """

    params: GenerationParams
    fingerprint: LatentFingerprint
    compatibility_key: str
    sigmas: tuple[float, ...]
    resume_kinds: tuple[ResumeKind, ...]
    instance_id: str
    resumable_steps: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DenoiseStarted:
    """The run left the queue. ``refusal_reason`` says why an asked-for resume is not done."""

    skip_steps: int
    refusal_reason: str = ""
    refusal_message: str = ""
    queue_time_s: float = 0.0
    resume_read_time_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """A snapshot is stored."""

    ref: LatentRef


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotFailure:
    """A snapshot that could not be stored."""

    step_index: int
    reason: str
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class DenoiseFinished:
    """The run is over; always the last event. ``frames`` are those that were asked for."""

    executed_steps: int
    skip_steps: int
    compatibility_key: str
    snapshots: tuple[LatentRef, ...] = ()
    snapshot_failures: tuple[SnapshotFailure, ...] = ()
    block_cache: BlockCacheReport | None = None
    denoise_time_s: float = 0.0
    encode_time_s: float = 0.0
    decode_time_s: float = 0.0
    snapshot_time_s: float = 0.0
    frames: tuple[EncodedImage, ...] = ()


DenoiseEvent = DenoiseStarted | StepProgress | SnapshotWritten | Artifact | DenoiseFinished
"""What a run streams, in this order; artifacts travel in chunks but appear here whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class DenoiseCapabilities:
    """The model, its defaults and its limits; sizes in pixels."""

    instance_id: str
    model_id: str
    pipeline_class: str
    scheduler_class: str
    default_steps: int
    max_steps: int
    default_guidance_scale: float
    default_height: int
    default_width: int
    size_multiple: int
    min_size: int
    max_size: int
    max_concurrent_requests: int
    resume_kinds: tuple[ResumeKind, ...]
    scheduler_resume: SchedulerResume
    default_num_frames: int = 1
    max_num_frames: int = 1
    block_cache_supported: bool = False
    adapters: tuple[str, ...] = ()
    latent_kv_target: str = ""
    frame_rate: float = 0.0
    frame_step: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class BlockCacheSteps:
    """Steps of one transformer under block caching, over all requests and guidance branches."""

    transformer: str
    computed_steps: int = 0
    reused_steps: int = 0
    reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class DenoiseStats:
    """Counts since the start."""

    finished_count: int = 0
    failed_count: int = 0
    cancelled_count: int = 0
    running_count: int = 0
    queued_count: int = 0
    executed_steps: int = 0
    skipped_steps: int = 0
    block_calls: int = 0
    block_calls_full: int = 0
    block_cache_steps: tuple[BlockCacheSteps, ...] = ()
