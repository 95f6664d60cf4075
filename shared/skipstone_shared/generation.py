"""What a generation is asked for and what it reports, as plain dataclasses.

The messages of ``skipstone/generation/v1/generation.proto`` say what each field means;
``generation_messages`` converts between the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum

MAX_PROMPT_BYTES = 20_000
"""Longest prompt or negative prompt, in bytes of UTF-8."""

MAX_SEED = 2**63 - 1

MAX_REFERENCE_BYTES = 3 << 20
"""Largest reference input, encoded."""


class ReferenceRole(Enum):
    """What a reference input is used for."""

    IMAGE = "image"
    MASK = "mask"
    LAST_FRAME = "last_frame"


class BlockCachePreset(Enum):
    """Ready-made block-cache settings."""

    NONE = "none"
    QUALITY = "quality"
    BALANCED = "balanced"
    FAST = "fast"


class ScmMaskPolicy(Enum):
    """Named step masks (SCM)."""

    NONE = "none"
    SLOW = "slow"
    MEDIUM = "medium"
    FAST = "fast"
    ULTRA = "ultra"


class ScmStepsPolicy(Enum):
    """What happens at a mask's reusable steps."""

    DYNAMIC = "dynamic"
    STATIC = "static"


class ScmMaskSource(Enum):
    """Which rule makes a named mask for a number of steps."""

    OWN = "own"
    COMPAT = "compat"


class TaylorSeerCacheType(Enum):
    """What TaylorSeer forecasts."""

    RESIDUAL = "residual"
    HIDDEN_STATES = "hidden_states"


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceInput:
    """A picture, mask or clip that conditions a generation, encoded as ``media_type``."""

    role: ReferenceRole
    media_type: str
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterSelection:
    """An adapter chosen for one request, by the name under which the executor loaded it."""

    name: str
    scale: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class BlockCacheConfig:
    """Block caching inside one request, under the names of the field; None takes the default."""

    preset: BlockCachePreset | None = None
    fn_compute_blocks: int | None = None
    bn_compute_blocks: int | None = None
    max_warmup_steps: int | None = None
    warmup_interval: int | None = None
    max_cached_steps: int | None = None
    max_continuous_cached_steps: int | None = None
    residual_diff_threshold: float | None = None
    enable_taylorseer: bool | None = None
    taylorseer_order: int | None = None
    enable_divided_difference: bool | None = None
    scm_steps_mask_policy: ScmMaskPolicy | None = None
    scm_steps_policy: ScmStepsPolicy | None = None
    scm_mask_source: ScmMaskSource | None = None
    compute_bins: tuple[int, ...] = ()
    cache_bins: tuple[int, ...] = ()
    report_residual_diffs: bool = False
    secondary: BlockCacheConfig | None = None
    max_accumulated_residual_diff_threshold: float | None = None
    cfg_diff_compute_separate: bool | None = None
    taylorseer_cache_type: TaylorSeerCacheType | None = None


class VideoFormat(Enum):
    """What a video is sent as."""

    MP4 = "mp4"
    GIF = "gif"


@dataclasses.dataclass(frozen=True, slots=True)
class GenerationParams:
    """Parameters of one generation; None takes the model's default.

    Attributes:
        prompt: What to show, 1 to MAX_PROMPT_BYTES bytes.
        negative_prompt: What to avoid; empty for the pipeline's own unconditional input.
        num_inference_steps: Denoising steps, 1 to the executor's largest number.
        guidance_scale: Classifier-free guidance scale, 0 to 100.
        guidance_scale_2: Second guidance scale of models that have one, 0 to 100.
        height: Pixels, a multiple of the model's size step.
        width: Pixels, a multiple of the model's size step.
        num_frames: Frames, for video models.
        seed: Seed of the initial noise, 0 to MAX_SEED.
        reference_inputs: Pictures, masks and clips, in the order the pipeline takes them.
        adapters: Adapters to apply, in order.
        block_cache: Block caching; None takes the executor's configured default.
        shift: Timestep shift, above 0 and at most 100.
        video_format: What a video is sent as; None takes the executor's configured default.
    """

    prompt: str
    negative_prompt: str = ""
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None
    height: int | None = None
    width: int | None = None
    num_frames: int | None = None
    seed: int | None = None
    reference_inputs: tuple[ReferenceInput, ...] = ()
    adapters: tuple[AdapterSelection, ...] = ()
    block_cache: BlockCacheConfig | None = None
    shift: float | None = None
    video_format: VideoFormat | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BranchReport:
    """Block caching in one transformer and guidance branch; steps are absolute indices."""

    transformer: str
    branch: str
    computed_steps: tuple[int, ...] = ()
    reused_steps: tuple[int, ...] = ()
    reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)
    residual_diffs: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class BlockCacheReport:
    """What block caching did in one request, beside what a run without it would have run."""

    branches: tuple[BranchReport, ...] = ()
    block_calls: int = 0
    block_calls_full: int = 0
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StepProgress:
    """One step done.

    Attributes:
        step_index: Step just completed, 0-based, absolute.
        num_inference_steps: Steps of the schedule.
        step_time_s: Seconds the step took.
        block_cache_reused: Whether middle blocks were reused at this step.
    """

    step_index: int
    num_inference_steps: int
    step_time_s: float = 0.0
    block_cache_reused: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Artifact:
    """A finished picture or video, encoded.

    Attributes:
        media_type: ``image/png``, ``video/mp4`` or ``image/gif``.
        data: Encoded bytes.
        height: Pixels.
        width: Pixels.
        num_frames: Frames; 1 for a picture.
        frame_rate: Frames per second; 0 for a picture.
    """

    media_type: str
    data: bytes
    height: int
    width: int
    num_frames: int = 1
    frame_rate: float = 0.0
